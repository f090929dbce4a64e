"""Data weights: integers repeat rows, 0 omits a row unread; gradients are those of the value."""

import itertools

import numpy as np
import pytest
from support.deep_problems import draws_for, problem as deep_problem
from support.gp_problems import lower_factor
from support.numerics import nine_point
from support.posterior_problems import EVERY, JITTER, PAIRS, ROWS

import fastsvgp as fs
from fastsvgp.likelihoods import layout

B, D, M = 23, 2, 6


def real(rng, shape):
    return 1.5 * rng.standard_normal(shape)


def label(rng, shape):
    return rng.integers(0, 2, shape)


TABLE = {  # likelihood, targets, outputs, what is no target
    "gaussian": (fs.Gaussian(0.3), real, (2,), np.nan),
    "probit": (fs.BernoulliProbit(), label, (), -7),
    "logit": (
        fs.BernoulliLogit(),
        lambda rng, shape: label(rng, shape).astype(float),
        (2,),
        np.nan,
    ),
    "poisson": (
        fs.Poisson(exposure=1.7),
        lambda rng, shape: rng.poisson(2.0, shape).astype(float),
        (2,),
        -0.5,
    ),
    "laplace": (fs.Laplace(0.6), real, (2,), np.inf),
    "student_t": (fs.StudentT(0.7, df=3.0), real, (), np.nan),
    "heteroskedastic": (fs.HeteroskedasticGaussian(), real, (4,), np.nan),
    "negative_binomial": (
        fs.HeteroskedasticNegativeBinomial(num_nodes=8),
        lambda rng, shape: rng.poisson(2.0, shape).astype(float),
        (2,),
        np.nan,
    ),
    "robust_max": (
        fs.RobustMax(num_classes=3),
        lambda rng, shape: rng.integers(0, 3, shape[:1]),
        (3,),
        99,
    ),
    "softmax": (
        fs.Softmax(num_classes=3, num_samples=32),
        lambda rng, shape: 1.0 * rng.integers(0, 3, shape[:1]),
        (3,),
        np.nan,
    ),
}
each = pytest.mark.parametrize("name", TABLE)


def problem(rng, name="gaussian"):
    """``(model, X, Y)``."""
    likelihood, targets, outputs, _ = TABLE[name]
    covariance, Z = fs.RBF(1.3, np.array([0.9, 1.2])), rng.uniform(-2, 2, (M, D))
    posterior = fs.Whitened(
        0.3 * rng.standard_normal((*outputs, M)), lower_factor(rng, *outputs, M, off=0.1)
    )
    model = fs.SVGP(
        covariance, Z, posterior, likelihood, None if name == "probit" else mean_of(outputs)
    )
    shape = B, *layout.outputs_of(likelihood, outputs)
    return model, rng.uniform(-2, 2, (B, D)), targets(rng, shape)


def mean_of(outputs):
    return fs.ConstantMean(np.linspace(0.1, 0.3, *outputs) if outputs else 0.2)


def counts(rng):
    """Return integer weights, some 0, and the repeated row numbers."""
    w = rng.permutation(np.arange(B) % 4)
    return w, np.repeat(np.arange(B), w)


def assert_close(found, expected, rtol=1e-10):
    """Records, arrays and numbers, each relative to its own size."""
    if isinstance(expected, tuple):
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other, rtol)
        return
    if not hasattr(expected, "_record_fields"):
        return np.testing.assert_allclose(
            found, expected, rtol=0, atol=rtol * np.max(np.abs(expected))
        )
    for (path, kind, one), (_, _, other) in zip(fs.leaves(found), fs.leaves(expected), strict=True):
        assert (one is None) == (other is None), path
        if other is not None:
            one, other = (
                (np.tril(one), np.tril(other)) if kind in ("tril", "symmetric") else (one, other)
            )
            np.testing.assert_allclose(
                one, other, rtol=0, atol=rtol * np.max(np.abs(other)), err_msg=path
            )


