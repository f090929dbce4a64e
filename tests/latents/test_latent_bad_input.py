"""Messages for wrong models of several latent functions and wrong data: each names the field."""

import numpy as np
import pytest
from support.latent_problems import D, M, N, P, layer, problem

import fastsvgp as fs
from fastsvgp.layers import Layer, ParallelLayers
from fastsvgp.likelihoods import HeteroskedasticGaussian, RobustMax
from fastsvgp.means import ConstantMean

HETERO = HeteroskedasticGaussian()
PARTS = "covariance", "inducing", "posterior"
WHITE = fs.Whitened(np.zeros(M), np.eye(M))


def one(**changes):
    rng = np.random.default_rng(0)
    return fs.replace(layer(rng), **changes)


def three(likelihood=None, mixing=None, **changes):
    """Return a model of three layers."""
    parts = {"latents": (one(),) * 3, "likelihood": likelihood or fs.Gaussian(0.3)} | changes
    return fs.MultiGP(**parts, mixing=mixing)


def with_third(**changes):
    return three(latents=(one(), one(), one(**changes)))


W = np.ones((P, 3))
COLUMNS = fs.RBF(1.0, np.ones(3)), np.zeros((M, 3))
MODELS = {  # a model, the error, and its message
    "no latents": (three(latents=()), TypeError, "`latents` must be a tuple .* a tuple of 0"),
    "a list": (three(latents=[one()]), TypeError, "`latents` must be a tuple .* a list of 1"),
    "one layer": (three(latents=one()), TypeError, "`latents` must be a tuple .*, got a Layer"),
    "no layer": (three(latents=(one(), fs.RBF(), one())), TypeError, "must be a .*Layer, got RBF"),
    "a class": (
        three(latents=(Layer,)),
        TypeError,
        r"`latents\[0\]` must be a fastsvgp.layers.Layer, got Layer, a class",
    ),
    "a part of a layer": (
        with_third(covariance=None),
        TypeError,
        r"`latents\[2\]`: `covariance` of the model must be .*, got NoneType",
    ),
    "no posterior": (with_third(posterior=3), TypeError, r"`latents\[2\]`: `posterior` .* got int"),
    "a wrong mean of a layer": (with_third(mean=0.0), TypeError, r"`latents\[2\]`: `mean` .*float"),
    "sizes of a layer": (
        with_third(posterior=fs.Whitened(np.zeros(5), np.eye(5))),
        ValueError,
        r"`latents\[2\]`: `posterior` has mean \(5,\)",
    ),
    "no likelihood": (three(likelihood=fs.RBF()), TypeError, "`likelihood` .* got RBF"),
    "a wrong mean": (three(mean=1.0), TypeError, "`mean` .* got float"),
    "the size of the mean": (
        three(mean=ConstantMean(np.zeros(2))),
        ValueError,
        r"ConstantMean: `value` has shape \(2,\)",
    ),
    "columns of Z": (
        with_third(covariance=COLUMNS[0], inducing=COLUMNS[1]),
        ValueError,
        r"inducing inputs of `latents\[2\]` have 3 columns, and those of `latents\[0\]` 2",
    ),
    "no inducing": (
        with_third(inducing=None),
        TypeError,
        "`latents.2.inducing` is None, and so is `inducing`",
    ),
    "inducing that no layer takes": (
        three(inducing=np.zeros((M, D))),
        TypeError,
        "`inducing` is given, but every layer has inducing inputs",
    ),
    "shared inducing of another size": (
        three(latents=(one(), one(), one(inducing=None)), inducing=np.zeros((M + 1, D))),
        ValueError,
        r"`latents\[2\]`: ",
    ),
    "a vector": (three(mixing=np.ones(3)), ValueError, r"`mixing` must have shape \(J, L\), got"),
    "an empty mixing": (three(mixing=np.ones((0, 3))), ValueError, r"`mixing` must have shape"),
    "columns of the mixing": (
        three(mixing=np.ones((P, 2))),
        ValueError,
        r"`mixing` has 2 columns \(\(3, 2\)\), and the layers have 3 outputs",
    ),
    "words": (three(mixing="W"), TypeError, "`mixing`"),
    "NaN in the mixing": (three(mixing=np.where(W > 0, np.nan, W)), ValueError, "`mixing`"),
    "a tuple for one function": (
        three(mixing=(np.ones((P, 1)), np.ones((P, 2)))),
        ValueError,
        "`mixing` is a tuple of 2 matrices, and Gaussian reads one function",
    ),
    "one matrix for two functions": (
        three(HETERO, np.ones((2 * P, 3))),
        ValueError,
        r"`mixing` must be a tuple of 2 matrices \(P, L_k\) .* got one matrix: .*independent",
    ),
    "three matrices for two functions": (
        three(HETERO, (np.ones((2, 1)),) * 3),
        ValueError,
        "`mixing` must be a tuple of 2 matrices .* got 3 of them",
    ),
    "matrices of different rows": (
        three(HETERO, (np.ones((4, 2)), np.ones((2, 1)))),
        ValueError,
        r"the matrices of `mixing` have \[4, 2\] rows",
    ),
    "matrices of different rows, an odd number": (
        three(HETERO, (np.ones((3, 2)), np.ones((2, 1)))),
        ValueError,
        r"the matrices of `mixing` have \[3, 2\] rows",
    ),
    "matrices in one array": (
        three(HETERO, np.ones((2, P, 3))),
        ValueError,
        r"`mixing` must have shape \(J, L\), got \(2, 3, 3\); give several matrices as a tuple",
    ),
    "an odd number of functions": (
        three(HETERO),
        ValueError,
        "reads 2 functions of each output, and there are 3 functions",
    ),
    "mixed classes": (
        three(fs.Softmax(num_classes=3), W),
        ValueError,
        "`mixing` must be None with a Softmax likelihood: .*independent",
    ),
    "the number of classes": (
        three(RobustMax(num_classes=4)),
        ValueError,
        "RobustMax with 4 classes reads as many functions, and `latents` have 3 outputs",
    ),
    "a setting of the likelihood": (
        three(fs.StudentT(0.3, df=-1.0)),
        ValueError,
        "`likelihood.df`|`df`",
    ),
    "a negative variance": (three(fs.Gaussian(-1.0)), ValueError, "`likelihood.variance`"),
    "a negative variance of a layer": (
        with_third(covariance=fs.RBF(-1.0, np.ones(D))),
        ValueError,
        "`latents.2.covariance.variance`",
    ),
}


