"""Arguments of ``sample_paths``, and of paths, that are refused."""

import numpy as np
import pytest
from support.path_problems import FEW, D, layer, sites, svgp
from support.weight_problems import basis_of, weights

import fastsvgp as fs

S, n = 3, 4


@pytest.mark.parametrize(
    "options, kind, message",
    [
        ({"num_paths": 0}, ValueError, "`num_paths` must be a whole number of at least 1, got 0"),
        ({"num_paths": 2.5}, ValueError, "`num_paths` must be a whole number"),
        (
            {"num_paths": "3"},
            TypeError,
            "`num_paths` must be a whole number of at least 1, got '3'",
        ),
        ({"num_features": 1.5}, ValueError, "`num_features` must be a whole number of at least 2"),
        ({"num_features": 33}, ValueError, "`num_features` must be even, .* got 33"),
        (
            {"frequencies": "all"},
            ValueError,
            '`frequencies` must be "own", .* "shared", .* got \'all',
        ),
        ({"frequencies": 1}, ValueError, "`frequencies` must be .* got 1"),
        ({"rng": "x"}, TypeError, "`rng`"),
        ({"jitter": -1.0}, ValueError, "`jitter` must be zero or positive"),
        ({"site_inputs": 3}, TypeError, "`site_inputs` is an option of SiteSVGP and VGP"),
        ({"num_feature": 3}, TypeError, "has no option `num_feature`; did you mean `num_features`"),
    ],
)
def test_options(rng, options, kind, message):
    with pytest.raises(kind, match=message):
        fs.sample_paths(svgp(rng), **options)


def test_models_without_paths(rng):
    sgpr = fs.SGPR(fs.RBF(), rng.standard_normal((4, D)), noise_variance=0.1)
    with pytest.raises(
        TypeError, match=r"sample_paths: .*got SGPR: .*fs.optimal_svgp\(model, X, Y\)"
    ):
        fs.sample_paths(sgpr)
    with pytest.raises(TypeError, match="sample_paths: `model` must be .*got dict$"):
        fs.sample_paths({})
    q, k = weights(rng, 4, 1), fs.Periodic(fs.RBF(), 2.0)
    with pytest.raises(TypeError, match="`covariance` must be an RBF, Matern12, .* got Periodic"):
        fs.sample_paths(fs.QSGP(fs.qsgp.RandomFourier(k, num_features=4), q, fs.Gaussian(0.1)))


def test_covariances_without_features(rng):
    model = fs.replace(svgp(rng), covariance=fs.covariances.ArcCosine())
    with pytest.raises(TypeError, match="ArcCosine .*sample_f"):
        fs.sample_paths(model)
    deep = fs.DeepGP(
        (layer(rng, D, 1), layer(rng, 1, None, covariance=fs.covariances.ArcCosine())),
        fs.Gaussian(),
    )
    with pytest.raises(TypeError, match=r"`layers\[1\]`: .*ArcCosine .*sample_f"):
        fs.sample_paths(deep)
    multi = fs.MultiGP(deep.layers[1:], fs.Gaussian())
    with pytest.raises(TypeError, match=r"`latents\[0\]`: .*ArcCosine .*sample_f"):
        fs.sample_paths(multi)


def test_layers_of_ones_own_without_paths(rng):
    class OwnWithoutRule:
        def start(self):
            raise NotImplementedError

        def check_parts(self):
            pass

        def check_shapes(self):
            return D, (1,)

    OwnWithoutRule = fs.records.record(OwnWithoutRule)
    deep = fs.DeepGP((OwnWithoutRule(), layer(rng, 1, None)), fs.Gaussian())
    with pytest.raises(
        TypeError, match=r"`layers\[0\]`: sample_paths: a OwnWithoutRule has no paths: .*sample_f"
    ):
        fs.sample_paths(deep)


@pytest.mark.parametrize("kind", [fs.sites.SiteSVGP, fs.sites.VGP])
def test_sites_need_their_inputs(rng, kind):
    Z = () if kind is fs.sites.VGP else (rng.standard_normal((4, D)),)
    model = kind(fs.RBF(), *Z, sites(rng, 5), fs.Gaussian(0.1))
    with pytest.raises(
        TypeError, match=rf"a {kind.__name__} has a site for each row .*site_inputs=X\)"
    ):
        fs.sample_paths(model)
    with pytest.raises(ValueError, match="`sites` has lambda1 .* and `site_inputs` has 4 rows"):
        fs.sample_paths(model, site_inputs=np.ones((4, D)))
    with pytest.raises(ValueError, match="`num_paths`"):
        fs.sample_paths(model, 0, site_inputs=np.ones((5, D)))


def test_weights_take_no_features(rng):
    model = fs.QSGP(basis_of(rng, "fourier", 4), weights(rng, 4, 1), fs.Gaussian(0.1))
    for name, value in (("num_features", 10), ("frequencies", "own")):
        with pytest.raises(TypeError, match=f"`{name}` is for features of a covariance.*leave it"):
            fs.sample_paths(model, **{name: value})
    narrow = fs.records.replace_at(model, "posterior.mean", np.zeros(3))
    with pytest.raises(ValueError, match="there are 4 basis functions"):
        fs.sample_paths(narrow)