def summed(X_bar, rows):
    """Sum over repeated rows."""
    out = np.zeros((B, D))
    np.add.at(out, rows, X_bar)
    return out


def without(Y, w, name):
    """Replace targets of weight 0 by invalid values."""
    Y = Y.copy()
    Y[w == 0] = TABLE[name][3]
    return Y


@each
def test_whole_weights_are_repeated_rows(rng, name):
    model, X, Y = problem(rng, name)
    w, rows = counts(rng)
    Y = without(Y, w, name)
    for bound in (fs.elbo_and_grad, fs.data_term_and_grad):
        value, grad, X_bar = bound(model, X, Y, weights=w, num_data=2.5 * B, inputs=True)
        expected, *bars = bound(model, X[rows], Y[rows], num_data=2.5 * len(rows), inputs=True)
        assert value == pytest.approx(expected, rel=1e-12)
        assert_close((grad, X_bar), (bars[0], summed(bars[1], rows)))
    assert fs.elbo(model, X, Y, weights=list(w), num_data=2.5 * B) == pytest.approx(
        fs.elbo(model, X[rows], Y[rows], num_data=2.5 * len(rows)), rel=1e-12
    )


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, (likelihood, _, outputs, _) in TABLE.items()
        if likelihood.num_latent is None and layout.outputs_of(likelihood, outputs)
    ],
)
def test_a_weight_for_each_target(rng, name):
    """The data term is a sum over outputs, each with its own column of weights."""
    model, X, Y = problem(rng, name)
    columns = [counts(rng) for _ in range(2)]
    W = np.stack([w for w, _ in columns], axis=1)
    same = fs.elbo_and_grad(model, X, Y, weights=np.repeat(W[:, :1], 2, axis=1), jitter=JITTER)
    assert_close(fs.elbo_and_grad(model, X, Y, weights=W[:, 0], jitter=JITTER), same, 1e-15)
    Y = without(Y, W, name)
    value, grad, X_bar = fs.data_term_and_grad(model, X, Y, weights=W, inputs=True)
    parts = []
    for p, (_, rows) in enumerate(columns):
        # its functions; an integer removes the axis
        p = p if model.likelihood.latents_per_output == 1 else slice(p, None, 2)
        q = fs.tree_map(lambda a, p=p: a[p], model.posterior)
        one = fs.replace(model, posterior=q, mean=fs.ConstantMean(model.mean.value[p]))
        column = len(parts)
        part, bars, X_part = fs.data_term_and_grad(one, X[rows], Y[rows, column], inputs=True)
        parts.append((part, bars, summed(X_part, rows)))
        assert_close(fs.tree_map(lambda a, p=p: a[p], grad.posterior), bars.posterior)
        assert grad.mean.value[p] == pytest.approx(bars.mean.value, rel=1e-10)
    assert value == pytest.approx(sum(part for part, *_ in parts), rel=1e-12)
    for field in ("covariance", "likelihood"):
        assert_close(
            getattr(grad, field),
            fs.tree_map(lambda a, b: a + b, *(getattr(bars, field) for _, bars, _ in parts)),
        )
    assert_close(
        (grad.inducing, X_bar),
        (sum(bars.inducing for _, bars, _ in parts), sum(bar for *_, bar in parts)),
    )


@each
def test_gradients_are_those_of_the_value(rng, name):
    """For weights of any size, in transformed parameters and in inputs."""
    model, X, Y = problem(rng, name)
    options = {"weights": rng.gamma(1.0, 1.0, Y.shape), "num_data": 3.0 * B, "jitter": JITTER}
    vector, unravel = fs.ravel(model)
    _, grad, X_bar = fs.elbo_and_grad(model, X, Y, inputs=True, **options)
    exact = unravel.pullback(vector, grad)
    for part in unravel.slices.values():
        d = np.zeros(unravel.size)
        d[part] = rng.standard_normal(d[part].shape)
        slope = nine_point(lambda s, d=d: fs.elbo(unravel(vector + s * d), X, Y, **options))
        assert exact @ d == pytest.approx(slope, rel=1e-8, abs=1e-8 * np.linalg.norm(exact))
    d = rng.standard_normal(X.shape)
    assert np.vdot(X_bar, d) == pytest.approx(
        nine_point(lambda s: fs.elbo(model, X + s * d, Y, **options)), rel=1e-8
    )


