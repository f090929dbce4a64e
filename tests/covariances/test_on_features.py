"""Compare covariances of the features of a network with their definition, alone and in models."""

import numpy as np
import pytest
from oracles import covariances as oracle
from support import definitions, posterior_problems as problems
from support.derivatives import assert_gradient
from support.numerics import assert_adjoint, exactly, symmetric
from support.rank_problems import assert_same_on_all_and_close, distance, on_ranks

import fastsvgp as fs
from fastsvgp.covariances import network as networks
from fastsvgp.records import is_record, leaves, matches, replace_at, tree_map

D, F, M, N = 3, 2, 5, 7
NETWORKS = {
    "tanh": ((D, 6, F), "tanh"),
    "relu": ((D, 6, 4, F), "relu"),
    "linear": ((D, F), "tanh"),
}
INNER = {
    "rbf": lambda: fs.RBF(1.3, np.array([0.8, 1.2])),
    "sum": lambda: fs.Matern52(0.7, 1.1) + fs.Linear(0.4) * fs.RBF(1.1, 1.5),
}
TABLE = [(name, inner) for name in NETWORKS for inner in INNER]
everything = pytest.mark.parametrize("network, inner", TABLE)


def covariance_of(rng, network="tanh", inner="rbf", dtype=np.float64):
    sizes, activation = NETWORKS[network]
    found = fs.covariances.Network.random(sizes, activation, rng)
    biases = tuple(rng.standard_normal(b.shape) for b in found.biases)
    found = fs.covariances.OnFeatures(INNER[inner](), fs.replace(found, biases=biases))
    return tree_map(lambda a: np.asarray(a, dtype)[()], found)


def inputs(rng, covariance, n=M, dtype=np.float64):
    """Inducing features and inputs."""
    Z = oracle.features(covariance.network, rng.standard_normal((n, D)))
    return Z.astype(dtype), rng.standard_normal((N, D)).astype(dtype)


def at(covariance, X):
    return oracle.features(covariance.network, X)


def Kuu(covariance, Z, V):
    return oracle.matrix(covariance.covariance, Z, V)


def Kuf(covariance, Z, X):
    return oracle.matrix(covariance.covariance, Z, at(covariance, X))


def Kff(covariance, X, Y):
    return oracle.matrix(covariance.covariance, at(covariance, X), at(covariance, Y))


@everything
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_blocks(rng, network, inner, dtype):
    covariance = covariance_of(rng, network, inner, dtype)
    (Z, X), (V, Y) = inputs(rng, covariance, M, dtype), inputs(rng, covariance, M - 1, dtype)
    covariance.check_dim(covariance.num_columns(Z))
    assert covariance.num_columns(Z) == D and covariance.num_inducing(Z) == (M,)
    exact = tree_map(lambda a: np.asarray(a, np.longdouble), covariance)
    u, v, x, y = exactly(Z, V, X, Y)
    blocks = covariance.blocks(Z, X, full_cov=True)
    for found, truth in (
        (covariance.network(X), at(exact, x)),
        (covariance.Kuu(Z), Kuu(exact, u, u)),
        (covariance.Kuu(Z, V), Kuu(exact, u, v)),
        (covariance.Kuf(Z, X), Kuf(exact, u, x)),
        (covariance.kff(X), Kff(exact, x, x).diagonal()),
        (covariance.Kff(X), Kff(exact, x, x)),
        (covariance.Kff(X, Y), Kff(exact, x, y)),
        (blocks.Kuu, Kuu(exact, u, u)),
        (blocks.Kuf, Kuf(exact, u, x)),
        (blocks.kff, Kff(exact, x, x).diagonal()),
        (blocks.Kff, Kff(exact, x, x)),
    ):
        assert found.dtype == dtype
        scale = np.abs(truth).max() + 1
        np.testing.assert_allclose(found, truth, rtol=0, atol=300 * np.finfo(dtype).eps * scale)
    np.testing.assert_array_equal(covariance.Kff(X), covariance.Kff(X).T)


