"""Contract of every likelihood; a new likelihood adds a row to TABLE."""

import numpy as np
import pytest
from support.looped import looped
from support.numerics import assert_as_accurate_as, five_point

from fastsvgp import likelihoods as lk
from fastsvgp.records import Marginals, leaves, replace


def real(rng, shape):
    return 1.5 * rng.standard_normal(shape)


def label(rng, shape):
    return rng.integers(0, 2, shape).astype(float)


def count(rng, shape):
    return rng.poisson(2.0, shape).astype(float)


def classes(rng, shape):
    return rng.integers(0, 4, shape[-1:])


def grade(rng, shape):
    return rng.integers(0, 4, shape).astype(float)


def size(rng, shape):
    return rng.gamma(2.0, 1.0, shape)


def share(rng, shape):
    return rng.beta(2.0, 3.0, shape)


def beside(column, of_others):
    """Targets of two columns."""
    return lambda rng, shape: np.stack([column(rng, shape), of_others(rng, shape)])


def trials(rng, shape):
    n = rng.integers(1, 9, shape)
    return np.stack([rng.binomial(n, 0.4), n]).astype(float)


def side(rng, shape):
    return rng.integers(-1, 2, shape).astype(float)


TABLE = {
    "gaussian": (lk.Gaussian(0.3), real),
    "probit": (lk.BernoulliProbit(), label),
    "logit": (lk.BernoulliLogit(num_nodes=31), label),
    "poisson": (lk.Poisson(exposure=1.7), count),
    "laplace": (lk.Laplace(0.6), real),
    "student_t": (lk.StudentT(0.7, df=3.0), real),
    "robust_max": (lk.RobustMax(num_classes=4), classes),
    "softmax": (lk.Softmax(num_classes=4, num_samples=32), classes),
    "heteroskedastic": (lk.HeteroskedasticGaussian(), real),
    "negative_binomial": (lk.HeteroskedasticNegativeBinomial(num_nodes=12), count),
    "negative_binomial, dispersion": (lk.NegativeBinomial(1.7, exposure=1.3), count),
    "negative_binomial, exposures": (
        lk.NegativeBinomial(30.0, exposure="column"),
        beside(count, size),
    ),
    "poisson, exposures": (lk.Poisson(exposure="column"), beside(count, size)),
    "binomial": (lk.Binomial(), trials),
    "binomial, probit": (lk.Binomial(link="probit"), trials),
    "gamma": (lk.Gamma(2.5), size),
    "exponential": (lk.Exponential(), size),
    "ordinal": (lk.Ordinal(-0.7, np.array([0.8, 1.3])), grade),
    "known_noise": (lk.KnownNoise(0.3), beside(real, size)),
    "known_noise, all of it": (lk.KnownNoise(0.3, extra=False), beside(real, size)),
    "censored": (lk.Censored(0.6), beside(real, side)),
    "beta": (lk.Beta(5.0), share),
    "zero_inflated": (lk.ZeroInflatedPoisson(0.3), count),
}
DISCRETE = {
    "probit": (0, 1),
    "logit": (0, 1),
    "robust_max": (0, 1, 2, 3),
    "softmax": (0, 1, 2, 3),
    "ordinal": (0, 1, 2, 3),
}
# E exp(f) or E exp(-f) can overflow
INFINITE = {"poisson", "poisson, exposures", "gamma", "exponential", "zero_inflated"}
COLUMNS = {name for name, (likelihood, _) in TABLE.items() if len(likelihood.target_columns) > 1}
each = pytest.mark.parametrize("name", TABLE)


def problem(name, rng, shape):
    likelihood, targets = TABLE[name]
    if likelihood.num_latent is not None:
        shape = (likelihood.num_latent, shape[-1])
    K = likelihood.latents_per_output
    of_f = shape if K == 1 else (K, *shape)
    f = Marginals(rng.standard_normal(of_f), 0.1 + rng.gamma(1.0, 1.0, of_f))
    Y = targets(rng, shape)
    likelihood.check_settings()
    likelihood.check_targets(Y)
    assert Y.shape[: Y.ndim - len(shape)] == (() if name not in COLUMNS else (2,))
    return likelihood, Y, f


