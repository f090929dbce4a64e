"""The PyTorch module: parameters, the bound with gradients, predictions, use in training."""

import copy
import pickle

import numpy as np
import pytest
from support.numerics import five_point
from support.posterior_problems import EVERY
from support.torch_problems import JITTER, deep, gp_of, tensors

import fastsvgp as fs

torch = pytest.importorskip("torch")
interop = pytest.importorskip("fastsvgp.interop.torch")

f8 = torch.float64
TREE = fs.RBF(1.1, 1.3) * (fs.Matern52(0.8, 0.9) + fs.Linear(0.5)) + fs.covariances.Constant(0.2)


def assert_gradient_of_ravel(gp, model, value_bar, expected, tolerance=1e-12):
    """Each gradient is its part of that of ``ravel``'s vector, times the cotangent."""
    for path, part in expected.items():
        bar = gp.get_parameter(path).grad
        assert bar.shape == gp.get_parameter(path).shape
        np.testing.assert_allclose(
            bar.numpy().ravel(), value_bar * part, rtol=tolerance, atol=tolerance, err_msg=path
        )


@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("posterior", EVERY)
def test_value_and_gradients_are_those_of_the_bound(rng, posterior, P):
    model, gp, X, Y = gp_of(rng, posterior, P=P)
    vector, unravel = fs.ravel(model)
    assert {name for name, _ in gp.named_parameters()} == set(unravel.paths) and not list(
        gp.buffers()
    )
    value, grad, X_bar = fs.elbo_and_grad(
        unravel(vector), X, Y, num_data=50, jitter=JITTER, inputs=True
    )
    pulled = unravel.pullback(vector, grad)
    X, Y = tensors(X, Y)
    X.requires_grad_()
    bound = gp(X, Y, 50, jitter=JITTER)
    assert (
        bound.shape == () and bound.dtype == f8 and bound.item() == pytest.approx(value, rel=1e-13)
    )
    (-3 * bound).backward()
    np.testing.assert_allclose(X.grad, -3 * X_bar, rtol=1e-12, atol=1e-12)
    assert_gradient_of_ravel(
        gp, model, -3, {path: pulled[part] for path, part in unravel.slices.items()}
    )


@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize(
    "posterior", ["whitened", "likelihood", "absorbed-sites", "DecoupledWeights"]
)
def test_gradcheck_of_the_bound(rng, posterior, P):
    model, gp, X, Y = gp_of(rng, posterior, P=P, M=3, B=4)
    X, Y = tensors(X, Y)
    names, parameters = zip(*gp.named_parameters(), strict=True)

    def bound(X, *parameters):
        return torch.func.functional_call(
            gp, dict(zip(names, parameters, strict=True)), (X, Y, 9.0), {"jitter": JITTER}
        )

    arguments = [one.detach().clone().requires_grad_() for one in (X, *parameters)]
    assert torch.autograd.gradcheck(bound, arguments, eps=1e-5, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("posterior", EVERY)
def test_predictions_and_their_way_back(rng, posterior, P):
    model, gp, X, _ = gp_of(rng, posterior, P=P, M=3, B=4)
    expected = fs.predict_f(gp.model, X, jitter=JITTER)
    (X,) = tensors(X)
    for found in (gp.predict(X, jitter=JITTER), gp.predict(X.requires_grad_(), jitter=JITTER)):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one.detach(), other, rtol=1e-11, atol=1e-12)
    assert torch.autograd.gradcheck(
        lambda X: gp.predict(X, jitter=JITTER), (X,), eps=1e-5, atol=1e-7, rtol=1e-6
    )