@everything
def test_each_block_reversed(rng, network, inner):
    """Compare every field and input with the definition; single requests give the same."""
    covariance = covariance_of(rng, network, inner)
    (Z, X), (V, Y) = inputs(rng, covariance), inputs(rng, covariance, M - 1)
    paths, _, fields = zip(*leaves(covariance), strict=True)

    def check(K_bar, rule, of, *arguments, names):
        first = [K_bar] if rule == covariance.kff_vjp else [K_bar, None]
        bars = rule(*first, *arguments)
        found = {path: bar for path, _, bar in leaves(bars[0])}
        assert [np.shape(bar) for bar in found.values()] == [np.shape(v) for v in fields]

        def f(*values):
            moved = covariance
            for path, value in zip(paths, values, strict=False):
                moved = replace_at(moved, path, value)
            return of(moved, *values[len(paths) :])

        input_bars = [bar for bar in bars[1:] if bar is not None]
        expected = (*(found[path] for path in paths), *input_bars)
        h = 1e-4 if covariance.network.activation == "tanh" else 1e-6  # no kink within it
        assert_adjoint(f, exactly(*fields, *arguments), expected, K_bar, rng, h=h)
        for i, name in enumerate(names, 1):
            alone = rule(*first, *arguments, need=(name,))
            assert [bar is None for bar in alone] == [j != i for j in range(len(bars))]
            np.testing.assert_allclose(alone[i], bars[i], rtol=1e-11, atol=1e-13)
        above = {path.rpartition(".")[0] for path in paths}
        for path in (*paths, *above):
            alone = rule(*first, *arguments, need=(f"covariance.{path}",))
            assert all(bar is None for bar in alone[1:])
            got = {p: bar for p, _, bar in leaves(alone[0]) if bar is not None}
            assert set(got) == {p for p in paths if matches(p, (path,))}
            for p, bar in got.items():
                np.testing.assert_allclose(bar, found[p], rtol=1e-11, atol=1e-13)

    square = lambda of: lambda k, A: of(k, A, A)  # noqa: E731
    both, rows = ("inducing", "other"), ("X", "other")
    check(symmetric(rng, M), covariance.Kuu_vjp, square(Kuu), Z, names=both[:1])
    check(rng.standard_normal((M, M - 1)), covariance.Kuu_vjp, Kuu, Z, V, names=both)
    check(rng.standard_normal((M, N)), covariance.Kuf_vjp, Kuf, Z, X, names=("inducing", "X"))
    diagonal = lambda k, x: Kff(k, x, x).diagonal()  # noqa: E731
    check(rng.standard_normal(N), covariance.kff_vjp, diagonal, X, names=("X",))
    check(symmetric(rng, N), covariance.Kff_vjp, square(Kff), X, names=rows[:1])
    check(rng.standard_normal((N, N)), covariance.Kff_vjp, Kff, X, Y, names=rows)