@each
def test_a_target_of_weight_zero_is_never_read(rng, name):
    model, X, Y = problem(rng, name)
    w, _ = counts(rng)
    results = [
        fs.elbo_and_grad(model, X, Z, weights=w, inputs=True) for Z in (Y, without(Y, w, name))
    ]
    assert_close(results[1], results[0], 1e-15)
    value, grad, _ = results[0]
    left = w > 0
    expected, bars, _ = fs.elbo_and_grad(model, X[left], Y[left], weights=w[left], inputs=True)
    assert value == pytest.approx(expected, rel=1e-12)
    assert_close(grad, bars)


def test_overflowing_rates_of_weight_zero_have_no_effect(rng):
    """An unread far input, at which Poisson's rate overflows, has no effect."""
    model, X, Y = problem(rng, "poisson")
    model = fs.replace(model, mean=fs.LinearMean(np.full((2, D), 1e3), np.zeros(2)))
    X, w = 1e-3 * X, np.ones(B)
    X[5], w[5] = 1.0, 0
    value, grad = fs.elbo_and_grad(model, X, Y, weights=w)
    left = w > 0
    expected, bars = fs.elbo_and_grad(model, X[left], Y[left])
    assert value == pytest.approx(expected, rel=1e-12)
    assert_close(grad, bars)


@each
def test_single_precision(rng, name):
    """The dtype is that of model and data, not of the weights."""
    model, X, Y = problem(rng, name)
    w = rng.gamma(1.0, 1.0, B)
    single = fs.tree_map(lambda a: np.asarray(a, np.float32)[()], model)
    y = Y.astype(np.float32) if Y.dtype == float else Y
    value, grad, X_bar = fs.elbo_and_grad(
        single, X.astype(np.float32), y, weights=w, inputs=True, jitter=1e-2
    )
    expected, bars, exact = fs.elbo_and_grad(model, X, Y, weights=w, inputs=True, jitter=1e-2)
    assert value == pytest.approx(expected, rel=1e-4)
    assert X_bar.dtype == np.float32 and all(
        bar.dtype == np.float32 for _, _, bar in fs.leaves(grad)
    )
    assert_close((grad, X_bar), (bars, exact), 2e-3)


@pytest.mark.parametrize("outputs", [(), (2,)])
@pytest.mark.parametrize("name", EVERY)
def test_every_posterior(rng, name, outputs):
    Z = rng.uniform(-2, 2, (M, D))
    inducing = fs.InducingPair(Z[:4].copy(), Z[4:].copy()) if name in PAIRS else Z
    covariance = fs.Matern52(1.2, np.ones(D))
    q = EVERY[name].make(rng, covariance.Kuu(inducing) + JITTER * np.eye(M), outputs)
    model = fs.SVGP(covariance, inducing, q, fs.Gaussian(0.3))
    w, rows = counts(rng)
    X, Y = rng.uniform(-2, 2, (B, D)), rng.standard_normal((B, *outputs))
    value, grad, X_bar = fs.elbo_and_grad(model, X, Y, weights=w, jitter=JITTER, inputs=True)
    expected, bars, exact = fs.elbo_and_grad(model, X[rows], Y[rows], jitter=JITTER, inputs=True)
    assert value == pytest.approx(expected, rel=1e-12)
    assert_close((grad, X_bar), (bars, summed(exact, rows)))


