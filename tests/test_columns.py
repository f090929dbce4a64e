"""Targets (N, 1) with a posterior without leading axis count as (N,) in all functions."""

import numpy as np
import pytest
from support.rank_problems import numbers, on_ranks
from support.weight_problems import basis_of, weights

import fastsvgp as fs

N, M = 24, 5


def svgp(rng, likelihood=None, P=()):
    covariance, Z = fs.RBF(1.2, 0.9), np.linspace(-2, 2, M)[:, None]
    q = fs.posteriors.at_prior(fs.Whitened, covariance, Z, *P)
    return fs.SVGP(
        covariance,
        Z,
        fs.replace(q, mean=rng.standard_normal((*P, M))),
        likelihood or fs.Gaussian(0.3),
    )


def data(rng, likelihood=None):
    X = rng.uniform(-2, 2, (N, 1))
    if likelihood is None:
        return X, np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(N)
    return X, rng.integers(0, 2 if likelihood.num_latent is None else 3, N)


def qsgp(rng):
    return fs.QSGP(basis_of(rng, "fourier", 8, D=1), weights(rng, 8, 2), fs.Gaussian(0.3))


def sites(kind, rng):
    both = fs.sites.Sites(rng.standard_normal(N), rng.uniform(0.5, 2, N))
    covariance, Z = fs.RBF(1.2, 0.9), np.linspace(-2, 2, M)[:, None]
    return kind(
        covariance,
        *((Z,) if kind is fs.sites.SiteSVGP else ()),
        both,
        fs.likelihoods.BernoulliLogit(),
    )


def deep(rng):
    Z = np.linspace(-1, 1, M)[:, None]
    return fs.DeepGP(
        tuple(
            fs.layers.Layer(fs.RBF(), Z, fs.posteriors.at_prior(fs.Whitened, fs.RBF(), Z, P))
            for P in (1, None)
        ),
        fs.Gaussian(0.3),
    )


def same(found, due):
    for one, two in zip(numbers(found), numbers(due), strict=True):
        np.testing.assert_array_equal(one, two)
        assert one.shape == two.shape


OF_SVGP = {
    "elbo": fs.elbo,
    "elbo_and_grad": fs.elbo_and_grad,
    "scaled": lambda m, X, Y: fs.elbo_and_grad(m, X, Y, num_data=100, inputs=True),
    "data_term": fs.bounds.data_term_and_grad,
    "natural_step": lambda m, X, Y: fs.natural_step(m, X, Y)[0],
    "monotone": lambda m, X, Y: fs.natural_step(m, X, Y, monotone=True)[0],
    "step_and_grad": lambda m, X, Y: fs.optim.natural_step_and_grad(m, X, Y)[::2],
    "natural_steps": lambda m, X, Y: fs.sites.natural_steps(m, X, Y, steps=2)[0],
    "on rows": lambda m, X, Y: fs.sites.natural_steps(
        m, X, Y, rows=[np.arange(5), np.arange(9, 20)]
    )[0],
    "fit": lambda m, X, Y: fs.fit(m, X, Y, steps=3, batch_size=7, rng=0)[0],
    "fit at once": lambda m, X, Y: fs.fit(m, X, Y, steps=2, natural_step_size=0.5)[0],
    "em": lambda m, X, Y: fs.em(
        fs.posteriors.convert(m, fs.posteriors.AbsorbedDualSites), X, Y, rounds=1, m_iterations=2
    )[0],
    "log density": fs.predict_log_density,
    "dual_parameters": fs.sites.dual_parameters,
}


@pytest.mark.parametrize("name", OF_SVGP)
def test_a_column_of_targets(rng, name):
    model, (X, Y) = svgp(rng), data(rng)
    due = OF_SVGP[name](model, X, Y)
    for column in (Y[:, None], Y[:, None].tolist(), np.stack([Y, Y], 1)[:, :1]):
        same(OF_SVGP[name](model, X, column), due)


def test_a_column_in_single_precision(rng):
    model, (X, Y) = svgp(rng), data(rng)
    model = fs.records.tree_map(lambda leaf: np.asarray(leaf, np.float32)[()], model)
    value, grad = fs.elbo_and_grad(model, X.astype(np.float32), Y.astype(np.float32)[:, None])
    assert grad.posterior.mean.dtype == np.float32
    same((value, grad), fs.elbo_and_grad(model, X.astype(np.float32), Y.astype(np.float32)))


def test_predictions_have_the_shape_of_the_posterior(rng):
    model, (X, Y) = svgp(rng), data(rng)
    trained, _ = fs.natural_step(model, X, Y[:, None], step_size=1.0)
    assert [a.shape for a in (*fs.predict_f(trained, X), *fs.predict_y(trained, X))] == [(N,)] * 4
    assert fs.predict_log_density(trained, X, Y[:, None]).shape == (N,)
    assert (
        fs.predict_cdf(trained, X, Y[:, None]).shape
        == fs.sites.leave_one_out(trained, X, Y[:, None]).shape
        == (N,)
    )
    same(fs.predict_cdf(trained, X, Y[:, None]), fs.predict_cdf(trained, X, Y))