@everything
def test_all_blocks_at_once_are_the_sum(rng, network, inner):
    covariance = covariance_of(rng, network, inner)
    Z, X = inputs(rng, covariance)
    blocks = covariance.blocks(Z, X, full_cov=True)
    bar = fs.records.Blocks(
        symmetric(rng, M), rng.standard_normal((M, N)), rng.standard_normal(N), symmetric(rng, N)
    )
    need = ("covariance", "inducing", "X")
    whole = covariance.blocks_vjp(bar, blocks, Z, X, need)
    of_u = covariance.Kuu_vjp(bar.Kuu, None, Z)
    cross = covariance.Kuf_vjp(bar.Kuf, None, Z, X)
    own, joint = covariance.kff_vjp(bar.kff, X), covariance.Kff_vjp(bar.Kff, None, X)
    for (path, _, found), *parts in zip(
        leaves(whole[0]), *(leaves(part[0]) for part in (of_u, cross, own, joint)), strict=True
    ):
        total = sum(value for _, _, value in parts)
        np.testing.assert_allclose(found, total, rtol=1e-10, atol=1e-12, err_msg=path)
    np.testing.assert_allclose(whole[1], of_u[1] + cross[1], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(whole[2], cross[2] + own[1] + joint[1], rtol=1e-10, atol=1e-12)
    nothing = covariance.blocks_vjp(fs.records.Blocks(None, None, None), blocks, Z, X, need)
    assert not any(np.any(bar) for _, _, bar in leaves(nothing[0]))
    assert not nothing[1].any() and not nothing[2].any()


# --- in models --------------------------------------------------------------------------------


def svgp(rng, network="tanh", outputs=()):
    covariance = covariance_of(rng, network)
    Z, X = inputs(rng, covariance)
    scale_tril = np.tril(0.1 * rng.standard_normal((*outputs, M, M))) + np.eye(M)
    q = fs.Whitened(rng.standard_normal((*outputs, M)), scale_tril)
    return fs.SVGP(covariance, Z, q, fs.Gaussian(0.3)), X, rng.standard_normal((N, *outputs))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("posterior", problems.ROWS)
def test_bound_and_gradient(rng, posterior, weighted):
    model, X, Y = svgp(rng)
    model, more = problems.in_model(rng, posterior, fs.replace(model, posterior=None))
    weights = rng.uniform(0.5, 2.0, N) if weighted else None
    value, grad, X_bar = fs.elbo_and_grad(
        model, X, Y, num_data=9.0, jitter=problems.JITTER, inputs=True, weights=weights, **more
    )
    if weighted:  # a weight is equivalent to repeating the target
        doubled = fs.elbo(
            model, np.vstack([X, X]), np.append(Y, Y), jitter=problems.JITTER, **more,
            weights=np.append(weights, weights) / 2, num_data=18.0,
        )  # fmt: skip
        np.testing.assert_allclose(value, doubled, rtol=1e-9)
        return
    scale = 9.0 / N
    definition = lambda m: definitions.elbo(m, X, Y, scale, problems.JITTER, **more)  # noqa: E731
    np.testing.assert_allclose(value, float(definition(model).real), rtol=1e-9)
    assert_gradient(definition, model, grad, rng, 1e-8)

    direction = rng.standard_normal(X.shape)
    moved = X + 1e-30j * direction
    slope = definitions.elbo(model, moved, Y, scale, problems.JITTER, **more).imag / 1e-30
    np.testing.assert_allclose(
        (X_bar * direction).sum(), slope, rtol=1e-8, atol=1e-8 * np.linalg.norm(X_bar)
    )


@pytest.mark.parametrize("posterior", problems.PAIRS)
def test_bound_of_two_sets(rng, posterior):
    covariance = covariance_of(rng, "relu", "sum")
    Z, X = inputs(rng, covariance)
    q, pair = (
        problems.PAIRS[posterior].make(rng, np.eye(M)),
        fs.posteriors.InducingPair(Z[:4], Z[4:]),
    )
    model, Y = fs.SVGP(covariance, pair, q, fs.Gaussian(0.3)), rng.standard_normal(N)
    value, grad = fs.elbo_and_grad(model, X, Y, jitter=problems.JITTER)

    def definition(m):
        joint = fs.replace(m, inducing=np.concatenate([m.inducing.Z, m.inducing.O]))
        return definitions.elbo(joint, X, Y, 1, problems.JITTER)

    np.testing.assert_allclose(value, float(definition(model).real), rtol=1e-9)
    assert_gradient(definition, model, grad, rng, 1e-8)


@pytest.mark.parametrize("outputs", [(), (2,)])
def test_natural_step_and_grad(rng, outputs):
    """Natural steps share rows with the gradient that follows, and agree with two passes."""
    model, X, Y = svgp(rng, outputs=outputs)
    stepped, _, value, grad = fs.optim.natural_step_and_grad(model, X, Y, step_size=0.5)
    again, _ = fs.natural_step(model, X, Y, step_size=0.5)
    np.testing.assert_allclose(stepped.posterior.mean, again.posterior.mean, rtol=1e-9)
    value_there, there = fs.elbo_and_grad(stepped, X, Y)
    np.testing.assert_allclose(value, value_there, rtol=1e-10)
    for path, _, a in leaves(grad):
        if a is not None:
            b = {p: v for p, _, v in leaves(there)}[path]
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9, err_msg=path)


@pytest.mark.parametrize("posterior", ["whitened", "relaxed"])
def test_the_network_runs_once_per_pass(rng, posterior, monkeypatch):
    calls = {"forward": 0, "vjp": 0}
    for name in calls:
        plain = getattr(networks.Network, name)

        def spy(*args, name=name, plain=plain):
            calls[name] += 1
            return plain(*args)

        monkeypatch.setattr(networks.Network, name, spy)
    model, X, Y = svgp(rng)
    if posterior == "relaxed":
        model, _ = problems.in_model(rng, "relaxed", fs.replace(model, posterior=None))
    fs.elbo_and_grad(model, X, Y, inputs=True)
    assert calls == {"forward": 1, "vjp": 1}
    fs.predict_f(model, X)
    assert calls == {"forward": 2, "vjp": 1}
    sgpr = fs.SGPR(model.covariance, model.inducing, 0.1)
    fs.collapsed_bound_and_grad(sgpr, X, Y)
    assert calls["vjp"] == 2 and calls["forward"] <= 4


