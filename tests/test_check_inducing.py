"""Messages for inducing inputs: duplicates, and sets or records that do not fit the model."""

import numpy as np
import pytest
from support.posterior_problems import ROWS
from support.small_models import X, Y, good

import fastsvgp as fs


def test_duplicated_inducing_inputs_say_so(rng):
    model = fs.replace(good(rng), inducing=np.zeros((3, 2)))
    causes = r"\(1\) duplicated.*\(2\) inputs on a much smaller scale.*\(3\) float32.*\(4\) NaN"
    with pytest.raises(
        fs.NotPositiveDefinite, match=rf"pivot 1 with jitter 0 in float64.*{causes}.*Raise `jitter`"
    ):
        fs.elbo(model, X, Y, jitter=0.0)
    assert np.isfinite(fs.elbo(model, X, Y))  # the default jitter mends it, visibly


@pytest.mark.parametrize("posterior", [fs.Whitened, fs.Marginal])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_near_zero_pivots_are_refused_without_jitter(rng, posterior, dtype):
    """Half of all duplicates leave a pivot of some eps: the bound would be -1e16."""
    raised = passed = 0
    for _ in range(40):
        Z = rng.standard_normal((8, 2)).astype(dtype)
        covariance = fs.RBF(dtype(rng.uniform(0.1, 10)), dtype(0.5))
        model = fs.SVGP(
            covariance,
            Z,
            posterior(np.ones(8, dtype), np.eye(8, dtype=dtype)),
            fs.Gaussian(dtype(0.1)),
        )
        # distinct inputs are well separated
        assert np.isfinite(fs.elbo(model, X.astype(dtype), Y.astype(dtype), jitter=0.0))
        Z = Z.copy()
        Z[5] = Z[2]
        try:
            fs.kernels.cholesky(covariance.matrix(Z))
            passed += 1
        except fs.NotPositiveDefinite:
            pass
        twice = fs.replace(model, inducing=Z)
        for call in (fs.elbo, fs.elbo_and_grad, fs.natural_step):
            with pytest.raises(
                fs.NotPositiveDefinite, match=r"pivot 5 with jitter 0 .*\(1\) duplicated"
            ) as caught:
                call(twice, X.astype(dtype), Y.astype(dtype), jitter=0.0)
            raised += caught.value.size == 8
        with pytest.raises(fs.NotPositiveDefinite, match="pivot 5 with jitter 0"):
            fs.collapsed_bound(
                fs.SGPR(covariance, Z, dtype(0.1)), X.astype(dtype), Y.astype(dtype), jitter=0.0
            )
        # with the default jitter nothing changes
        assert np.isfinite(fs.elbo(twice, X.astype(dtype), Y.astype(dtype)))
    assert raised == 120 and passed > 5


@fs.records.record
class Beacons:
    """Inducing inputs of ``Lighthouse``."""

    where: np.ndarray = fs.records.leaf()
    width: np.ndarray = fs.records.leaf("positive")


@fs.records.record
class Lighthouse(fs.RBF):
    """A covariance that takes ``Beacons`` and defines its own blocks."""

    inducing_type = Beacons

    def num_inducing(self, inducing):
        return (len(inducing.where),)

    def num_columns(self, inducing):
        return inducing.where.shape[1]

    def Kuf(self, inducing, X):
        return super().Kuf(inducing.where, X) / inducing.width

    def Kuu(self, inducing, other=None):
        return (
            super().Kuu(inducing.where, None if other is None else other.where) / inducing.width**2
        )