@pytest.mark.parametrize("case", MODELS)
def test_wrong_models(rng, case):
    model, error, message = MODELS[case]
    X, Y = rng.uniform(-2, 2, (N, D)), rng.standard_normal((N, P))
    if case in ("mixed classes", "the number of classes"):
        Y = rng.integers(0, 3, N)
    for call in (
        lambda: fs.elbo(model, X, Y),
        lambda: fs.elbo_and_grad(model, X, Y),
        lambda: fs.predict_f(model, X),
        lambda: fs.bounds.kl_term_and_grad(model),
        lambda: fs.sample_f(model, X),
        lambda: fs.natural_step(model, X, Y),
        lambda: fs.sites.natural_steps(model, X, Y),
        lambda: fs.optim.natural_step_and_grad(model, X, Y),
        lambda: fs.em(model, X, Y),
        lambda: fs.optim.update_inverse_factor(model),
        lambda: fs.fit(model, X, Y, steps=1),
    ):
        with pytest.raises(error, match=message):
            call()


GOOD = three(mixing=W)
PAIR = three(HETERO, latents=(one(), one()))
TARGETS = {
    "a vector": (GOOD, np.zeros(N), ValueError, r"`Y` has shape \(11,\), and 3 functions"),
    "two columns": (GOOD, np.zeros((N, 2)), ValueError, r"targets of shape \(11, 3\)"),
    "two columns for one": (PAIR, np.zeros((N, 2)), ValueError, "`Y`"),
    "rows": (GOOD, np.zeros((N - 1, P)), ValueError, "`Y`"),
    "NaN": (
        GOOD,
        np.where(np.eye(N, P), np.nan, 0),
        ValueError,
        r"`Y` contains nan at index \(0, 0\)",
    ),
    "counts below zero": (three(fs.Poisson()), -np.ones((N, P)), ValueError, "`Y`"),
    "labels": (
        fs.MultiGP((one(), one(), one()), fs.Softmax(num_classes=3)),
        np.full(N, 3),
        ValueError,
        "`Y`",
    ),
    "text": (GOOD, np.full((N, P), "a"), TypeError, "`Y`"),
    "complex": (GOOD, np.full((N, P), 1j), TypeError, "`Y`"),
}