def several(likelihood):
    """Whether the leading axis of f holds the functions of one target."""
    return likelihood.num_latent is not None or likelihood.latents_per_output > 1


@each
@looped("shape", [(1,), (3,), (17,), (2, 3), (3, 17), (1, 1)])
def test_derivatives_are_those_of_the_value(name, shape, rng):
    likelihood, Y, f = problem(name, rng, shape)
    ell, f_bar, likelihood_bar = likelihood.expected_log_prob(Y, f)
    assert type(ell) is float and f_bar.mean.shape == f_bar.var.shape == f.mean.shape
    assert type(likelihood_bar) is type(likelihood)

    if getattr(likelihood, "num_nodes", 20) is None:  # differences must not cross two rules;
        likelihood = replace(likelihood, num_nodes=20)  # test_wide_marginals.py has the other
        ell, f_bar, likelihood_bar = likelihood.expected_log_prob(Y, f)

    def check(value, reverse):
        assert abs(five_point(value) - reverse) <= 1e-8 * max(1, abs(reverse))

    for _ in range(3):
        d, e = (
            rng.standard_normal(f.mean.shape),
            rng.standard_normal(f.mean.shape) * np.minimum(f.var, 1),
        )
        check(
            lambda s, d=d: likelihood.expected_log_prob(Y, Marginals(f.mean + s * d, f.var))[0],
            (f_bar.mean * d).sum(),
        )
        check(
            lambda s, e=e: likelihood.expected_log_prob(Y, Marginals(f.mean, f.var + s * e))[0],
            (f_bar.var * e).sum(),
        )
    for path, kind, value in leaves(likelihood):
        assert kind in ("positive", "unit") or path == "first"
        d = value * rng.standard_normal(np.shape(value))
        check(
            lambda s, p=path, v=value, d=d: replace(likelihood, **{p: v + s * d}).expected_log_prob(
                Y, f
            )[0],
            np.sum(d * getattr(likelihood_bar, path)),
        )


@each
def test_value_alone_is_the_same_value(name, rng):
    likelihood, Y, f = problem(name, rng, (17,))
    assert likelihood.expected_log_prob(Y, f, need=False) == (
        likelihood.expected_log_prob(Y, f)[0],
        None,
        None,
    )


@each
@looped("shape", [(0,), (2, 0)])
def test_empty_data_sum_to_zero(name, shape, rng):
    likelihood, Y, f = problem(name, rng, shape)
    ell, f_bar, likelihood_bar = likelihood.expected_log_prob(Y, f)
    assert ell == 0 and f_bar.mean.shape == f_bar.var.shape == f.mean.shape
    assert all(np.all(value == 0) for _, _, value in leaves(likelihood_bar))
    assert likelihood.predict_log_density(Y, f).shape == (0,)
    predicted = f.mean.shape if likelihood.latents_per_output == 1 else shape
    assert likelihood.predict_mean_and_var(f)[0].shape == predicted


@each
def test_a_sum_over_data(name, rng):
    likelihood, Y, f = problem(name, rng, (2, 17))
    ell, f_bar, _ = likelihood.expected_log_prob(Y, f)
    parts = [
        likelihood.expected_log_prob(Y[..., p], Marginals(f.mean[..., p], f.var[..., p]))
        for p in (slice(0, 5), slice(5, 17))
    ]
    np.testing.assert_allclose(ell, sum(p[0] for p in parts), rtol=1e-13)
    np.testing.assert_allclose(
        f_bar.mean, np.concatenate([p[1].mean for p in parts], axis=-1), rtol=1e-12, atol=1e-15
    )


@each
@looped("shape", [(17,), (3, 17)])
def test_whole_weights_are_repeated_data(name, shape, rng):
    likelihood, Y, f = problem(name, rng, shape)
    w = rng.integers(0, 4, Y.shape if name not in COLUMNS else Y.shape[1:])

    def often(a):
        lead = a.shape[: a.ndim - w.ndim]
        return np.repeat(a.reshape(*lead, w.size), w.ravel(), axis=-1)

    ell, f_bar, likelihood_bar = likelihood.expected_log_prob(Y, f, weights=w.astype(float))
    due, bars, own = likelihood.expected_log_prob(often(Y), Marginals(often(f.mean), often(f.var)))
    np.testing.assert_allclose(ell, due, rtol=1e-12)
    assert likelihood.expected_log_prob(Y, f, need=False, weights=w.astype(float)) == (
        ell,
        None,
        None,
    )
    for name in ("mean", "var"):
        one, each_time = getattr(f_bar, name), getattr(bars, name)
        np.testing.assert_allclose(
            often(one), often(np.broadcast_to(w, one.shape)) * each_time, rtol=1e-12
        )
        assert (one[..., w == 0] == 0).all()
    for (path, _, one), (_, _, other) in zip(leaves(likelihood_bar), leaves(own), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, err_msg=path)


