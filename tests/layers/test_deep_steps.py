"""Steps and starts of deep GPs: natural steps, inverse factors, initial models, bad arguments."""

import numpy as np
import pytest
from support.deep_problems import B, draws_for, layer_of, problem
from support.posterior_problems import JITTER

import fastsvgp as fs
from fastsvgp.errors import NotPositiveDefinite

OPTIONS = {"num_data": 3.5 * B, "jitter": JITTER}


@pytest.mark.parametrize(
    "kind",
    ["whitened", "marginal", "WhitenedOrthogonal", "Orthogonal", "absorbed-sites", "dual-sites"],
)
@pytest.mark.parametrize("P", [None, 2])
def test_a_whole_natural_step_reaches_the_last_layers_optimum(rng, kind, P):
    model = fs.DeepGP(
        (layer_of(rng, "likelihood", 2, 3), layer_of(rng, kind, 3, P)), fs.Gaussian(0.3)
    )
    X, Y = rng.uniform(-2, 2, (B, 2)), rng.standard_normal((B, P) if P else B)
    draws = draws_for(rng, model, 3)
    stepped, info = fs.natural_step(model, X, Y, step_size=1.0, draws=draws, **OPTIONS)
    assert (
        info.value == pytest.approx(fs.elbo(model, X, Y, draws=draws, **OPTIONS))
        and not info.backed_off
    )
    _, before = fs.elbo_and_grad(model, X, Y, draws=draws, wrt="layers.1.posterior", **OPTIONS)
    _, after = fs.elbo_and_grad(stepped, X, Y, draws=draws, wrt="layers.1.posterior", **OPTIONS)
    size = max(np.abs(bar).max() for _, _, bar in fs.records.leaves(before.layers[1].posterior))
    assert all(
        np.abs(bar).max() < 1e-9 * max(1, size)
        for _, _, bar in fs.records.leaves(after.layers[1].posterior)
    )
    assert stepped.layers[0] is not None and all(
        np.array_equal(a, b, equal_nan=True)
        for (_, _, a), (_, _, b) in zip(
            fs.records.leaves(stepped.layers[0]), fs.records.leaves(model.layers[0]), strict=True
        )
    )


def test_monotone_natural_steps_never_lower_the_bound(rng):
    model, X, Y = problem(rng, "outputs")
    model = fs.replace(model, likelihood=fs.StudentT(0.05, df=1.0))
    value = fs.elbo(model, X, Y, rng=3, **OPTIONS)
    stepped, info = fs.natural_step(model, X, Y, step_size=1.0, rng=3, monotone=True, **OPTIONS)
    assert info.value == pytest.approx(value) and fs.elbo(stepped, X, Y, rng=3, **OPTIONS) >= value
    with pytest.raises(
        TypeError, match=r"natural_step: a LikelihoodForm posterior cannot .* S~ diagonal"
    ):
        fs.natural_step(problem(rng, "two")[0], X, Y[:, 0])


def test_refresh_inverse_updates_the_factors_of_all_layers(rng):
    model, X, _ = problem(rng, "three")
    fresh, (below, info, above) = fs.optim.update_inverse_factor(
        model, tolerance=1e-8, jitter=JITTER
    )
    assert info.converged and below is above is None
    L, layer = np.tril(fresh.layers[1].posterior.inverse_tril), model.layers[1]
    A = layer.covariance.Kuu(layer.inducing) + np.diag(layer.posterior.variance + JITTER)
    np.testing.assert_allclose(L.T @ A @ L, np.eye(4), atol=1e-7)
    with pytest.raises(ValueError, match="no layer's posterior holds a factor .* Whitened"):
        fs.optim.update_inverse_factor(
            fs.DeepGP((layer_of(rng, "whitened", 2, None),), fs.Gaussian(0.1))
        )


STARTS = [
    fs.Whitened,
    fs.Marginal,
    fs.posteriors.LikelihoodForm,
    fs.posteriors.Relaxed,
    fs.posteriors.WhitenedOrthogonal,
    fs.posteriors.Orthogonal,
]