@pytest.mark.parametrize("case", TARGETS)
def test_wrong_targets(rng, case):
    model, Y, error, message = TARGETS[case]
    X = rng.uniform(-2, 2, (N, D))
    for call in (fs.elbo, fs.elbo_and_grad, fs.natural_step):
        with pytest.raises(error, match=message):
            call(model, X, Y)
    with pytest.raises(error, match=message.replace("`Y`", "`Ys`")):
        fs.predict_log_density(model, X, Y)


def test_integer_targets_of_two_functions_are_numbers(rng):
    """As of a Gaussian likelihood: integers are read as floats."""
    X, Y = rng.uniform(-2, 2, (N, D)), rng.integers(0, 3, N)
    assert fs.elbo(PAIR, X, Y) == fs.elbo(PAIR, X, Y.astype(float))


def test_nan_needs_the_weight_zero(rng):
    X, Y = rng.uniform(-2, 2, (N, D)), rng.standard_normal((N, P))
    Y[3, 1] = np.nan
    weights = np.ones((N, P))
    weights[3, 1] = 0
    assert np.isfinite(fs.elbo(GOOD, X, Y, weights=weights))
    with pytest.raises(ValueError, match=r"`Y` contains nan at index \(3, 1\)"):
        fs.elbo(GOOD, X, Y, weights=np.ones((N, P)))
    with pytest.raises(ValueError, match="`weights`"):
        fs.elbo(GOOD, X, Y, weights=np.ones((N, P + 1)))
    with pytest.raises(ValueError, match="`weights`"):
        fs.elbo(GOOD, X, Y, weights=-weights)