def test_a_long_batch_is_processed_in_chunks(rng, tune):
    model, X, Y = problem(rng)
    W = rng.gamma(1.0, 1.0, Y.shape)
    whole = fs.elbo_and_grad(model, X, Y, weights=W, inputs=True, jitter=JITTER)
    tune(bound_chunk_columns=5, bound_chunk_numbers=1)
    assert_close(fs.elbo_and_grad(model, X, Y, weights=W, inputs=True, jitter=JITTER), whole)


@pytest.mark.parametrize("columns", [None, 2])
def test_on_blocks(rng, columns):
    model, X, Y = problem(rng)
    model, w = fs.replace(model, mean=None), counts(rng)[0]
    w = w if columns is None else np.stack([w, w[::-1]], axis=1)
    Y = without(Y, w, "gaussian")
    blocks = model.covariance.blocks(model.inducing, X)
    options = {"weights": w, "num_data": 100, "jitter": JITTER}
    value, (_, *bars) = fs.elbo_and_grad_from_blocks(
        blocks, model.posterior, model.likelihood, Y, **options
    )
    expected, grad = fs.elbo_and_grad(model, X, Y, **options)
    assert value == pytest.approx(expected, rel=1e-13)
    assert_close(tuple(bars), (grad.posterior, grad.likelihood), 1e-12)
    with pytest.raises(ValueError, match="`weights` are all zero"):
        fs.elbo_and_grad_from_blocks(
            blocks, model.posterior, model.likelihood, Y, weights=np.zeros(B)
        )


def test_the_direction_of_the_likelihood_form(rng):
    Z, covariance = rng.uniform(-2, 2, (M, D)), fs.RBF(1.2, np.ones(D))
    q = ROWS["relaxed"].make(rng, covariance.Kuu(Z) + JITTER * np.eye(M), ())
    model = fs.SVGP(covariance, Z, q, fs.Gaussian(0.3))
    (w, rows), X, Y = counts(rng), rng.uniform(-2, 2, (B, D)), rng.standard_normal(B)
    value, grad = fs.likelihood_direction(model, X, Y, weights=w, jitter=JITTER)
    expected, bars = fs.likelihood_direction(model, X[rows], Y[rows], jitter=JITTER)
    assert value == pytest.approx(expected, rel=1e-12)
    assert_close(grad, bars)


@each
def test_natural_steps(rng, name):
    model, X, Y = problem(rng, name)
    w, rows = counts(rng)
    Y = without(Y, w, name)
    for monotone in (False, True):
        (ours, info), (due, other) = (
            fs.natural_step(model, *data, step_size=0.4, monotone=monotone, **options)
            for data, options in (((X, Y), {"weights": w}), ((X[rows], Y[rows]), {}))
        )
        assert_close(ours.posterior, due.posterior)
        assert (
            info.value == pytest.approx(other.value, rel=1e-12)
            and info.step_size == other.step_size
        )
    ours = fs.natural_step_and_grad(model, X, Y, step_size=0.4, weights=w)
    due = fs.natural_step_and_grad(model, X[rows], Y[rows], step_size=0.4)
    assert ours[2] == pytest.approx(due[2], rel=1e-11)
    assert_close((ours[0].posterior, ours[3]), (due[0].posterior, due[3]))


def assert_slope(rng, model, grad, value):
    """Compare with a difference in all transformed parameters at once."""
    vector, unravel = fs.ravel(model)
    exact, d = unravel.pullback(vector, grad), rng.standard_normal(unravel.size)
    assert exact @ d == pytest.approx(
        nine_point(lambda s: value(unravel(vector + s * d))), rel=1e-8
    )


