"""Control variates of sampled bounds, averaged over all possible samples."""

import numpy as np
import pytest
from support.numerics import nine_point
from support.sampled_problems import (
    FIRST,
    LIKELIHOODS,
    SECOND,
    UNITS,
    as_dense,
    assert_unbiased,
    each_of,
    fields,
    log_det,
    pairs,
    problem,
)
from support.weight_problems import BASES, weights

import fastsvgp as fs

GAUSSIAN, OTHERS = LIKELIHOODS[0], LIKELIHOODS[1:]


def controls(rng, model, points):
    """Both kinds; earlier steps give one coefficient per column."""
    running = fs.qsgp.paired_control_variate(model, points, "running", jitter=1e-2)
    return {
        "kriged": fs.qsgp.kriging_control_variate(model, points, jitter=1e-2),
        "eq. 3": fs.qsgp.paired_control_variate(model, points, jitter=1e-2),
        "with targets": fs.qsgp.paired_control_variate(
            model, points, 0.6, targets=rng.standard_normal(len(points)), jitter=1e-2
        ),
        "running": fs.replace(running, coefficient=rng.uniform(0.3, 1.5, len(running.values))),
    }


def moved_in_place(rng, model):
    """Change hyperparameters, and inducing inputs in place."""
    basis = fs.replace(model.basis, covariance=fs.RBF(0.9, np.array([0.7, 1.9])))
    if hasattr(basis, "inducing"):
        basis.inducing[:] += 0.3 * rng.standard_normal(basis.inducing.shape)
    return fs.replace(model, basis=basis)


def estimates(model, X, Y, scheme, **options):
    return [
        fs.qsgp.sampled_bound_and_grad(model, X, Y, sample, num_data=20, **options)
        for sample in pairs(scheme)
    ]


@pytest.mark.parametrize("scheme", ["with", "stratified"])
@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("name", BASES)
def test_what_is_unbiased_stays_so(rng, name, k, scheme):
    """Also after the hyperparameters changed and the control did not."""
    model, X, Y = problem(rng, name, k, GAUSSIAN)
    found, wrt = controls(rng, model, rng.standard_normal((4, 2))), fields(model)
    moved = moved_in_place(rng, model)
    plain = estimates(moved, X, Y, scheme, wrt=())
    for control in found.values():
        ours = estimates(moved, X, Y, scheme, wrt=wrt, control=control)
        assert max(abs(a[0] - b[0]) for a, b in zip(ours, plain, strict=True)) > 1e-9
        assert_unbiased(ours, moved, X, Y, wrt)


@pytest.mark.parametrize("name", BASES)
def test_at_all_data_both_kinds_are_one(rng, name):
    """The residuals are known exactly; with k = m no part of the data term is sampled."""
    model, X, Y = problem(rng, name, UNITS * (2 if name == "fourier" else 1), GAUSSIAN)
    kriged, paired = (
        fs.qsgp.kriging_control_variate(model, X, jitter=0.0),
        fs.qsgp.paired_control_variate(model, X, targets=Y, jitter=0.0),
    )
    blind = fs.records.replace_at(model, "likelihood.variance", 1e20)
    exact = fs.qsgp.bound(model, X, Y, jitter=0.0) - fs.qsgp.bound(blind, X, Y, jitter=0.0)
    for sample in pairs("stratified"):
        (value, grad, info), (other, bar, _) = (
            fs.qsgp.sampled_bound_and_grad(model, X, Y, sample, wrt="posterior", control=control)
            for control in (kriged, paired)
        )
        without_data, *_ = fs.qsgp.sampled_bound_and_grad(
            blind, X, Y, sample, wrt="posterior", control=kriged
        )
        np.testing.assert_allclose(value - without_data, exact, rtol=1e-8)
        np.testing.assert_allclose(value, other, rtol=1e-8)
        for (path, _, a), (_, _, b) in zip(
            fs.records.leaves(as_dense(grad, model)),
            fs.records.leaves(as_dense(bar, model)),
            strict=True,
        ):
            assert a is b is None or np.allclose(a, b, rtol=1e-7, atol=1e-7), path