@pytest.mark.parametrize("kind", STARTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("width", [None, 1, 4])
def test_deep_gp_starts_at_its_mean_functions(rng, kind, width):
    """Hidden layers begin as their mean functions with little noise, the last near the prior."""
    X, Y = rng.standard_normal((40, 3)), rng.standard_normal(40)
    M = (6, 4) if kind.num_sets == 2 else 10
    model = fs.layers.deep_gp(X, fs.Gaussian(0.1), 3, M, width=width, posterior=kind, rng=0)
    assert [layer.check_shapes() for layer in model.layers] == [
        (3, (width or 3,)),
        (width or 3, (width or 3,)),
        (width or 3, ()),
    ]
    assert np.isfinite(fs.elbo(model, X, Y, rng=0))
    at = fs.layers.deep_gp(X, fs.Gaussian(0.1), 3, M, width=width, posterior=kind, rng=0)
    assert all(
        np.array_equal(a, b)
        for (_, _, a), (_, _, b) in zip(
            fs.records.leaves(model), fs.records.leaves(at), strict=True
        )
    )
    inducing = model.layers[0].inducing
    Z = inducing.Z if kind.num_sets == 2 else inducing
    for layer in model.layers[:-1]:
        one = fs.DeepGP((layer,), fs.Gaussian(0.1))
        mean, var = fs.predict_f(one, Z)
        np.testing.assert_allclose(mean, layer.mean(Z).T, atol=1e-12)
        assert (var < 0.01).all()
        Z = np.ascontiguousarray(layer.mean(Z).T)
    np.testing.assert_allclose(
        Z,
        model.layers[-1].inducing.Z if kind.num_sets == 2 else model.layers[-1].inducing,
        atol=1e-12,
    )


def test_deep_gp_starts_with_classes_and_in_float32(rng):
    X = rng.standard_normal((40, 3)).astype(np.float32)
    model = fs.layers.deep_gp(X, fs.Softmax(num_classes=4), 2, 5, covariance=fs.Matern52, rng=0)
    assert model.layers[-1].posterior.mean.shape == (4, 5) and isinstance(
        model.layers[0].covariance, fs.Matern52
    )
    assert fs.predict_y(model, X)[0].dtype == np.float32
    integers = fs.layers.deep_gp(
        rng.integers(0, 9, (40, 2)), fs.Gaussian(0.1), 2, 5, width=1, rng=0
    )
    assert integers.layers[0].inducing.dtype == float


def test_pca_mean_projects_on_the_principal_components(rng):
    X = rng.standard_normal((200, 4)) * [3.0, 0.1, 2.0, 1.0] + 5.0
    mean = fs.inducing.pca_mean(X, 2)
    np.testing.assert_allclose(mean.weights @ mean.weights.T, np.eye(2), atol=1e-12)
    H = mean(X)
    np.testing.assert_allclose(H.mean(axis=1), 0, atol=1e-12)
    spread = np.linalg.eigvalsh(np.cov(X.T))[::-1][:2]
    np.testing.assert_allclose(np.cov(H), np.diag(spread), atol=1e-10)
    assert (
        np.take_along_axis(mean.weights, np.abs(mean.weights).argmax(axis=1)[:, None], axis=1) > 0
    ).all()
    with pytest.raises(ValueError, match="pca_mean: `P` is 5, but `X` has only 4 columns"):
        fs.inducing.pca_mean(X, 5)


def bad(rng):
    """Return [(call, error, expected message)]."""
    model, X, Y = problem(rng, "two")
    below, above = model.layers
    draws, three = draws_for(rng, model, 2), layer_of(rng, "whitened", 2, None)
    again = fs.replace(below, inducing=np.repeat(below.inducing[:2], 2, axis=0))

    def of(*layers, likelihood=model.likelihood):
        return lambda: fs.elbo(fs.DeepGP(layers, likelihood), X, Y)

    def given(draws):
        return lambda: fs.elbo(model, X, Y, draws=draws)

    return [
        (
            of(below, three),
            ValueError,
            r"`layers\[0\]` has 3 outputs, but .* `layers\[1\]` are for 2 columns",
        ),
        (
            of(three, above),
            ValueError,
            r"`layers\[0\]`: .* hidden layer's `posterior` need a leading axis.* \(3, M\)",
        ),
        (
            of(below, fs.replace(above, posterior=three.posterior, mean=fs.means.IdentityMean())),
            ValueError,
            r"`layers\[1\]`: IdentityMean: the inputs have 3 columns and the outputs are \(\);"
            r" it needs \(3,\)",
        ),
        (
            of(),
            TypeError,
            "`layers` must be a tuple of at least one fastsvgp.layers.Layer, got a tuple of 0",
        ),
        (
            lambda: fs.elbo(fs.DeepGP([below, above], model.likelihood), X, Y),
            TypeError,
            "got a list of 2",
        ),
        (
            of(below, fs.layers.Layer),
            TypeError,
            r"`layers\[1\]` must be a fastsvgp.layers.Layer, got Layer, a class",
        ),
        (of(below, fs.RBF()), TypeError, r"`layers\[1\]` must be a fastsvgp.layers.Layer, got RBF"),
        (
            of(below, fs.replace(above, covariance=3.0)),
            TypeError,
            r"`layers\[1\]`: `covariance` of the model must be a record",
        ),
        (
            of(below, fs.replace(above, inducing=above.inducing[0])),
            ValueError,
            r"`layers\[1\]`: `inducing` must have shape",
        ),
        (
            of(below, fs.replace(above, inducing=above.inducing[1:])),
            ValueError,
            r"`layers\[1\]`: `posterior` has mean \(4,\)",
        ),
        (
            of(below, fs.replace(above, posterior=None)),
            TypeError,
            r"`layers\[1\]`: `posterior` of the model must be a record",
        ),
        (of(below, above, likelihood=3), TypeError, "`likelihood` of the model must be a record"),
        (
            of(below, above, likelihood=fs.Softmax(num_classes=3)),
            ValueError,
            r"last layer have leading axes \(\), but Softmax",
        ),
        (
            lambda: fs.elbo(model, X[:, :1], Y),
            ValueError,
            "`X` has 1 columns where `inducing` has 2",
        ),
        (lambda: fs.elbo(model, X, np.stack([Y, Y], 1)), ValueError, r"`Y` has shape \(5, 2\)"),
        (
            given(draws[0]),
            TypeError,
            r"`draws` must be a tuple of one array \(S, B, P\) for each of the 1 hidden layers",
        ),
        (given(()), TypeError, "for each of the 1 hidden layers, got 0 of them"),
        (
            given((draws[0][:, 1:],)),
            ValueError,
            r"`draws\[0\]` must have shape .* B = 5 rows .* P = 3 outputs .* \(2, 4, 3\)",
        ),
        (given((draws[0][:0],)), ValueError, r"`draws\[0\]` must have shape"),
        (given((np.full((2, 5, 3), np.nan),)), ValueError, r"`draws\[0\]` contains nan"),
        (
            lambda: fs.elbo(model, X, Y, num_samples=0),
            ValueError,
            "`num_samples` must be a whole number of at least 1",
        ),
        (
            lambda: fs.elbo(model, X, Y, probes=3),
            TypeError,
            "elbo has no option `probes` for DeepGP; it takes .*`draws`",
        ),
        (
            lambda: fs.predict_f(model, X, num_samples=12),
            ValueError,
            "`num_samples` must be a power of two",
        ),
        (lambda: fs.elbo(model, X, Y, rng="x"), TypeError, "`rng` must be None, a seed"),
        (
            lambda: fs.elbo_and_grad(model, X, Y, wrt="layers.2"),
            ValueError,
            "`wrt` names 'layers.2', which is not a field",
        ),
        (
            lambda: fs.elbo(fs.DeepGP((again, above), model.likelihood), X, Y, jitter=0.0),
            NotPositiveDefinite,
            r"`layers\[0\]`: `inducing\[1\]` and `inducing\[0\]` are the same inputs",
        ),
        (
            lambda: fs.collapsed_bound(model, X, Y),
            TypeError,
            "collapsed_bound: .* got DeepGP: fs.fit trains it",
        ),
        (
            lambda: fs.layers.deep_gp(X, model.likelihood, 2, 3, posterior=fs.posteriors.DualSites),
            TypeError,
            "`posterior` must be a class with",
        ),
        (
            lambda: fs.layers.deep_gp(X, model.likelihood, 2, (2, 2)),
            TypeError,
            "`M` must be one number of .* Whitened posterior, got",
        ),
        (
            lambda: fs.layers.deep_gp(
                X, model.likelihood, 2, 3, posterior=fs.posteriors.Orthogonal
            ),
            TypeError,
            r"`M` must be \(M, M2\)",
        ),
        (
            lambda: fs.layers.deep_gp(X, model.likelihood, 2, 3, covariance=fs.Linear),
            TypeError,
            "which Linear does not take",
        ),
        (
            lambda: fs.optim.by_field(fs.adam(), {"inducing": fs.adam()}).paths(model),
            ValueError,
            "`fields` names 'inducing', which is no field",
        ),
        (
            lambda: fs.layers.deep_gp(X, model.likelihood, 2, 3, covariance=fs.RBF()),
            TypeError,
            "`covariance` must be a class such as",
        ),
        (
            lambda: fs.layers.deep_gp(X, 3, 2, 3),
            TypeError,
            "`likelihood` of the model must be a record",
        ),
        (
            lambda: fs.layers.deep_gp(X, model.likelihood, 2, 3, width=0),
            ValueError,
            "`width` must be a whole number of at least 1",
        ),
    ]


def test_bad_arguments_of_deep_gps_are_rejected(rng):
    for call, kind, message in bad(rng):
        with pytest.raises(kind, match=message):
            call()