def test_a_jacobian_of_predictions(rng):
    """Many backward passes through one forward pass; either result."""
    _, gp, X, _ = gp_of(rng)
    (X,) = tensors(X)
    of_mean, of_var = torch.autograd.functional.jacobian(gp.predict, X)
    assert of_mean.shape == (len(X), *X.shape)
    for n in range(len(X)):
        for result, jacobian in ((0, of_mean), (1, of_var)):
            one = X[n].clone().requires_grad_()
            (bar,) = torch.autograd.grad(gp.predict(one[None])[result].sum(), one)
            np.testing.assert_allclose(jacobian[n, n], bar, rtol=1e-10, atol=1e-12)
    with torch.no_grad():
        assert not gp.predict(X.requires_grad_())[0].requires_grad
    assert all(parameter.grad is None for parameter in gp.parameters())


def test_the_model_is_what_the_parameters_stand_for(rng):
    model, gp, _, _ = gp_of(rng, mean=fs.means.LinearMean(np.ones(2), 0.1), covariance=TREE)
    for (path, kind, one), (_, _, other) in zip(
        fs.records.leaves(gp.model), fs.records.leaves(model), strict=True
    ):
        one, other = (np.tril(a) if kind == "tril" else a for a in (one, other))
        np.testing.assert_allclose(one, other, rtol=1e-14, err_msg=path)
    packed = gp.posterior.scale_tril
    M = len(model.inducing)
    assert (
        packed.shape == (M * (M + 1) // 2,)
        and gp.covariance.parts.get_submodule("1").variance.shape == ()
    )
    assert list(gp.covariance.parameters()) and "Whitened" in repr(gp)


def test_steps_are_those_of_our_own_adam(rng):
    """Steps in the numbers of ``fs.ravel``, uphill."""
    model, gp, X, Y = gp_of(rng)
    ours, optimiser, there = (
        fs.adam(0.03),
        torch.optim.Adam(gp.parameters(), lr=0.03),
        tensors(X, Y),
    )
    state = ours.init(model)
    for _ in range(25):
        value, grad = fs.elbo_and_grad(model, X, Y, num_data=70)
        model, state = ours.step(model, grad, state, value)
        optimiser.zero_grad()
        (-gp(*there, num_data=70)).backward()
        optimiser.step()
    expected, unravel = fs.ravel(model)
    np.testing.assert_allclose(unravel.pack(gp.model), expected, rtol=1e-9, atol=1e-9)


def test_quasi_newton_closures_and_the_memory_of_a_graph(rng):
    _, gp, X, Y = gp_of(rng)
    X, Y = tensors(X, Y)
    optimiser = torch.optim.LBFGS(
        gp.parameters(), lr=0.5, max_iter=15, line_search_fn="strong_wolfe"
    )

    def loss():
        optimiser.zero_grad()
        value = -gp(X, Y)
        value.backward()
        return value

    first = optimiser.step(loss)
    assert loss() < first - 1
    value = gp(X, Y)
    value.backward(retain_graph=True)
    value.backward()
    with pytest.raises(RuntimeError, match="second time"):
        value.backward()


def test_groups_and_schedulers(rng):
    _, gp, X, Y = gp_of(rng)
    X, Y = tensors(X, Y)
    before = {name: parameter.detach().clone() for name, parameter in gp.named_parameters()}
    groups = [
        {"params": gp.posterior.parameters(), "lr": 0.1},
        {"params": [gp.inducing], "lr": 0.0},
    ]
    optimiser = torch.optim.SGD(groups)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.5)
    moves = []
    for _ in range(2):
        optimiser.zero_grad()
        (-gp(X, Y) / 1000).backward()
        now = gp.posterior.mean.detach().clone()
        optimiser.step()
        scheduler.step()
        moves.append((gp.posterior.mean.detach() - now) / gp.posterior.mean.grad)
    assert torch.allclose(moves[0], torch.tensor(-0.1, dtype=f8)) and torch.allclose(
        moves[1], torch.tensor(-0.05, dtype=f8)
    )
    for name, parameter in gp.named_parameters():
        assert torch.equal(parameter, before[name]) is not name.startswith("posterior"), name