def test_a_posterior_with_an_axis_keeps_it(rng):
    model, (X, Y) = svgp(rng, P=(1,)), data(rng)
    assert fs.predict_y(model, X)[0].shape == (N, 1) == fs.predict_cdf(model, X, Y[:, None]).shape
    without = fs.replace(
        model, posterior=fs.records.tree_map(lambda field: field[0], model.posterior)
    )
    np.testing.assert_allclose(
        fs.elbo(model, X, Y[:, None]), fs.elbo(without, X, Y[:, None]), rtol=1e-12
    )
    with pytest.raises(ValueError, match=r"`Y` has shape \(24,\) .* leading axes \(1,\)"):
        fs.elbo(model, X, Y)
    for wrong in (Y[None], np.stack([Y, Y], 1), Y[:, None, None]):
        for one in (model, svgp(rng)):
            with pytest.raises(ValueError, match="`Y` "):
                fs.elbo(one, X, wrong)


@pytest.mark.parametrize(
    "likelihood, P",
    [
        (fs.BernoulliProbit(), ()),
        (fs.Poisson(), ()),
        (fs.likelihoods.RobustMax(num_classes=3), (3,)),
        (fs.Softmax(num_classes=3), (3,)),
    ],
    ids=lambda x: type(x).__name__,
)
def test_a_column_of_labels_and_of_weights(rng, likelihood, P):
    model, (X, Y) = svgp(rng, likelihood, P), data(rng, likelihood)
    w = rng.integers(0, 3, N).astype(float) + (np.arange(N) < 3)
    for call in (
        lambda Y, **w: fs.elbo_and_grad(model, X, Y, rng=0, **w),
        lambda Y, **w: fs.natural_step(model, X, Y, rng=0, **w)[0],
        lambda Y, **w: fs.fit(model, X, Y, steps=2, batch_size=9, rng=0, **w)[0],
    ):
        for given in (Y, Y[:, None]):
            same(call(given), call(Y))
            for column in (w, w[:, None]):
                same(call(given, weights=column), call(Y, weights=w))
    same(fs.predict_log_density(model, X, Y[:, None]), fs.predict_log_density(model, X, Y))
    with pytest.raises(ValueError, match="`Y`"):
        fs.elbo(model, X, np.where(np.arange(N) == 4, -1, Y)[:, None])


def test_a_target_that_does_not_count_may_be_missing_in_a_column(rng):
    model, (X, Y) = svgp(rng), data(rng)
    w = np.ones(N)
    w[[0, 7]] = 0
    missing = np.where(w > 0, Y, np.nan)
    for given in (missing, missing[:, None]):
        for column in (w, w[:, None]):
            same(
                fs.elbo_and_grad(model, X, given, weights=column),
                fs.elbo_and_grad(model, X, missing, weights=w),
            )
    missing[9] = np.nan
    with pytest.raises(ValueError, match="`Y` contains nan at index 9"):
        fs.elbo(model, X, missing[:, None], weights=w[:, None])
    with pytest.raises(ValueError, match=r"`weights` must be zero or more, .*; got -1 at index"):
        fs.elbo(model, X, Y[:, None], weights=-w[:, None])
    with pytest.raises(ValueError, match=r"`weights` must have shape \(24,\)"):
        fs.elbo(model, X, Y, weights=np.ones((N, 2)))