@each_of(OTHERS)
@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("name", BASES)
def test_the_kriged_tangent_bound(rng, name, k, likelihood):
    """Below the bound on average, with the gradient of that average, in the control too."""
    model, X, Y = problem(rng, name, k, likelihood)
    points, t, wrt = rng.standard_normal((3, 2)), rng.uniform(0.5, 1.5, len(Y)), fields(model)
    control = fs.qsgp.kriging_control_variate(model, points, jitter=1e-2)
    model = moved_in_place(rng, model)
    assert np.mean(
        [v for v, _, _ in estimates(model, X, Y, "with", wrt=(), control=control)]
    ) < fs.qsgp.bound(model, X, Y, num_data=20) - log_det(model)
    found = estimates(model, X, Y, "stratified", wrt=wrt, control=control, tangent=t)
    vector, unravel = fs.ravel(model, unconstrained=False, fixed="basis" if wrt else ())
    bar = np.mean([unravel.pullback(vector, as_dense(grad, model)) for _, grad, _ in found], axis=0)

    def average(at):
        there = unravel(at)
        values = fs.qsgp.kriging_control_variate(
            fs.replace(there, basis=control.basis), points
        ).values
        one = fs.replace(control, values=values)
        return np.mean(
            [v for v, _, _ in estimates(there, X, Y, "stratified", wrt=(), control=one, tangent=t)]
        )

    for path, at in unravel.slices.items():
        d = np.zeros_like(vector)
        d[at] = rng.standard_normal(at.stop - at.start)
        along = nine_point(lambda s, d=d: average(vector + s * d), 1e-4)
        scale = max(1.0, abs(found[0][0]), np.linalg.norm(bar[at]) * np.linalg.norm(d))
        assert abs(along - bar @ d) <= 1e-7 * scale, path


def test_kriging_closes_the_gap_of_the_tangent_bound(rng):
    """With as many points as functions, by enumeration."""
    model, X, Y = problem(rng, "relevance", 0, fs.likelihoods.BernoulliLogit())
    model = fs.records.replace_at(model, "posterior.diagonal", np.full(UNITS, 1e-3))
    model = fs.records.replace_at(model, "posterior.mean", np.array([2.0, -1.5, 1.0]))
    exact, sd = fs.qsgp.bound(model, X, Y, num_data=20), np.sqrt(fs.predict_f(model, X)[1])
    control = fs.qsgp.kriging_control_variate(model, model.basis.inducing, jitter=0.0)
    plain, kriged = (
        exact
        - np.mean(
            [v for v, _, _ in estimates(model, X, Y, "with", wrt=(), tangent=sd, control=one)]
        )
        for one in (None, control)
    )
    assert 0 < kriged < 0.01 * plain


def test_a_running_coefficient_is_what_earlier_steps_say(rng):
    """-<g, h> / |h|^2, with h the control's part of the gradient g; units of disjoint sides."""
    model, X, Y = problem(rng, "fourier", 1, GAUSSIAN)
    control = fs.qsgp.paired_control_variate(model, rng.standard_normal((4, 2)), "running")
    np.testing.assert_array_equal(control.coefficient, 1.0)
    dots = np.zeros((2, 2))
    for i, j in ((0, 1), (2, 0), (1, 2)):
        sample = fs.qsgp.BasisSample(np.array([i]), np.array([j]))
        gradients = []
        for c in (0.0, 1.0):
            fixed = fs.replace(control, coefficient=c, moments=None)
            _, grad, info = fs.qsgp.sampled_bound_and_grad(
                model, X, Y, sample, wrt="posterior", control=fixed
            )
            assert info.control.coefficient == c
            q = as_dense(grad, model).posterior
            gradients.append(np.column_stack([q.mean, q.columns]))
        pivots = np.zeros_like(gradients[0])
        pivots[0, 1] = 1 / model.posterior.columns[0, 0]  # of log det C, which is not sampled
        g, h = gradients[0] - pivots, gradients[1] - gradients[0]
        dots = 0.99 * dots + np.stack([(g * h).sum(0), (h * h).sum(0)])
        _, _, info = fs.qsgp.sampled_bound_and_grad(model, X, Y, sample, control=control)
        _, _, aside = fs.qsgp.sampled_bound_and_grad(
            model, X, Y, sample, wrt="likelihood", control=control
        )
        assert aside.control.moments is control.moments
        control = info.control
        np.testing.assert_allclose(control.coefficient, -dots[0] / dots[1], rtol=1e-8)


@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("name", BASES)
def test_a_paired_control_that_is_advanced_or_stored(rng, tmp_path, name, k):
    model, _, _ = problem(rng, name, k, GAUSSIAN)
    m, points = len(model.posterior.mean), rng.standard_normal((4, 2))
    control = fs.qsgp.paired_control_variate(model, points, "running", targets=np.ones(4))
    change = fs.qsgp.ChevronWeights(
        fs.qsgp.SparseRows(np.array([0, m - 1]), rng.standard_normal(2)), None, None
    )
    moved = fs.records.replace_at(
        model, "posterior.mean", model.posterior.mean + change.mean.dense(m)
    )
    expected = fs.qsgp.paired_control_variate(moved, points).values
    advanced = fs.qsgp.update_control_variate(moved_in_place(rng, moved), control, change)
    np.testing.assert_allclose(advanced.values, expected, rtol=1e-9, atol=1e-11)
    fs.save(tmp_path / "control.npz", advanced)
    again = fs.load(tmp_path / "control.npz")
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(again), fs.records.leaves(advanced), strict=True
    ):
        np.testing.assert_array_equal(a, b, err_msg=path)
    again.check_against(moved, np.float64)