@each
@looped("mean", [-1e4, -750.0, 750.0, 1e4])
@looped("var", [0.0, 1.0, 1e4])
def test_functions_of_weight_zero_do_not_count(name, mean, var, rng):
    """Also where the expectation of an exponential is infinite there."""
    likelihood, Y, f = problem(name, rng, (9,))
    far = np.arange(9) % 2 == 1
    w = np.where(far, 0.0, 1.5)
    wild = Marginals(np.where(far, mean, f.mean), np.where(far, var, f.var))
    ell, f_bar, own = likelihood.expected_log_prob(Y, wild, weights=w)
    due, due_bar, due_own = likelihood.expected_log_prob(Y, f, weights=w)
    assert ell == pytest.approx(due, rel=1e-13)
    for one, other in ((f_bar.mean, due_bar.mean), (f_bar.var, due_bar.var)):
        assert (one[..., far] == 0).all()
        np.testing.assert_allclose(one, other, rtol=1e-13)
    for (path, _, one), (_, _, other) in zip(leaves(own), leaves(due_own), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, err_msg=path)


@each
def test_strides_and_read_only_inputs(name, rng):
    likelihood, Y, f = problem(name, rng, (3, 34))
    thin, dense = (
        (copy(Y[..., ::2]), Marginals(copy(f.mean[..., ::2]), copy(f.var[..., ::2])))
        for copy in (lambda a: a, np.array)
    )
    for a in (Y, f.mean, f.var):
        a.flags.writeable = False
    for result in (
        lambda Y, f: likelihood.expected_log_prob(Y, f)[1].mean,
        lambda Y, f: likelihood.expected_log_prob(Y, f)[1].var,
        lambda Y, f: likelihood.predict_mean_and_var(f)[1],
        lambda Y, f: likelihood.predict_log_density(Y, f),
    ):
        np.testing.assert_allclose(result(*thin), result(*dense), rtol=1e-13, atol=1e-15)


@each
def test_float32_is_as_good_as_its_inputs(name, rng):
    likelihood, Y, f = problem(name, rng, (2, 65))
    small = Marginals(f.mean.astype(np.float32), f.var.astype(np.float32))
    big = Marginals(small.mean.astype(float), small.var.astype(float))
    Y4 = Y.astype(np.float32) if Y.dtype == float else Y
    Y = Y4.astype(Y.dtype)
    parameters = {path: np.asarray(v, np.float32)[()] for path, _, v in leaves(likelihood)}
    likelihood4 = replace(likelihood, **parameters)
    likelihood = replace(
        likelihood, **{path: v.astype(float)[()] for path, v in parameters.items()}
    )
    results = []
    for y, g, member in ((Y4, small, likelihood4), (Y, big, likelihood)):
        ell, f_bar, bar = member.expected_log_prob(y, g)
        own = [np.asarray(value) for _, _, value in leaves(bar)]
        mean, var = moments = member.predict_mean_and_var(g)
        results.append(
            [f_bar.mean, f_bar.var, *own, *moments, member.predict_log_density(y, g), ell]
        )
    squares = np.square(mean).max()  # in a variance they cancel
    np.testing.assert_allclose(results[0].pop(), results[1].pop(), rtol=4e-7)
    for fast, truth in zip(*results, strict=True):
        assert fast.dtype == np.float32 and truth.dtype == np.float64
        assert_as_accurate_as(
            fast, truth.astype(np.float32), truth, size=squares if truth is var else 0.0
        )