@pytest.mark.parametrize(
    "fixed",
    [
        (),
        "inducing",
        ("covariance", "posterior.scale_tril"),
        ("covariance", "inducing", "posterior", "likelihood"),
    ],
    ids=str,
)
def test_state_dict_and_files(rng, tmp_path, fixed):
    model, gp, X, Y = gp_of(rng)
    gp = interop.SVGP(model, fixed=fixed)
    paths = [path for path, _, _ in fs.records.leaves(model)]
    assert set(gp.state_dict()) == set(paths)
    assert {name for name, _ in gp.named_parameters()} == set(fs.ravel(model, fixed=fixed)[1].paths)
    X, Y = tensors(X, Y)
    other = interop.SVGP(fs.records.tree_map(lambda a: 1.1 * a, model), fixed=fixed)
    assert other(X, Y).item() != pytest.approx(gp(X, Y).item(), rel=1e-6)
    torch.save(gp.state_dict(), tmp_path / "gp.pt")
    assert not [*other.load_state_dict(torch.load(tmp_path / "gp.pt", weights_only=True))[0]]
    twins = [other, copy.deepcopy(gp), pickle.loads(pickle.dumps(gp))]
    for twin in twins:
        assert twin(X, Y).item() == gp(X, Y).item()
        assert not {p.data_ptr() for p in twin.state_dict().values()} & {
            p.data_ptr() for p in gp.state_dict().values()
        }
    fs.save(tmp_path / "gp.npz", gp.model)
    assert fs.elbo(fs.load(tmp_path / "gp.npz"), X.numpy(), Y.numpy()) == pytest.approx(
        gp(X, Y).item(), rel=1e-13
    )


def test_natural_steps_beside_pytorch(rng):
    """Natural steps for the posterior, a PyTorch optimiser for all else."""
    model, _, X, Y = gp_of(rng)
    gp = interop.SVGP(model, fixed="posterior")
    assert {name for name, _ in gp.named_buffers()} == {"posterior.mean", "posterior.scale_tril"}
    stepped = fs.records.replace_at(
        fs.natural_step(gp.model, X, Y, step_size=0.5)[0], "covariance.variance", 0.7
    )
    gp.model = stepped
    assert gp(*tensors(X, Y)).item() == pytest.approx(fs.elbo(stepped, X, Y), rel=1e-13)
    assert gp.model.covariance.variance == pytest.approx(0.7, rel=1e-14)
    gp(*tensors(X, Y)).backward()
    assert gp.likelihood.variance.grad is not None


@pytest.mark.parametrize("fixed", [(), ("inducing", "posterior")], ids=str)
def test_another_kind_of_model_is_no_set_of_values(rng, fixed):
    """Even with leaves of equal names or broadcastable shapes; nothing is copied."""
    model, _, X, Y = gp_of(rng, likelihood=fs.StudentT(0.3, df=4.0))
    gp = interop.SVGP(model, fixed=fixed)
    X, Y = tensors(X, Y)
    before, q = gp(X, Y).item(), model.posterior
    for other, said in (
        (
            fs.replace(model, posterior=fs.Marginal(q.mean, q.scale_tril)),
            "kinds or settings: .*Whitened.*Marginal",
        ),
        (
            fs.replace(model, covariance=fs.Matern32(1.0, np.ones(2))),
            "kinds or settings: .*RBF.*Matern32",
        ),
        (
            fs.replace(model, likelihood=fs.StudentT(0.5, df=9.0)),
            "kinds or settings: .*df=4.0.*df=9.0",
        ),
        (fs.replace(model, likelihood=fs.likelihoods.BernoulliLogit()), "likelihood.scale: "),
        (fs.replace(model, mean=fs.means.ConstantMean(1.0)), "mean.value: "),
        (
            fs.replace(model, covariance=fs.RBF(2.0, np.ones(2)), inducing=np.ones((1, 2))),
            r"inducing: .*\(6, 2\).*\(1, 2\)",
        ),
    ):
        with pytest.raises(ValueError, match=f"`model` differs from the module in {said}"):
            gp.model = other
    with pytest.raises(TypeError, match="`model` must be a fastsvgp.SVGP, got OrderedDict"):
        gp.model = gp.state_dict()
    assert gp(X, Y).item() == before


