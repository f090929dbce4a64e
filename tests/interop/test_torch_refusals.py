"""What the PyTorch module refuses: second derivatives, half precision, mixed devices, and more."""

import numpy as np
import pytest
from support.torch_problems import gp_of, tensors

import fastsvgp as fs

torch = pytest.importorskip("torch")
interop = pytest.importorskip("fastsvgp.interop.torch")


def test_second_derivatives_say_what_came(rng):
    _, gp, X, Y = gp_of(rng)
    X, Y = tensors(X, Y)
    X.requires_grad_()
    for result in (lambda: gp(X, Y), lambda: gp.predict(X)[0].sum()):
        (bar,) = torch.autograd.grad(result(), X, create_graph=True)
        with pytest.raises(
            NotImplementedError, match="second derivative was requested.*create_graph"
        ):
            torch.autograd.grad((bar**2).sum(), X)
        (bar,) = torch.autograd.grad(result(), X, create_graph=True)
        assert torch.autograd.grad((bar.detach() * X**2).sum(), X)[0].shape == X.shape
    (bar,) = torch.autograd.grad(gp(X, Y), gp.inducing, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivative"):
        bar.sum().backward()


@pytest.mark.parametrize("narrow", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused(rng, narrow):
    _, gp, X, Y = gp_of(rng)
    X, Y = tensors(X, Y)
    for call in (lambda: gp(X.to(narrow), Y), lambda: gp.predict(X.to(narrow))):
        with pytest.raises(
            TypeError,
            match=f"`X` is {narrow}, but fastsvgp computes in float32 and float64; give X.float",
        ):
            call()
    with pytest.raises(TypeError, match=f"`Y` is {narrow}"):
        gp(X, Y.to(narrow))
    gp.to(narrow)
    with pytest.raises(
        TypeError, match=f"`covariance.variance` is {narrow}.*give the module with .float"
    ):
        gp(X, Y)


def test_mixed_devices_are_named(rng):
    _, gp, X, Y = gp_of(rng)
    X, Y = tensors(X, Y)
    far = X.to("meta")
    for call, name in (
        (lambda: gp(far, Y), "X"),
        (lambda: gp(X, Y.to("meta")), "Y"),
        (lambda: gp.predict(far), "X"),
    ):
        with pytest.raises(
            TypeError,
            match=f"different devices: `{name}` on meta, the parameters on cpu; call {name}.to",
        ):
            call()
    with pytest.raises(TypeError, match="`rng` on meta"):
        gp(X, Y, rng=torch.zeros(1, device="meta"))
    gp.inducing = torch.nn.Parameter(gp.inducing.detach().to("meta"))
    with pytest.raises(
        TypeError,
        match="parameter `inducing` is torch.float64 on meta, but others are torch.float64 on cpu",
    ):
        gp(X, Y)
    gp.to("meta")
    with pytest.raises(
        TypeError,
        match="tensors are on meta, but fastsvgp computes only on the CPU and on CUDA devices",
    ):
        gp(X.to("meta"), Y.to("meta"))


def test_other_bad_arguments(rng):
    model, gp, X, Y = gp_of(rng)
    with pytest.raises(
        TypeError, match="`X` must be a tensor, got numpy.ndarray; convert it with torch.as_tensor"
    ):
        gp(X, Y)
    X, Y = tensors(X, Y)
    with pytest.raises(TypeError, match="`Y` requires a gradient.*Y.detach"):
        gp(X, Y.requires_grad_())
    Y = Y.detach()
    with pytest.raises(
        TypeError, match="`rng` requires a gradient, but the bound has none in it; give rng.detach"
    ):
        gp(X, Y, rng=torch.zeros(1, requires_grad=True))
    with pytest.raises(TypeError, match="`X` must be dense, got torch.sparse_coo; give X.to_dense"):
        gp(X.to_sparse(), Y)
    with pytest.raises(ValueError, match="`X` contains nan"):
        gp(X * np.nan, Y)
    with pytest.raises(ValueError, match="`num_data` is 1, smaller than the batch"):
        gp(X, Y, num_data=1)
    for name in ("wrt", "inputs"):
        with pytest.raises(
            TypeError,
            match=(
                f"interop.torch: `{name}` is not an option here, because torch selects .*; leave it"
            ),
        ):
            gp(X, Y, **{name: ()})
    with pytest.raises(TypeError, match="has no option `probs`; did you mean `probes`"):
        gp(X, Y, probs=3)
    with pytest.raises(TypeError, match="`model` must be a fastsvgp.SVGP, got RBF"):
        interop.SVGP(fs.RBF())
    with pytest.raises(ValueError, match="`fixed` names 'Z'"):
        interop.SVGP(model, fixed="Z")
    with pytest.raises(ValueError, match="`transform` must be"):
        interop.SVGP(model, transform="exp")
    with pytest.raises(ValueError, match="posterior.mean"):
        gp.model = fs.records.replace_at(model, "posterior.mean", np.zeros(3))
