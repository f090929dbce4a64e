"""The PyTorch module on a device: tensors go to CuPy and back by DLPack, on PyTorch's stream.

Without a GPU, the emulated CuPy and host tensors stand for the real ones. The same code runs,
except for the two calls that hand memory over.
"""

import contextlib
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from cuda_host.cupy_on_host import cupy_on_host, ndarray
from support.posterior_problems import EVERY
from support.real_device import why_none
from support.torch_problems import JITTER, deep, gp_of, tensors

import fastsvgp as fs

torch = pytest.importorskip("torch")
interop = pytest.importorskip("fastsvgp.interop.torch")
f8 = torch.float64
STREAM = 1234


@contextlib.contextmanager
def emulated(monkeypatch):
    """Host tensors as if on device 0; yields the transfer, and a log of contexts and transfers."""
    if shutil.which("g++") is None:
        pytest.skip("the host emulation of CUDA needs g++")
    seen, plain = [], interop.arrays_at

    @contextlib.contextmanager
    def entered(*what):
        seen.append(what)
        yield
        seen.append(("left", what[0]))

    def handed(name, function):
        return lambda one: seen.append((name, tuple(one.shape))) or function(one)

    with cupy_on_host() as cupy:
        monkeypatch.setattr(
            cupy.cuda, "Device", lambda index: entered("device", index), raising=False
        )
        streams = SimpleNamespace(
            from_external=lambda stream: entered("stream", stream.__cuda_stream__())
        )
        monkeypatch.setattr(cupy.cuda, "Stream", streams, raising=False)
        monkeypatch.setattr(
            cupy, "from_dlpack", handed("to", lambda tensor: ndarray(tensor.numpy())), raising=False
        )
        monkeypatch.setattr(
            torch, "from_dlpack", handed("back", lambda array: torch.from_numpy(array._host))
        )
        monkeypatch.setattr(
            torch.cuda,
            "current_stream",
            lambda device: SimpleNamespace(__cuda_stream__=lambda: (0, STREAM)),
        )
        monkeypatch.setattr(
            interop, "arrays_at", lambda device: plain(SimpleNamespace(type="cuda", index=0))
        )
        yield (lambda one: one), seen


@contextlib.contextmanager
def real(monkeypatch):
    """Tensors on PyTorch's device, if CuPy has one too."""
    if reason := why_none():
        pytest.skip(reason)
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA device")
    yield (lambda one: one.cuda()), None


@pytest.fixture(
    params=[emulated, pytest.param(real, marks=pytest.mark.on_device)], ids=["emulated", "device"]
)
def there(request, monkeypatch):
    with request.param(monkeypatch) as (there, _):
        yield there


@pytest.fixture
def seen(monkeypatch):
    with emulated(monkeypatch) as (_, seen):
        yield seen


def close(found, expected, tolerance=1e-9):
    found = found.detach().cpu().numpy()
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=tolerance * max(1, np.abs(expected).max())
    )


@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("posterior", EVERY)
def test_numbers_are_those_of_the_host(there, rng, posterior, P):
    model, gp, X, Y = gp_of(rng, posterior, P=P)
    vector, unravel = fs.ravel(model)
    value, grad, X_bar = fs.elbo_and_grad(model, X, Y, num_data=50, jitter=JITTER, inputs=True)
    pulled = unravel.pullback(vector, grad)
    mean, var, vjp = fs.bounds.predict_f_and_vjp(model, X, jitter=JITTER)
    gp, (X, Y) = there(gp), map(there, tensors(X, Y))
    bound = gp(X.requires_grad_(), Y, num_data=50, jitter=JITTER)
    bound.backward()
    assert bound.item() == pytest.approx(value, rel=1e-10)
    close(X.grad, X_bar)
    for path, part in unravel.slices.items():
        close(gp.get_parameter(path).grad.reshape(-1), pulled[part])
    X.grad = None
    found = gp.predict(X, jitter=JITTER)
    for one, other in zip(found, (mean, var), strict=True):
        close(one, other)
    bars = [rng.standard_normal(mean.shape) for _ in range(2)]
    torch.autograd.backward(found, list(map(there, tensors(*bars))))
    close(X.grad, vjp(*bars))
    with torch.no_grad():
        assert gp(X, Y, num_data=50, jitter=JITTER).item() == pytest.approx(value, rel=1e-10)
        close(gp.predict(X, jitter=JITTER)[1], var)


def test_training_a_network_below(there, rng):
    net, gp, X, Y = deep(rng)
    other_net, other, _, _ = deep(np.random.default_rng(1))
    other_net.load_state_dict(net.state_dict())
    other.load_state_dict(gp.state_dict())
    found = []
    for one, below, move in ((gp, net, lambda x: x), (there(other), there(other_net), there)):
        optimiser = torch.optim.Adam([*below.parameters(), *one.parameters()], lr=0.02)
        for _ in range(3):
            optimiser.zero_grad()
            loss = -one(below(move(X)), move(Y))
            loss.backward()
            optimiser.step()
        found.append(loss.item())
    assert found[1] == pytest.approx(found[0], rel=1e-8)


def test_the_model_stays_on_the_device(there, rng):
    model, _, X, Y = gp_of(rng)
    gp = there(interop.SVGP(model, fixed="inducing"))
    on_device = gp.model
    assert all(
        hasattr(value, "__cuda_array_interface__") for _, _, value in fs.records.leaves(on_device)
    )
    stepped = fs.records.replace_at(on_device, "posterior.mean", 2 * on_device.posterior.mean)
    gp.model = stepped
    close(gp.posterior.mean, 2 * model.posterior.mean)
    with pytest.raises(TypeError, match="`model` is on a device; give fastsvgp.to_host"):
        interop.SVGP(on_device)


def test_memory_is_handed_over_on_the_stream_that_is_current(seen, rng):
    """Both devices are current while CuPy works; nothing is copied through the host."""
    _, gp, X, Y = gp_of(rng)
    B, D = X.shape
    X, Y = tensors(X, Y)
    (-gp(X.requires_grad_(), Y)).backward()
    n = sum(parameter.numel() for parameter in gp.parameters())
    assert seen[:2] == [("device", 0), ("stream", (0, STREAM))] and seen[-2:] == [
        ("left", "stream"),
        ("left", "device"),
    ]
    handed = [what for what in seen if what[0] in ("to", "back")]
    assert handed.count(("to", (B, D))) == handed.count(("to", (B,))) == 1
    assert [what for what in handed if what[0] == "back"] == [("back", (n,)), ("back", (B, D))]
    del seen[:]
    mean, _ = gp.predict(X)
    assert seen[-1] == ("left", "device")
    del seen[:]
    mean.sum().backward()
    assert seen[:2] == [("device", 0), ("stream", (0, STREAM))] and seen[-2:] == [
        ("left", "stream"),
        ("left", "device"),
    ]
    assert seen[2:-2] == [("to", (B,)), ("back", (B, D))]