def test_inducing_inputs_and_covariances_that_do_not_fit(rng):
    m, beacons = good(rng), Beacons(np.ones((3, 2)), 1.0)
    pair = fs.posteriors.InducingPair(m.inducing[:2], m.inducing[2:])
    lighthouse = Lighthouse(1.0, np.ones(2))
    assert fs.predict_f(fs.replace(m, covariance=lighthouse, inducing=beacons), X)[0].shape == (5,)
    for covariance, inducing, message in (
        (m.covariance, beacons,
         r"`inducing` must be an array \(M, D\), which a RBF covariance takes, got a Beacons"),
        (m.covariance, fs.Gaussian(0.1),
         r"`inducing` must be an array \(M, D\), which a RBF covariance takes, got a Gaussian"),
        (m.covariance + fs.covariances.Constant(), beacons,
         "`inducing` must be an array .*, which a Sum covariance takes, got a Beacons"),
        (lighthouse, m.inducing,
         "`inducing` must be a Beacons, which a Lighthouse covariance takes, got an array"),
        (lighthouse, pair,
         "`inducing` must be a Beacons, which a Lighthouse covariance takes, got a InducingPair"),
        (lighthouse + m.covariance, m.inducing,
         r"Sum.parts.0: a Lighthouse has inducing variables of its own \(it defines Kuu, "
         r"Kuf\), but Sum needs values of the function; use it alone"),
        (fs.covariances.Product((m.covariance, lighthouse)), m.inducing,
         "Product.parts.1: a Lighthouse has inducing variables of its own"),
        (fs.covariances.Constant() + m.covariance * lighthouse, m.inducing,
         "Product.parts.1: a Lighthouse has inducing variables of its"),
        (m.covariance, pair,
         "`inducing` is a record InducingPair of 2 sets of inducing inputs, and "
         "(a Whitened posterior|SGPR) takes one: an array"),
    ):  # fmt: skip
        model, sgpr = (
            fs.replace(m, covariance=covariance, inducing=inducing),
            fs.SGPR(covariance, inducing, 0.1),
        )
        calls = [
            (fs.elbo, model, X, Y),
            (fs.natural_step, model, X, Y),
            (fs.predict_f, model, X),
            (fs.bounds.kl_term_and_grad, model),
        ]
        for function, *arguments in (
            *calls,
            (fs.collapsed_bound, sgpr, X, Y),
            (fs.fit, sgpr, X, Y),
        ):
            with pytest.raises(TypeError, match=message):
                function(*arguments)
        with pytest.raises(TypeError, match=message):
            fs.fit(model, X, Y, steps=1)


@pytest.mark.parametrize("name", ROWS)
def test_two_sets_for_a_posterior_of_one(rng, name):
    pair = fs.posteriors.InducingPair(rng.standard_normal((3, 2)), rng.standard_normal((2, 2)))
    q = ROWS[name].make(rng, np.eye(5))
    message = (
        "`inducing` is a record InducingPair of 2 sets of inducing inputs, and a"
        f" {type(q).__name__} posterior takes one"
    )
    with pytest.raises(TypeError, match=message):
        fs.elbo_and_grad(fs.SVGP(fs.RBF(1.0, np.ones(2)), pair, q, fs.Gaussian(0.1)), X, Y)


ARD = fs.RBF(1.0, np.ones(2))
LAYER = fs.layers.Layer(ARD, np.ones((3, 1)), fs.Whitened(np.zeros(3), np.eye(3)))
PARTS = {  # a model with too few columns of inducing inputs, and their path
    "SVGP": (fs.SVGP(ARD, LAYER.inducing, LAYER.posterior, fs.Gaussian(0.1)), "inducing"),
    "MultiGP": (fs.MultiGP((LAYER,), fs.Gaussian(0.1)), "latents.0.inducing"),
    "MultiGP, shared": (
        fs.MultiGP((fs.replace(LAYER, inducing=None),), fs.Gaussian(0.1), inducing=LAYER.inducing),
        "inducing",
    ),
    "DeepGP": (fs.DeepGP((LAYER,), fs.Gaussian(0.1)), "layers.0.inducing"),
    "ParallelLayers": (
        fs.DeepGP((fs.layers.ParallelLayers((LAYER,)),), fs.Gaussian(0.1)),
        "layers.0.latents.0.inducing",
    ),
    "ParallelLayers, shared": (
        fs.DeepGP(
            (
                fs.layers.ParallelLayers(
                    (fs.replace(LAYER, inducing=None),), inducing=LAYER.inducing
                ),
            ),
            fs.Gaussian(0.1),
        ),
        "layers.0.inducing",
    ),
}


@pytest.mark.parametrize("case", PARTS)
def test_columns_of_inducing_inputs_are_named_where_the_covariance_fits_X(case):
    model, path = PARTS[case]
    for function, name, arguments in (
        (fs.elbo, "X", (X, Y)),
        (fs.predict_f, "Xs", (X,)),
        (fs.natural_step, "X", (X, Y)),
    ):
        message = rf"`{path}` has 1 columns where `{name}` has 2, as many as the covariance takes"
        with pytest.raises(ValueError, match=message):
            function(model, *arguments)
    with pytest.raises(ValueError, match=r"RBF: `lengthscales` has shape \(2,\)"):
        fs.predict_f(model, X[:, :1])  # both differ from the covariance


def test_columns_of_inducing_inputs_under_other_bounds_and_covariances():
    Z, message = LAYER.inducing, "`inducing` has 1 columns where `X` has 2"
    with pytest.raises(ValueError, match=message):
        fs.collapsed_bound(fs.SGPR(ARD, Z, 0.1), X, Y)
    for covariance in (
        fs.RBF(1.0, 1.0).on(1),
        ARD + fs.Linear(),
        fs.Periodic(fs.RBF(), np.ones(2)),
    ):
        with pytest.raises(ValueError, match=message):
            fs.elbo(fs.replace(PARTS["SVGP"][0], covariance=covariance), X, Y)