def test_repeated_inducing_inputs_are_named_as_in_sample_f(rng):
    model, X = svgp(rng), rng.standard_normal((3, D))
    Z = model.inducing.copy()
    Z[5] = Z[2]
    twice = fs.replace(model, inducing=Z)
    for call in (
        lambda: fs.sample_f(twice, X, jitter=0.0),
        lambda: fs.sample_paths(twice, jitter=0.0),
    ):
        with pytest.raises(
            fs.NotPositiveDefinite,
            match=r"^`inducing\[5\]` and `inducing\[2\]` are the same inputs",
        ):
            call()
    hidden = fs.layers.Layer(twice.covariance, Z, fs.Marginal(np.zeros((1, 7)), np.eye(7)[None]))
    deep = fs.DeepGP((hidden, layer(rng, 1, None)), fs.Gaussian(0.1))
    with pytest.raises(
        fs.NotPositiveDefinite, match=r"^`layers\[0\]`: `inducing\[5\]` and `inducing\[2\]`"
    ):
        fs.sample_paths(deep, jitter=0.0)


@pytest.mark.parametrize(
    "X, kind, message",
    [
        (np.ones((n, 3)), ValueError, "`X` has 3 columns where `inducing` has 2"),
        (np.ones((S, n, 3)), ValueError, "`X` has 3 columns where `inducing` has 2"),
        (np.ones((2, n, D)), ValueError, r"`X` has shape \(2, 4, 2\), points of 2 paths, .* are 3"),
        (np.ones(n), ValueError, r"`X` must have shape \(N, D\).*\(3, n, D\).*X\[:, None\]"),
        (np.ones((1, S, n, D)), ValueError, r"`X` must have shape \(N, D\)"),
        (np.ones((0, D)), ValueError, "`X` holds no points"),
        (np.ones((S, 0, D)), ValueError, "`X` holds no points"),
        (np.ones((n, D), np.float32), TypeError, "`X` is float32 and the paths are float64"),
        (np.ones((n, D), np.float16), TypeError, "`X` is float16 and the paths are float64"),
        (np.full((n, D), np.nan), ValueError, "`X` contains nan"),
        (np.full((S, n, D), np.inf), ValueError, "`X` contains inf"),
        ("points", TypeError, "`X` must hold real numbers"),
        (None, TypeError, "`X` must hold real numbers"),
    ],
)
def test_points(rng, X, kind, message):
    paths = fs.sample_paths(svgp(rng), S, rng=0, **FEW)
    for call in (paths, paths.and_vjp, paths.and_grad):
        with pytest.raises(kind, match=message):
            call(X)


def test_points_of_other_models(rng):
    k = fs.RBF(1.2, np.array([0.9, 1.4]))
    basis = fs.qsgp.RandomFourier(k, num_features=4)
    paths = fs.sample_paths(fs.QSGP(basis, weights(rng, 4, 1), fs.Gaussian(0.1)), S, rng=0)
    with pytest.raises(ValueError, match=r"`lengthscales` has shape \(2,\), .* have D = 3"):
        paths(np.ones((n, 3)))


def test_cotangents(rng):
    paths = fs.sample_paths(svgp(rng, P=2), S, rng=0, **FEW)
    X = rng.standard_normal((n, D))
    values, vjp = paths.and_vjp(X)
    with pytest.raises(
        ValueError, match=r"`values_bar` must have the shape \(3, 4, 2\) .*\(3, 4\)"
    ):
        vjp(values[..., 0])
    with pytest.raises(ValueError, match="`values_bar` contains nan"):
        vjp(values * np.nan)
    with pytest.raises(TypeError, match="`values_bar` must hold real numbers"):
        vjp("x")
    np.testing.assert_array_equal(vjp(np.ones(values.shape, int)), vjp(np.ones(values.shape)))
    with pytest.raises(ValueError, match="and_grad is for one output, and these paths have 2"):
        paths.and_grad(np.stack([X] * S))
    one = fs.sample_paths(svgp(rng), S, rng=0, **FEW)
    with pytest.raises(
        ValueError, match=r"`X` must have shape \(S, n, D\).*\(4, 2\).*broadcast_to"
    ):
        one.and_grad(X)


@pytest.mark.parametrize("index", [3, -4, slice(3, None), [], [5], "x", [[0, 1]], 1.5, None])
def test_indices(rng, index):
    paths = fs.sample_paths(svgp(rng), S, rng=0, **FEW)
    with pytest.raises(IndexError, match="paths"):
        paths[index]


def test_numbers_beyond_any_memory(rng):
    with pytest.raises(ValueError, match="`num_features` must be at most 1000000000, got 46116860"):
        fs.sample_paths(svgp(rng), S, num_features=2**62)
    with pytest.raises(MemoryError):
        fs.sample_paths(svgp(rng), 10**12, **FEW)