@pytest.mark.parametrize("P", [None, 3])
@pytest.mark.parametrize("sets", [1, 2])
def test_collapsed_bounds(rng, sets, P):
    Z, X = rng.uniform(-2, 2, (M, D)), rng.uniform(-2, 2, (B, D))
    Y, (w, rows) = rng.standard_normal((B,) if P is None else (B, P)), counts(rng)
    Y[w == 0] = np.nan
    fields = {
        "covariance": fs.Matern52(1.2, np.ones(D)),
        "noise_variance": 0.3,
        "mean": fs.LinearMean(np.ones(D), 0.3),
    }
    models = [fs.SGPR(inducing=Z, **fields)]
    if sets == 2:
        pair, batch = fs.InducingPair(Z[:4].copy(), Z[4:].copy()), () if P is None else (P,)
        given = {
            "mean_v": rng.standard_normal((*batch, 2)),
            "scale_tril_v": lower_factor(rng, *batch, 2),
        }
        names = ((), ("mean_v",), ("mean_v", "scale_tril_v"))
        models = [
            fs.OrthogonalSGPR(inducing=pair, **fields, **{name: given[name] for name in some})
            for some in names
        ]
    for sgpr in models:
        value, grad = fs.collapsed_bound_and_grad(sgpr, X, Y, weights=w, jitter=JITTER)
        expected, bars = fs.collapsed_bound_and_grad(sgpr, X[rows], Y[rows], jitter=JITTER)
        assert value == pytest.approx(expected, rel=1e-12)
        assert fs.collapsed_bound(sgpr, X, Y, weights=w, jitter=JITTER) == pytest.approx(
            value, rel=1e-13
        )
        assert_close(grad, bars)
        best = fs.optimal_svgp(sgpr, X, Y, weights=w, jitter=JITTER)
        assert_close(best, fs.optimal_svgp(sgpr, X[rows], Y[rows], jitter=JITTER))
        assert fs.elbo(best, X, Y, weights=w, jitter=JITTER) == pytest.approx(value, rel=1e-11)
        options = {"weights": np.where(w == 0, 0, rng.gamma(1.0, 1.0, B)), "jitter": JITTER}
        _, grad = fs.collapsed_bound_and_grad(sgpr, X, Y, **options)
        assert_slope(
            rng,
            sgpr,
            grad,
            lambda model, options=options: fs.collapsed_bound(model, X, Y, **options),
        )


def test_a_natural_step_of_one_lands_on_the_weighted_optimum(rng):
    sgpr = fs.SGPR(fs.RBF(1.2, np.ones(D)), rng.uniform(-2, 2, (M, D)), 0.3)
    X, Y, w = rng.uniform(-2, 2, (B, D)), rng.standard_normal(B), rng.gamma(1.0, 1.0, B)
    best = fs.optimal_svgp(sgpr, X, Y, weights=w)
    start = fs.replace(best, posterior=fs.Whitened(np.zeros(M), np.eye(M)))
    there, _ = fs.natural_step(start, X, Y, step_size=1.0, weights=w)
    assert_close(there.posterior.mean, best.posterior.mean, 1e-9)
    assert fs.elbo(there, X, Y, weights=w) == pytest.approx(
        fs.collapsed_bound(sgpr, X, Y, weights=w), rel=1e-11
    )


@pytest.mark.parametrize("name", ["two", "classes", "narrow", "outputs"])
def test_deep_gps(rng, name):
    model, X, Y = deep_problem(rng, name)
    draws, w = draws_for(rng, model, 2), np.array([2, 0, 1, 3, 0])
    rows = np.repeat(np.arange(5), w)
    repeated = tuple(eps[:, rows] for eps in draws)
    missing = Y.astype(float)
    missing[w == 0] = np.nan
    for bound in (fs.elbo_and_grad, fs.data_term_and_grad):
        value, grad = bound(model, X, missing, weights=w, draws=draws, jitter=JITTER)
        expected, bars = bound(model, X[rows], Y[rows], draws=repeated, jitter=JITTER)
        assert value == pytest.approx(expected, rel=1e-12)
        assert_close(grad, bars)
    assert fs.elbo(model, X, missing, weights=w, draws=draws, jitter=JITTER) == pytest.approx(
        fs.elbo(model, X[rows], Y[rows], draws=repeated, jitter=JITTER), rel=1e-12
    )
    for monotone in (False, True) if model.layers[-1].posterior.natural_fields else ():
        stepped, info = fs.natural_step(
            model, X, missing, weights=w, draws=draws, jitter=JITTER, monotone=monotone
        )
        due, other = fs.natural_step(
            model, X[rows], Y[rows], draws=repeated, jitter=JITTER, monotone=monotone
        )
        assert info.value == pytest.approx(other.value, rel=1e-12)
        assert_close(stepped, due)