CALLS = {
    "wrt of no layer": (
        lambda m, X, Y: fs.elbo_and_grad(m, X, Y, wrt=("latents.3",)),
        ValueError,
        "`wrt` names 'latents.3'",
    ),
    "wrt of no field": (
        lambda m, X, Y: fs.elbo_and_grad(m, X, Y, wrt=("latents.0.lengthscales",)),
        ValueError,
        "`wrt` names 'latents.0.lengthscales'.*did you mean latents.0.covariance.parts.0.len",
    ),
    "wrt of an SVGP": (
        lambda m, X, Y: fs.elbo_and_grad(m, X, Y, wrt=("inducing", "posterior")),
        ValueError,
        "this model; did you mean latents.0.posterior or latents.1.posterior",
    ),
    "wrt of nothing that is there": (
        lambda m, X, Y: fs.elbo_and_grad(m, X, Y, wrt="zzz"),
        ValueError,
        "this model; its fields are latents, likelihood, mixing.*; fastsvgp.records.leaves lists"
        " all",
    ),
    "fixed of no layer": (
        lambda m, X, Y: fs.em(m, X, Y, fixed="latents.9.covariance"),
        ValueError,
        "`fixed` names 'latents.9.covariance'.* did you mean latents.0.covariance or latents",
    ),
    "columns of X": (
        lambda m, X, Y: fs.elbo(m, X[:, :1], Y),
        ValueError,
        "`X` has 1 columns where `latents.0.inducing` has 2",
    ),
    "two covariances": (
        lambda m, X, Y: fs.predict_f(m, X, full_cov=True, full_output_cov=True),
        ValueError,
        "`full_cov` and `full_output_cov` together",
    ),
    "no flag": (
        lambda m, X, Y: fs.predict_f(m, X, full_output_cov=3),
        TypeError,
        "`full_output_cov`",
    ),
    "a chunk of no rows": (
        lambda m, X, Y: fs.predict_f(m, X, full_output_cov=True, chunk_size=0),
        ValueError,
        "`chunk_size`",
    ),
    "probes": (
        lambda m, X, Y: fs.elbo(m, X, Y, probes=3),
        TypeError,
        "`probes` is no random quantity of a Whitened posterior",
    ),
    "step size": (
        lambda m, X, Y: fs.natural_step(m, X, Y, step_size=0.0),
        ValueError,
        "^`step_size` must be positive, got 0",
    ),
    "several step sizes": (
        lambda m, X, Y: fs.sites.natural_steps(m, X, Y, step_size=2.0),
        ValueError,
        "`step_size` must be above 0 and at most 1, got 2",
    ),
    "number of steps": (
        lambda m, X, Y: fs.sites.natural_steps(m, X, Y, steps=-1),
        ValueError,
        "`steps`",
    ),
    "num_data": (
        lambda m, X, Y: fs.elbo(m, X, Y, num_data=3),
        ValueError,
        "`num_data` is 3, smaller than the batch",
    ),
    "an empty batch": (lambda m, X, Y: fs.elbo(m, X[:0], Y[:0]), ValueError, "`X` is an empty"),
    "jitter": (lambda m, X, Y: fs.elbo(m, X, Y, jitter=-1.0), ValueError, "`jitter`"),
    "a likelihood direction": (
        lambda m, X, Y: fs.bounds.lsvgp_direction(m, X, Y),
        TypeError,
        "lsvgp_direction: `model` must be a .*, got MultiGP",
    ),
    "a conversion": (
        lambda m, X, Y: fs.posteriors.convert(m, fs.posteriors.DualSites),
        TypeError,
        "convert: `model` must be a .*, got MultiGP",
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_wrong_calls(rng, case):
    call, error, message = CALLS[case]
    model, X, Y, _ = problem(rng, "lmc")
    with pytest.raises(error, match=message):
        call(model, X, Y)


def test_full_output_cov_is_an_option_of_a_multi_gp():
    svgp = fs.SVGP(fs.RBF(), np.zeros((M, D)), WHITE, fs.Gaussian(0.1))
    with pytest.raises(TypeError, match="`full_output_cov` is an option of MultiGP"):
        fs.predict_f(svgp, np.zeros((2, D)), full_output_cov=True)


def test_a_posterior_without_natural_steps_names_its_layer(rng):
    model = with_third(posterior=fs.posteriors.LikelihoodForm(np.zeros(M), np.ones(M)))
    X, Y = rng.uniform(-2, 2, (N, D)), rng.standard_normal((N, P))
    said = r"`latents\[2\]`: natural_step: a LikelihoodForm posterior cannot take natural"
    for mixing in (None, W):
        whole = fs.replace(model, mixing=mixing)
        with pytest.raises(TypeError, match=said):
            fs.natural_step(whole, X, Y)
        with pytest.raises(TypeError, match=said):
            fs.optim.natural_step_and_grad(whole, X, Y)
        with pytest.raises(TypeError, match="LikelihoodForm"):
            fs.sites.natural_steps(whole, X, Y)


def test_a_singular_covariance_names_its_layer(rng):
    model = with_third(covariance=fs.RBF(1.0, np.ones(D)), inducing=np.zeros((M, D)))
    X, Y = rng.uniform(-2, 2, (N, D)), rng.standard_normal((N, P))
    said = r"`latents\[2\]`: `inducing\[1\]` and `inducing\[0\]`"
    for call in (fs.elbo, fs.elbo_and_grad, fs.natural_step, fs.sites.natural_steps):
        with pytest.raises(fs.NotPositiveDefinite, match=said):
            call(model, X, Y, jitter=0.0)
    with pytest.raises(fs.NotPositiveDefinite, match=said):
        fs.predict_f(model, X, jitter=0.0)


def test_samples_at_equal_rows_name_the_rows_and_the_layer(rng):
    twice = np.ones((3, D))
    said = r"`Xs\[1\]` and `Xs\[0\]` are the same inputs.*"
    layer = r"`latents\[0\]`: the 3 x 3 matrix of batch entry \(0,\) is not"
    for model, message in (
        (GOOD, said + layer),
        (fs.DeepGP((ParallelLayers((one(), one())), one()), fs.Gaussian(0.1)), said + layer),
        (fs.SVGP(*(getattr(one(), name) for name in PARTS), fs.Gaussian(0.1)), said),
    ):
        with pytest.raises(fs.NotPositiveDefinite, match=message):
            fs.sample_f(model, twice, jitter=0.0, rng=0)


def test_a_mixing_of_lists_is_a_matrix():
    rows = fs.MultiGP((one(),) * 2, fs.Gaussian(0.1), [[1, 2], [3, 4.0]])
    np.testing.assert_array_equal(rows.mixing, [[1.0, 2.0], [3.0, 4.0]])
    rows = fs.MultiGP((one(),) * 2, fs.Gaussian(0.1), ((1, 2), (3, 4.0)))
    np.testing.assert_array_equal(rows.mixing, [[1.0, 2.0], [3.0, 4.0]])
    for given in ([[1, 2]], ((1, 2),)):
        assert ParallelLayers((one(),) * 2, given).mixing.shape == (1, 2)
    two = fs.MultiGP((one(),) * 3, HETERO, ([[1, 2]], [[3.0]]))
    assert [W.shape for W in two.mixing] == [(1, 2), (1, 1)]


@pytest.mark.parametrize("given", [[W, W[:, :1]], [W.tolist(), W[:, :1].tolist()], [W, W], [W]])
def test_a_list_of_matrices_is_a_tuple(given):
    mixing = fs.MultiGP((one(),) * 3, HETERO, given).mixing
    assert isinstance(mixing, tuple)
    for of_list, of_tuple in zip(mixing, given, strict=True):
        np.testing.assert_array_equal(of_list, of_tuple)
    assert isinstance(ParallelLayers((one(),) * 3, given).mixing, tuple)  # refused in a call


HIDDEN = {
    "no latents": ({"latents": ()}, TypeError, r"`layers\[0\]`: `latents` must be a tuple"),
    "a tuple of matrices": (
        {"mixing": (np.ones((D, 2)),)},
        TypeError,
        r"`layers\[0\]`: `mixing` must be one matrix",
    ),
    "columns of the mixing": (
        {"mixing": np.ones((D, 3))},
        ValueError,
        r"`layers\[0\]`: `mixing` has 3 columns",
    ),
    "outputs": (
        {"mixing": np.ones((D + 1, 2))},
        ValueError,
        r"`layers\[0\]` has 3 outputs, but the inducing inputs of `layers\[1\]` are for 2",
    ),
    "a layer of its": (
        {"latents": (one(), one(posterior=None))},
        TypeError,
        r"`layers\[0\]`: `latents\[1\]`: `posterior`",
    ),
}


@pytest.mark.parametrize("case", HIDDEN)
def test_wrong_parallel_layers(rng, case):
    changes, error, message = HIDDEN[case]
    hidden = fs.replace(ParallelLayers((one(), one()), np.ones((D, 2))), **changes)
    deep = fs.DeepGP((hidden, one()), fs.Gaussian(0.1))
    with pytest.raises(error, match=message):
        fs.elbo(deep, rng.uniform(-2, 2, (N, D)), np.zeros(N), rng=0)


@pytest.mark.parametrize("likelihood", [HETERO, fs.Softmax(num_classes=2)], ids=["two", "classes"])
def test_a_last_layer_below_several_functions_has_no_mixing(rng, likelihood):
    """The bound would take mixed functions to be independent."""
    X, Y = rng.uniform(-2, 2, (N, D)), np.zeros(N, int)
    last = ParallelLayers((one(), one()))
    assert np.isfinite(fs.elbo(fs.DeepGP((last,), likelihood), X, Y, rng=0))
    mixed = fs.DeepGP((fs.replace(last, mixing=np.eye(2)),), likelihood)
    with pytest.raises(ValueError, match=r"`layers\[0\]`: `mixing` must be None with a"):
        fs.elbo(mixed, X, Y, rng=0)


def test_a_multi_gp_is_no_layer(rng):
    deep = fs.DeepGP((GOOD, one()), fs.Gaussian(0.1))
    with pytest.raises(
        TypeError, match=r"`layers\[0\]` must be a fastsvgp.layers.Layer, got MultiGP"
    ):
        fs.elbo(deep, rng.uniform(-2, 2, (N, D)), np.zeros(N), rng=0)


def test_codes_of_inducing_inputs_are_named_by_one_path():
    outputs = fs.covariances.Coregion(np.ones((3, 1)), own=np.full(3, 0.1))
    layer = Layer(outputs, np.array([[0.0], [1.5]]), fs.Whitened(np.zeros(2), np.eye(2)))
    model = fs.MultiGP((layer, layer), HETERO)
    with pytest.raises(ValueError, match=r"^`latents\[0\].inducing` contains 1.5 in") as caught:
        fs.elbo(model, np.array([[0.0], [1.0]]), np.zeros(2))
    assert caught.value.name == "latents[0].inducing" and caught.value.index == (1, 0)