def test_collapsed_bound(rng):
    model, X, Y = svgp(rng)  # a difference may step over a kink of relu
    Z = model.inducing + 0.5 * rng.standard_normal(model.inducing.shape)
    model = fs.replace(model, inducing=Z)
    sgpr = fs.SGPR(model.covariance, model.inducing, 0.1)
    value, grad = fs.collapsed_bound_and_grad(sgpr, X, Y)
    fs.testing.assert_gradient(
        lambda one: fs.collapsed_bound(one, X, Y), sgpr, grad, rng=rng, rtol=1e-6, step=1e-4
    )
    optimal = fs.optimal_svgp(sgpr, X, Y)
    np.testing.assert_allclose(fs.elbo(optimal, X, Y), value, rtol=1e-6)
    pair = fs.bounds.OrthogonalSGPR(
        model.covariance, fs.posteriors.InducingPair(model.inducing[:3], model.inducing[3:]), 0.1
    )
    value, grad = fs.collapsed_bound_and_grad(pair, X, Y)
    fs.testing.assert_gradient(
        lambda one: fs.collapsed_bound(one, X, Y), pair, grad, rng=rng, rtol=1e-6, step=1e-4
    )


def test_predictions_and_their_gradient(rng):
    model, X, _ = svgp(rng)
    mean, cov = fs.predict_f(model, X, full_cov=True)
    each, var = fs.predict_f(model, X)
    np.testing.assert_allclose(mean, each, rtol=1e-12)
    np.testing.assert_allclose(np.diag(cov), var, rtol=1e-9)
    _, _, back = fs.bounds.predict_f_and_vjp(model, X)
    mean_bar, var_bar = rng.standard_normal((2, N))
    X_bar = back(mean_bar, var_bar)

    def f(x):
        mean, var = fs.predict_f(model, x)
        return (mean * mean_bar).sum() + (var * var_bar).sum()

    fs.testing.assert_gradient(f, X, X_bar, rng=rng, rtol=1e-7)


def test_files_training_and_checkpoints(rng, tmp_path):
    model, X, Y = svgp(rng)
    fs.save(tmp_path / "model.npz", model)
    loaded = fs.load(tmp_path / "model.npz")
    assert repr(loaded) == repr(model)
    np.testing.assert_array_equal(fs.predict_f(loaded, X)[0], fs.predict_f(model, X)[0])
    settings = dict(batch_size=4, rng=0, natural_step_size=0.3, optimiser=fs.adam(0.02))
    whole, _ = fs.fit(model, X, Y, steps=8, **settings)
    weights = zip(whole.covariance.network.weights, model.covariance.network.weights, strict=True)
    assert all((a != b).all() for a, b in weights)
    _, info = fs.fit(model, X, Y, steps=4, **settings, checkpoint=tmp_path / "half.npz")
    resumed, _ = fs.fit(model, X, Y, steps=8, **settings, resume=tmp_path / "half.npz")
    for (path, _, a), (_, _, b) in zip(leaves(resumed), leaves(whole), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=path)
    fixed, _ = fs.fit(model, X, Y, steps=3, **settings, fixed=("covariance.network.weights.0",))
    np.testing.assert_array_equal(
        fixed.covariance.network.weights[0], model.covariance.network.weights[0]
    )
    assert (fixed.covariance.network.weights[1] != model.covariance.network.weights[1]).all()
    flat, unravel = fs.ravel(model)
    for (path, _, a), (_, _, b) in zip(leaves(unravel(flat)), leaves(model), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14, err_msg=path)


def test_two_ranks(rng):
    model, X, Y = svgp(rng)
    alone = fs.elbo_and_grad(model, X, Y)
    found = on_ranks(2, lambda group: fs.elbo_and_grad(model, X, Y, group=group))
    assert_same_on_all_and_close(found, alone, 1e-10)
    settings = dict(steps=3, batch_size=N, rng=0, optimiser=fs.adam(0.02))
    alone, _ = fs.fit(model, X, Y, **settings)
    for fitted in on_ranks(2, lambda group: fs.fit(model, X, Y, group=group, **settings)[0]):
        assert distance(fitted, alone) < 1e-9