def test_a_deep_gp_with_a_weight_for_each_target(rng):
    """With one layer the results are those of the SVGP, the natural step too."""
    model, X, Y = problem(rng)
    model, W = fs.replace(model, mean=None), rng.gamma(1.0, 1.0, Y.shape)
    W[::3, 0] = W[1::3, 1] = 0
    Y = without(Y, W, "gaussian")
    deep = fs.DeepGP(
        (fs.Layer(model.covariance, model.inducing, model.posterior),), model.likelihood
    )
    (value, grad), (expected, bars) = (
        fs.elbo_and_grad(one, X, Y, weights=W, jitter=JITTER) for one in (deep, model)
    )
    assert value == pytest.approx(expected, rel=1e-12)
    for name in ("covariance", "inducing", "posterior"):
        assert_close(getattr(grad.layers[0], name), getattr(bars, name))
    (ours, _), (due, _) = (
        fs.natural_step(one, X, Y, weights=W, jitter=JITTER, step_size=0.4) for one in (deep, model)
    )
    assert_close(ours.layers[0].posterior, due.posterior)


@each
def test_without_weights_the_likelihood_gets_no_weights_argument(rng, monkeypatch, name):
    """User-defined likelihoods without a ``weights`` argument keep working."""
    model, X, Y = problem(rng, name)
    plain, heard = type(model.likelihood).expected_log_prob, []

    def listening(self, Y, f, *args, **options):
        heard.append(options)
        return plain(self, Y, f, *args, **options)

    monkeypatch.setattr(type(model.likelihood), "expected_log_prob", listening)
    fs.elbo(model, X, Y), fs.elbo_and_grad(model, X, Y), fs.natural_step(model, X, Y)
    fs.elbo(
        fs.DeepGP((fs.Layer(model.covariance, model.inducing, model.posterior),), model.likelihood),
        X,
        Y,
    )
    assert len(heard) == 4 and not any("weights" in options for options in heard)


CALLS = {
    "elbo": lambda model, X, Y, w: fs.elbo(model, X, Y, weights=w),
    "elbo_and_grad": lambda model, X, Y, w: fs.elbo_and_grad(model, X, Y, weights=w),
    "natural_step": lambda model, X, Y, w: fs.natural_step(model, X, Y, weights=w),
    "collapsed": lambda model, X, Y, w: fs.collapsed_bound(
        fs.SGPR(model.covariance, model.inducing, 0.3), X, Y, weights=w
    ),
    "fit": lambda model, X, Y, w: fs.fit(model, X, Y, weights=w, steps=1),
}


def changed(index, value, shape=(B,)):
    w = np.ones(shape)
    w[index] = value
    return w


BAD = [
    (
        changed(3, -0.5),
        ValueError,
        "`weights` must be zero or more, and finite; got -0.5 at index 3; give the weight 0",
    ),
    (
        changed(3, np.nan),
        ValueError,
        "`weights` must be zero or more, and finite; got nan at index 3; give the weight",
    ),
    (
        changed(3, np.inf),
        ValueError,
        "`weights` must be zero or more, and finite; got inf at index 3; give the weight",
    ),
    (
        np.zeros(B),
        ValueError,
        "`weights` are all zero, so that no target counts; give at least one that is positive",
    ),
    (
        np.ones(B - 1),
        ValueError,
        (
            r"`weights` must have shape \(23,\), one for each row of `Y`, or \(23, 2\), .*; got"
            r" \(22,\)"
        ),
    ),
    (np.ones((2, B)), ValueError, r"`weights` must have shape .*; got \(2, 23\)"),
    (1.0, ValueError, r"`weights` must have (shape .*; got \(\)|rows, got a single value)"),
    (["one"] * B, TypeError, "`weights` must hold real numbers"),
    (np.ma.masked_array(np.ones(B), np.arange(B) == 0), TypeError, "`weights` is a masked array"),
]