@each
@looped("dtype", [np.float64, np.float32])
@looped("size", [0.0, 1e3, 1e4])
@looped("var", [0.0, 1e-12, 1.0, 1e3])
def test_results_in_the_tails_are_not_nan(name, dtype, size, var, rng):
    """No NaN and no warning (an error here); infinite only if the mean of an exponential is."""
    likelihood, Y, f = problem(name, rng, (2, 17))
    mean = (size * np.sign(f.mean)).astype(dtype)
    f = Marginals(mean, np.full_like(mean, var))
    Y = Y.astype(dtype) if Y.dtype == float else Y
    ell, f_bar, likelihood_bar = likelihood.expected_log_prob(Y, f)
    outputs = [
        f_bar.mean,
        f_bar.var,
        *likelihood.predict_mean_and_var(f),
        likelihood.predict_log_density(Y, f),
    ]
    outputs += [value for _, _, value in leaves(likelihood_bar)]
    assert not any(np.isnan(x).any() for x in [ell, *outputs])
    if name not in INFINITE:
        assert np.isfinite(ell) and np.isfinite(f_bar.mean).all()


@each
def test_a_vanishing_variance_gives_the_log_density_itself(name, rng):
    likelihood, Y, f = problem(name, rng, (17,))
    sharp = Marginals(f.mean, np.zeros_like(f.var))
    np.testing.assert_allclose(
        likelihood.expected_log_prob(Y, sharp)[0],
        likelihood.predict_log_density(Y, sharp).sum(),
        rtol=1e-9,
        atol=1e-9,
    )


SMOOTH = [name for name in TABLE if name not in ("laplace", "robust_max")]


@pytest.mark.parametrize("name", SMOOTH)
def test_the_derivative_in_the_variance_has_its_limit(name, rng):
    """d/dvar tends to half the second derivative, at variance 0 and at rounding errors of 0."""
    likelihood, Y, f = problem(name, rng, (17,))
    zero = np.zeros_like(f.var)

    def slope(s):
        return likelihood.expected_log_prob(Y, Marginals(f.mean + s, zero))[1].mean

    if not several(likelihood):
        half = (8 * (slope(1e-3) - slope(-1e-3)) - (slope(2e-3) - slope(-2e-3))) / 24e-3
    else:
        half = np.empty_like(f.mean)
        for c in range(len(half)):
            e = 1e-3 * np.eye(len(half))[:, c : c + 1]
            half[c] = ((8 * (slope(e) - slope(-e)) - (slope(2 * e) - slope(-2 * e))) / 24e-3)[c]
    for var in (0.0, 1e-300, 1e-16, 1e-11, 1e-9):
        f_bar = likelihood.expected_log_prob(Y, Marginals(f.mean, np.full_like(zero, var)))[1]
        np.testing.assert_allclose(f_bar.var, half, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_densities_sum_to_one(name, rng):
    likelihood, _, f = problem(name, rng, (17,))
    p = sum(np.exp(likelihood.predict_log_density(np.full(17, y), f)) for y in DISCRETE[name])
    np.testing.assert_allclose(p, 1, rtol=1e-12)


def test_multi_class_means_are_the_predictive_probabilities(rng):
    for name in ("robust_max", "softmax"):
        likelihood, Y, f = problem(name, rng, (17,))
        p, var = likelihood.predict_mean_and_var(f)
        np.testing.assert_allclose(p.sum(axis=0), 1, rtol=1e-12)
        np.testing.assert_allclose(var, p * (1 - p))
        np.testing.assert_allclose(
            np.log(p[Y, np.arange(17)]), likelihood.predict_log_density(Y, f)
        )


@pytest.mark.parametrize("name", [name for name in TABLE if TABLE[name][0].num_latent is None])
def test_outputs_add_up(name, rng):
    likelihood, Y, f = problem(name, rng, (3, 17))
    each_output = [
        likelihood.predict_log_density(Y[..., p, :], Marginals(f.mean[..., p, :], f.var[..., p, :]))
        for p in range(3)
    ]
    found = likelihood.predict_log_density(Y, f)
    # the rule of sizes places its nodes for all data of a call
    rtol, atol = (1e-10, 1e-11) if name in ("gamma", "exponential") else (1e-12, 1e-13)
    np.testing.assert_allclose(found, sum(each_output), rtol=rtol, atol=atol)