def test_what_requires_no_gradient_costs_none(rng, monkeypatch):
    _, gp, X, Y = gp_of(rng)
    X, Y = tensors(X, Y)
    calls, plain = [], interop.elbo_and_grad
    monkeypatch.setattr(
        interop,
        "elbo_and_grad",
        lambda *a, **k: calls.append((set(k["wrt"]), k["inputs"])) or plain(*a, **k),
    )
    gp(X, Y).backward()
    whole = {name: parameter.grad.clone() for name, parameter in gp.named_parameters()}
    gp.zero_grad()
    gp.posterior.requires_grad_(False)
    gp.inducing.requires_grad_(False)
    gp(X.requires_grad_(), Y).backward()
    left = {"covariance.variance", "covariance.lengthscales", "likelihood.variance"}
    assert calls == [(set(whole), False), (left, True)]
    for name, parameter in gp.named_parameters():
        assert (parameter.grad is not None) is (name in left)
        if name in left:
            np.testing.assert_allclose(parameter.grad, whole[name], rtol=1e-9)
    with torch.no_grad():
        assert not gp(X, Y).requires_grad
    gp.requires_grad_(False)
    assert not gp(X.detach(), Y).requires_grad and len(calls) == 2


def test_tensors_are_not_copied(rng, monkeypatch):
    model, _, X, Y = gp_of(rng)
    gp = interop.SVGP(model, fixed="inducing")
    X, Y = tensors(X, Y)
    seen, plain = [], interop.elbo_and_grad
    monkeypatch.setattr(
        interop,
        "elbo_and_grad",
        lambda model, X, Y, **k: seen.append((model, X, Y)) or plain(model, X, Y, **k),
    )
    gp(X, Y).backward()
    for array, tensor in zip((seen[0][0].inducing, *seen[0][1:]), (gp.inducing, X, Y), strict=True):
        assert np.shares_memory(array, tensor.numpy())
    mean, _ = gp.predict(X.requires_grad_())
    X.data += 1.0  # the backward pass uses the old X
    (bar,) = torch.autograd.grad(mean.sum(), X)
    np.testing.assert_allclose(
        bar,
        fs.bounds.predict_f_and_vjp(gp.model, X.detach().numpy() - 1)[2](np.ones(len(X)), None),
        rtol=1e-10,
    )


@pytest.mark.parametrize("below", [torch.float32, torch.float64])
@pytest.mark.parametrize("own", [torch.float32, torch.float64])
def test_dtypes(rng, own, below):
    """Each gradient has the dtype of its tensor; the bound has the wider one."""
    _, gp, X, Y = gp_of(rng)
    expected = gp(*tensors(X, Y), jitter=JITTER).item()
    gp, (X, Y) = gp.to(own), tensors(X, Y)
    X = X.to(below).requires_grad_()
    bound = gp(X, Y.to(below), jitter=JITTER)
    bound.backward()
    assert bound.dtype == torch.promote_types(own, below) and X.grad.dtype == below
    assert {parameter.grad.dtype for parameter in gp.parameters()} == {own}
    assert bound.item() == pytest.approx(expected, rel=1e-4)
    assert gp.model.inducing.dtype == interop.DTYPES[own]
    assert gp.predict(X)[0].dtype == bound.dtype