def test_float32(rng):
    model, X, Y = svgp(rng)
    exact = fs.elbo_and_grad(model, X, Y, jitter=1e-5)
    model = tree_map(lambda a: np.asarray(a, "f4")[()], model)
    low = fs.elbo_and_grad(model, X.astype("f4"), Y.astype("f4"), jitter=1e-5)
    np.testing.assert_allclose(low[0], exact[0], rtol=1e-3)
    for (path, _, a), (_, _, b) in zip(leaves(low[1]), leaves(exact[1]), strict=True):
        assert np.asarray(a).dtype == np.float32
        np.testing.assert_allclose(a, b, rtol=0.02, atol=0.02 * np.abs(b).max(), err_msg=path)


# --- networks -----------------------------------------------------------------------------------


def test_random_networks(rng):
    network = fs.covariances.Network.random((400, 300, 2), rng=0)
    assert [W.shape for W in network.weights] == [(400, 300), (300, 2)]
    np.testing.assert_allclose(network.weights[0].std(), 1 / 20, rtol=0.02)
    assert not network.biases[0].any() and network.activation == "tanh"
    relu = fs.covariances.Network.random([4, 500, 2], "relu", rng=0)
    assert np.abs(relu.biases[0]).max() <= 1 and relu.biases[0].std() > 0.5
    again = fs.covariances.Network.random((4, 500, 2), "relu", rng=0)
    np.testing.assert_array_equal(relu.weights[1], again.weights[1])
    given = fs.covariances.Network([[[1.0, 2.0], [3.0, 4.0]], np.ones((2, 1))], [[0.5, 0.5]])
    assert isinstance(given.weights[0], np.ndarray) and is_record(given)
    np.testing.assert_allclose(given(np.ones((1, 2))), [[np.tanh(4.5) + np.tanh(6.5)]])


@pytest.mark.parametrize(
    "change, kind, message",
    [
        (dict(activation="sine"), ValueError, "`activation` must be 'tanh' or 'relu', got 'sine'"),
        (dict(biases=()), ValueError, r"`biases` have shapes \[\]; hidden layers need \[\(6,\)\]"),
        (dict(weights=()), ValueError, "`weights` must be a tuple of at least one matrix"),
        (
            dict(weights=(np.ones((D, 5)), np.ones((6, F)))),
            ValueError,
            r"`weights` have shapes \(3, 5\), \(6, 2\); each must be \(rows, columns\)",
        ),
        (
            dict(weights=(np.ones((D, 6)), np.ones((6, 4)))),
            ValueError,
            "`inducing` has 2 columns, but the network has 4 features",
        ),
        (
            dict(weights=(np.ones((D + 1, 6)), np.ones((6, F)))),
            ValueError,
            "`X` has 3 columns where `covariance.network.weights.0` has 4",
        ),
        (
            dict(weights=(np.full((D, 6), np.nan), np.ones((6, F)))),
            ValueError,
            "`covariance.network.weights.0`",
        ),
    ],
    ids=str,
)
def test_bad_networks_are_named(rng, change, kind, message):
    model, X, Y = svgp(rng)
    network = fs.replace(model.covariance.network, **change)
    with pytest.raises(kind, match=message):
        fs.elbo(fs.replace(model, covariance=fs.covariances.OnFeatures(fs.RBF(), network)), X, Y)


def test_bad_parts_are_named(rng):
    model, X, Y = svgp(rng)
    covariance = model.covariance
    for bad, kind, message in (
        (
            fs.covariances.OnFeatures(2.0, covariance.network),
            TypeError,
            "`covariance` must be a covariance",
        ),
        (
            fs.covariances.OnFeatures(fs.RBF(), 2.0),
            TypeError,
            "`network` must be a fastsvgp.covariances.Network, got float",
        ),
        (
            fs.covariances.OnFeatures(fs.RBF(1.0, np.ones(3)), covariance.network),
            ValueError,
            r"shape \(3,\)",
        ),
        (covariance + fs.RBF(), TypeError, "a OnFeatures has inducing variables of its own"),
        (
            fs.covariances.OnFeatures(covariance, covariance.network),
            TypeError,
            "inducing variables of its own",
        ),
    ):
        with pytest.raises(kind, match=message):
            fs.elbo(fs.replace(model, covariance=bad), X, Y)
    for sizes in ((3,), (3, 0, 2), (3, 1.5, 2)):
        with pytest.raises(ValueError, match="`sizes` must be at least two positive integers"):
            fs.covariances.Network.random(sizes)
    with pytest.raises(ValueError, match="`activation` must be 'tanh' or 'relu', got 'sine'"):
        fs.covariances.Network.random((3, 2), "sine")