def test_float32(rng):
    for likelihood in (GAUSSIAN, fs.likelihoods.BernoulliLogit()):
        model, X, Y = problem(rng, "inducing", 1, likelihood)
        single = fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], model)
        sample, points = fs.qsgp.BasisSample(FIRST, SECOND), X[:3]
        makers = [fs.qsgp.kriging_control_variate] + [
            lambda *a: fs.qsgp.paired_control_variate(*a, "running")
        ] * (likelihood is GAUSSIAN)
        for make in makers:
            value, grad, _ = fs.qsgp.sampled_bound_and_grad(
                model, X, Y, sample, wrt="posterior", control=make(model, points)
            )
            found, bar, info = fs.qsgp.sampled_bound_and_grad(
                single, *(a.astype(np.float32) for a in (X, Y)), sample, wrt="posterior",
                control=make(single, points.astype(np.float32)),
            )  # fmt: skip
            np.testing.assert_allclose(found, value, rtol=1e-2)
            assert (
                bar.posterior.mean.values.dtype
                == info.mean.dtype
                == info.control.values.dtype
                == np.float32
            )
            scale = np.abs(grad.posterior.mean.values).max()
            np.testing.assert_allclose(
                bar.posterior.mean.values, grad.posterior.mean.values, atol=2e-2 * scale
            )


def test_bad_paired_controls(rng):
    model, X, Y = problem(rng, "fourier", 1, GAUSSIAN)
    for options, error, said in (
        (
            {"coefficient": "best"},
            ValueError,
            "`coefficient` must be a number or \"running\", got 'best'",
        ),
        ({"coefficient": np.nan}, ValueError, "`coefficient` must be finite"),
        ({"coefficient": np.ones(2)}, TypeError, "`coefficient` must be a number"),
        (
            {"targets": np.ones(2)},
            ValueError,
            r"`targets` must have shape \(3,\), one for each of `points`",
        ),
        ({"targets": np.full(3, np.nan)}, ValueError, "`targets` contains nan"),
    ):
        with pytest.raises(error, match=said):
            fs.qsgp.paired_control_variate(model, X[:3], **options)
    with pytest.raises(ValueError, match="`points`"):
        fs.qsgp.paired_control_variate(model, X[:, 0])
    sample, control = (
        fs.qsgp.BasisSample(FIRST, SECOND),
        fs.qsgp.paired_control_variate(model, X[:3]),
    )
    rows = np.array([1, 4])
    for change, error, said in (
        (
            None,
            TypeError,
            "`change` must be a fastsvgp.qsgp.ChevronWeights of SparseRows, got NoneType",
        ),
        (
            fs.qsgp.ChevronWeights(np.ones(6), None, None),
            TypeError,
            "`change.mean` must be a fastsvgp.qsgp.SparseRows or None",
        ),
        (
            fs.qsgp.ChevronWeights(fs.qsgp.SparseRows(rows, np.ones(3)), None, None),
            ValueError,
            r"`change.mean` must have values \(2,\)",
        ),
        (
            fs.qsgp.ChevronWeights(None, fs.qsgp.SparseRows(rows, np.ones((2, 2))), None),
            ValueError,
            r"`change.columns` .* values \(2, 1\)",
        ),
    ):
        with pytest.raises(error, match=said):
            fs.qsgp.update_control_variate(model, control, change)
    classes, labels = fs.replace(model, likelihood=fs.likelihoods.BernoulliLogit()), (Y > 0) * 1.0
    with pytest.raises(
        TypeError,
        match="paired_control_variate is for Gaussian noise, not for a BernoulliLogit .*use"
        " kriging_control_variate",
    ):
        fs.qsgp.sampled_bound_and_grad(classes, X, labels, sample, control=control)
    mean_field = fs.replace(classes, posterior=weights(rng, 6, 0))
    with pytest.raises(ValueError, match="`sample` has no j, needed for a control"):
        fs.qsgp.sampled_bound_and_grad(
            mean_field,
            X,
            labels,
            fs.qsgp.BasisSample(FIRST),
            control=fs.qsgp.kriging_control_variate(mean_field, X[:3]),
        )
    for path, value, said in (
        (
            "values",
            control.values[:, :2],
            r"`control.values` must have shape \(2, 3\), got \(2, 2\)",
        ),
        ("values", control.values[0], "`control.values` must have two dimensions"),
        ("values", np.full((2, 3), np.nan), "`control.values` contains nan"),
        ("points", np.ones((3, 1)), "`control.points` has 1 columns"),
        ("factor", np.eye(2), r"`control.factor` must have shape \(3, 3\)"),
        ("coefficient", np.ones(3), r"`control.coefficient` must have shape \(2,\)"),
        ("basis", "RandomFourier", "`control` is one of None"),
    ):
        with pytest.raises(ValueError, match=said):
            fs.qsgp.sampled_bound_and_grad(
                model, X, Y, sample, control=fs.replace(control, **{path: value})
            )