def test_a_network_below(rng):
    """Its gradient against differences, and joint training in one optimiser."""
    net, gp, X, Y = deep(rng)

    def loss():
        return -gp(net(X), Y, num_data=500)

    loss().backward()
    weight = net[0].weight
    d = torch.from_numpy(rng.standard_normal(weight.shape))

    def along(s):
        with torch.no_grad():
            weight.add_(s * d)
            value = loss().item()
            weight.sub_(s * d)
        return value

    assert (weight.grad * d).sum().item() == pytest.approx(five_point(along), rel=1e-8)
    optimiser, first = (
        torch.optim.Adam([*net.parameters(), *gp.parameters()], lr=0.02),
        loss().item(),
    )
    for _ in range(60):
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()
    assert loss().item() < first - 100
    mean, _ = gp.predict(net(X))
    mean.sum().backward()  # predictions, too, have a backward pass to the network


def test_labels_and_strided_tensors(rng):
    model, gp, X, Y = gp_of(rng, likelihood=fs.Softmax(num_classes=3))
    assert Y.dtype.kind == "i"
    value = fs.elbo(gp.model, X, Y, rng=3, jitter=JITTER)
    X, Y = tensors(X, Y)
    wide = torch.zeros(len(X), 2 * X.shape[1], dtype=f8)
    wide[:, ::2] = X
    strided = wide[:, ::2]
    assert gp(strided, Y, rng=3, jitter=JITTER).item() == pytest.approx(value, rel=1e-12)
    assert gp(X.T.contiguous().T, Y, rng=3, jitter=JITTER).item() == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("P", [None, 2])
def test_weights_of_data(rng, P):
    """Tensors or other arrays, for rows or targets; a missing target is NaN."""
    _, gp, X, Y = gp_of(rng, P=P, mean=fs.means.LinearMean(np.ones(2), 0.1) if P is None else None)
    w = rng.permutation(np.arange(Y.size) % 3).reshape(Y.shape)
    Y[w == 0] = np.nan
    vector, unravel = fs.ravel(gp.model)
    options = {"num_data": 70, "jitter": JITTER}
    value, grad, X_bar = fs.elbo_and_grad(gp.model, X, Y, weights=w, inputs=True, **options)
    X, Y, tensor = tensors(X, Y, w)
    for weights in (tensor, tensor.float(), w, w.tolist()):
        gp.zero_grad()
        X.grad = None
        bound = gp(X.requires_grad_(), Y, weights=weights, **options)
        bound.backward()
        assert bound.item() == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(X.grad, X_bar, rtol=1e-10, atol=1e-10)
        pulled = unravel.pullback(vector, grad)
        for path, part in unravel.slices.items():
            np.testing.assert_allclose(
                gp.get_parameter(path).grad.reshape(-1), pulled[part], rtol=1e-10, atol=1e-10
            )
    with pytest.raises(ValueError, match="`weights` must be zero or more"):
        gp(X, Y, weights=-tensor)
    with pytest.raises(TypeError, match="`weights` is torch.float16"):
        gp(X, Y, weights=tensor.half())


@pytest.mark.parametrize("fixed", [(), "covariance", "inducing", "posterior", "mean"])
def test_a_way_back_is_that_of_the_model_then(rng, fixed):
    """Later changes of parameters and buffers have no effect."""
    model, _, X, _ = gp_of(rng, mean=fs.means.LinearMean(np.ones(2), 0.1))
    gp, (X,) = interop.SVGP(model, fixed=fixed), tensors(X)
    mean, var = gp.predict(X.requires_grad_())
    expected = torch.autograd.grad(mean.sum() + var.sum(), X, retain_graph=True)[0]
    gp.model = fs.records.tree_map(lambda a: 1.3 * a, model)
    np.testing.assert_allclose(
        torch.autograd.grad(mean.sum() + var.sum(), X)[0], expected, rtol=1e-9, atol=1e-11
    )


def test_compiled_programs_call_it_as_it_is(rng):
    net, gp, X, Y = deep(rng)
    compiled = torch.compile(lambda X: gp(net(X), Y) * 2, backend="eager")
    bound = compiled(X)
    bound.backward()
    assert (
        bound.item() == pytest.approx(2 * gp(net(X), Y).item(), rel=1e-13)
        and net[0].weight.grad is not None
    )