@pytest.mark.parametrize("rows", ["all", "own"])
def test_on_ranks(rng, rows):
    model, (X, Y) = svgp(rng), data(rng)
    w = rng.integers(0, 3, N) + 1.0

    def of(Y, w):
        def work(group):
            part = (
                slice(group.rank * N // 2, (group.rank + 1) * N // 2)
                if rows == "own"
                else slice(None)
            )
            given = X[part], Y[part]
            found = fs.elbo_and_grad(model, *given, weights=w[part], group=group)
            return (
                *found,
                fs.fit(model, *given, weights=w[part], steps=2, batch_size=8, rng=0, group=group)[
                    0
                ],
            )

        return on_ranks(2, work, rows)

    due = of(Y, w)
    for found in (of(Y[:, None], w), of(Y[:, None], w[:, None]), of(Y, w[:, None])):
        same(found, due)


def test_from_files(rng, tmp_path):
    model, (X, Y) = svgp(rng), data(rng)
    for name, array in (("X", X), ("Y", Y), ("column", Y[:, None])):
        np.save(tmp_path / f"{name}0.npy", array[:10])
        np.save(tmp_path / f"{name}1.npy", array[10:])
        np.save(tmp_path / f"{name}.npy", array)

    def files(name):
        return fs.records.row_files([tmp_path / f"{name}0.npy", tmp_path / f"{name}1.npy"])

    def mapped(name):
        return np.load(tmp_path / f"{name}.npy", mmap_mode="r")

    for read in (files, mapped):
        for call in (
            lambda X, Y: fs.fit(model, X, Y, steps=3, batch_size=7, rng=0)[0],
            lambda X, Y: fs.sites.natural_steps(model, X, Y, rows=[np.arange(6)])[0],
        ):
            same(call(read("X"), read("column")), call(read("X"), read("Y")))


OTHERS = {
    "bound": (qsgp, fs.qsgp.bound),
    "bound_and_grad": (qsgp, fs.qsgp.bound_and_grad),
    "optimal_weights": (qsgp, lambda m, X, Y: fs.qsgp.optimal_weights(m, X, Y)[0]),
    "sampled": (
        qsgp,
        lambda m, X, Y: fs.qsgp.sampled_bound_and_grad(
            m, X, Y, fs.qsgp.draw_basis_sample(m.basis, 4, pair=True, rng=0)
        )[0],
    ),
    "fit of weights": (qsgp, lambda m, X, Y: fs.fit(m, X, Y, steps=2, basis_size=4, rng=0)[0]),
    "density of weights": (qsgp, fs.predict_log_density),
    "cdf of weights": (qsgp, fs.predict_cdf),
    "deep": (deep, lambda m, X, Y: fs.elbo_and_grad(m, X, Y, rng=0)),
    "deep step": (deep, lambda m, X, Y: fs.natural_step(m, X, Y, rng=0)[0]),
    "deep fit": (deep, lambda m, X, Y: fs.fit(m, X, Y, steps=2, rng=0)[0]),
    "deep density": (deep, lambda m, X, Y: fs.predict_log_density(m, X, Y, rng=0)),
}
OF_SITES = {
    "bound": fs.sites.bound,
    "terms": fs.sites.bound_terms,
    "gradient": fs.sites.bound_and_grad,
    "step": lambda m, X, Y: fs.natural_step(m, X, Y)[0],
    "steps": lambda m, X, Y: fs.sites.natural_steps(m, X, Y, steps=2)[0],
    "em": lambda m, X, Y: fs.em(m, X, Y, rounds=1, m_iterations=2)[0],
}


@pytest.mark.parametrize("kind", [fs.sites.VGP, fs.sites.SiteSVGP])
@pytest.mark.parametrize("name", OF_SITES)
def test_models_with_sites(rng, kind, name):
    model, (X, Y) = sites(kind, rng), data(rng, fs.likelihoods.BernoulliLogit())
    same(OF_SITES[name](model, X, Y[:, None]), OF_SITES[name](model, X, Y))
    with pytest.raises(ValueError, match="`Y` "):
        OF_SITES[name](model, X, np.stack([Y, Y], 1))


@pytest.mark.parametrize("name", OTHERS)
def test_other_kinds_of_model(rng, name):
    make, call = OTHERS[name]
    model, (X, Y) = make(rng), data(rng)
    same(call(model, X, Y[:, None]), call(model, X, Y))
    with pytest.raises(ValueError, match="`Ys?` "):
        call(model, X, np.stack([Y, Y], 1))


def test_on_blocks_and_features(rng):
    model, (X, Y) = svgp(rng), data(rng)
    blocks = model.covariance.blocks(model.inducing, X)
    due = fs.bounds.elbo_and_grad_from_blocks(
        blocks, model.posterior, model.likelihood, Y, weights=np.full(N, 2.0)
    )
    for w in (np.full(N, 2.0), np.full((N, 1), 2.0)):
        same(
            fs.bounds.elbo_and_grad_from_blocks(
                blocks, model.posterior, model.likelihood, Y[:, None], weights=w
            ),
            due,
        )
    Phi, q = (
        np.cos(X * np.arange(1, 6)),
        fs.qsgp.ChevronWeights(np.zeros(5), np.eye(5, 1), np.ones(4)),
    )
    sample, given = fs.qsgp.BasisSample(np.arange(5), np.arange(5)), {"precision": np.ones(5)}
    due, found = (
        fs.qsgp.sampled_bound_and_grad_from_features(
            Phi, Phi, q, model.likelihood, y, sample, **given
        )[:2]
        for y in (Y, Y[:, None])
    )
    assert found[0] == due[0]
    np.testing.assert_array_equal(found[1][0], due[1][0])


@pytest.mark.parametrize(
    "bound", [fs.collapsed_bound, fs.collapsed_bound_and_grad, fs.bounds.tighter_bound]
)
def test_collapsed_bounds(rng, bound):
    """There is no posterior here: a column is one output, with an axis in the results."""
    m, (X, Y) = svgp(rng), data(rng)
    sgpr, w = fs.SGPR(m.covariance, m.inducing, 0.3), np.full(N, 2.0)
    for given in (Y, Y[:, None]):
        same(bound(sgpr, X, given), bound(sgpr, X, Y))
        same(bound(sgpr, X, given, weights=w[:, None]), bound(sgpr, X, Y, weights=w))
    assert fs.predict_f(fs.optimal_svgp(sgpr, X, Y[:, None]), X)[0].shape == (N, 1)