@pytest.mark.parametrize(
    "call, bad",
    list(itertools.product(CALLS, BAD)),
    ids=lambda x: x if isinstance(x, str) else x[2][:30],
)
def test_bad_weights(rng, call, bad):
    model, X, Y = problem(rng)
    w, error, message = bad
    with pytest.raises(error, match=message):
        CALLS[call](model, X, Y, w)


def test_bad_targets_are_named_by_their_index(rng):
    """The index is right although other targets replace those of weight 0."""
    model, X, Y = problem(rng)
    for zeros, at in (((0, 0), (7, 1)), (slice(0, 5), (5, 0)), ((0, 0), (0, 1))):
        W, bad = changed(zeros, 0, Y.shape), Y.copy()
        bad[zeros], bad[at] = np.nan, np.nan
        with pytest.raises(ValueError, match=rf"`Y` contains nan at index \({at[0]}, {at[1]}\)"):
            fs.elbo(model, X, bad, weights=W)
    with pytest.raises(ValueError, match="`weights` are all zero"):
        fs.elbo(model, X, np.full_like(Y, np.nan), weights=np.zeros(B))
    model, X, Y = problem(rng, "probit")
    Y[4] = 3
    with pytest.raises(ValueError, match="`Y` must hold labels 0 or 1; got 3 at index 4"):
        fs.elbo(model, X, Y, weights=changed(slice(0, 4), 0))
    model, X, Y = problem(rng, "softmax")
    with pytest.raises(
        ValueError,
        match=r"`weights` must have shape \(23,\), one for each row of `Y`; got \(23, 3\)",
    ):
        fs.elbo(model, X, Y, weights=np.ones((B, 3)))


def test_functions_without_weights_refuse_them(rng):
    model, X, Y = problem(rng)
    w = np.ones(B)
    sgpr = fs.SGPR(model.covariance, model.inducing, 0.3)
    with pytest.raises(
        ValueError,
        match=r"`weights` has shape \(23, 2\), .* give \(23,\), one SGPR per output",
    ):
        fs.collapsed_bound_and_grad(sgpr, X, Y, weights=np.ones_like(Y))
    column = fs.collapsed_bound(sgpr, X, Y[:, :1], weights=w[:, None])
    assert column == fs.collapsed_bound(sgpr, X, Y[:, 0], weights=w)
    q = fs.ChevronWeights(np.zeros(8), np.zeros((8, 0)), np.ones(8))
    qsgp = fs.QSGP(fs.RandomFourier(model.covariance, num_features=8), q, fs.Gaussian(0.3))
    with pytest.raises(TypeError, match="weight_bound has no option `weights` for QSGP"):
        fs.weight_bound(qsgp, X, Y[:, 0], weights=w)
    with pytest.raises(
        TypeError, match="fit: `weights` are given, and a QSGP is trained without them"
    ):
        fs.fit(qsgp, X, Y[:, 0], weights=w, steps=1)
    sites = fs.VGP(model.covariance, fs.Sites(np.zeros(B), np.ones(B)), fs.Gaussian(0.3))
    with pytest.raises(TypeError, match="natural_step has no option `weights` for VGP"):
        fs.natural_step(sites, X, Y[:, 0], weights=w)
    for name in ("natural_steps", "em"):
        with pytest.raises(TypeError, match=f"{name} has no option `weights` for SVGP; it takes"):
            getattr(fs, name)(model, X, Y, weights=w)
    with pytest.raises(TypeError, match="elbo: .*VGP"):
        fs.elbo(sites, X, Y[:, 0], weights=w)
