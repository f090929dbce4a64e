"""The PyTorch module under ``torch.func``, forward mode and batched cotangents."""

import numpy as np
import pytest
from support.torch_problems import gp_of, tensors

torch = pytest.importorskip("torch")
pytest.importorskip("fastsvgp.interop.torch")

f8 = torch.float64


def test_a_gradient_is_linear_in_its_cotangent(rng):
    """Autograd can differentiate it in the cotangent: directional derivatives, scaled bounds."""
    _, gp, X, Y = gp_of(rng)
    X, Y = tensors(X, Y)
    way = torch.from_numpy(rng.standard_normal(X.shape))
    bar = torch.autograd.functional.jacobian(lambda X: gp(X, Y), X)
    _, along = torch.autograd.functional.jvp(lambda X: gp(X, Y), X, way)
    assert along.item() == pytest.approx((bar * way).sum().item(), rel=1e-12)
    factor = torch.tensor(2.0, dtype=f8, requires_grad=True)
    (scaled,) = torch.autograd.grad(factor * gp(X.requires_grad_(), Y), X, create_graph=True)
    assert torch.autograd.grad((scaled * way).sum(), factor)[0].item() == pytest.approx(
        along.item(), rel=1e-12
    )


def test_predictions_are_not_differentiable_in_cotangents(rng):
    _, gp, X, _ = gp_of(rng)
    (X,) = tensors(X)
    for result in (0, 1):
        with pytest.raises(NotImplementedError, match="second derivative was requested"):
            torch.autograd.functional.jvp(
                lambda X, result=result: gp.predict(X)[result], X, torch.ones_like(X)
            )


def transforms(function, several):
    """Each ``torch.func`` transform of functions of one tensor, the first of several, or all."""
    func, one = torch.func, several[0]

    def total(one):
        found = function(one)
        return found[0].sum() if isinstance(found, tuple) else found

    return {
        "grad": lambda: func.grad(total)(one),
        "grad_and_value": lambda: func.grad_and_value(total)(one),
        "vjp": lambda: func.vjp(function, one),
        "vmap": lambda: func.vmap(function)(several),
        "vmap of grad": lambda: func.vmap(func.grad(total))(several),
        "vmap without gradients": lambda: torch.no_grad()(func.vmap(function))(several),
        "jacrev": lambda: func.jacrev(function)(one),
        "jacfwd": lambda: func.jacfwd(function)(one),
        "hessian": lambda: func.hessian(total)(one),
        "jvp": lambda: func.jvp(function, (one,), (torch.ones_like(one),)),
        "compiled": lambda: torch.compile(lambda one: func.grad(total)(one), backend="eager")(one),
    }


@pytest.mark.parametrize("of", ["X", "Y", "weights", "parameter", "predict"])
def test_transforms_of_torch_func_are_refused(rng, of):
    """With our message for any argument; the module is unchanged."""
    _, gp, X, Y = gp_of(rng)
    X, Y = tensors(X, Y)
    before, functional_call = gp(X, Y).item(), torch.func.functional_call
    function, one = {
        "X": (lambda X: gp(X, Y), X),
        "Y": (lambda Y: gp(X, Y), Y),
        "weights": (lambda w: gp(X, Y, weights=w), torch.ones_like(Y)),
        "parameter": (lambda p: functional_call(gp, {"inducing": p}, (X, Y)), gp.inducing.detach()),
        "predict": (gp.predict, X),
    }[of]
    said = (
        "torch.func transforms are not supported; use .*backward.*loop instead of vmap.*inputs=True"
    )
    for name, call in transforms(function, torch.stack([one, one])).items():
        with pytest.raises(NotImplementedError, match=said):
            pytest.fail(f"{name} gave {call()}")
    gp.requires_grad_(False)
    with pytest.raises(NotImplementedError, match="torch.func transforms are not supported"):
        # the bound is a constant here
        torch.func.vmap(lambda z: z * gp(X, Y))(Y)
    assert gp(X, Y).item() == before
    # they are allowed in layers below the module
    inner = torch.func.vmap(torch.func.grad(lambda x: x.square().sum()))(X)
    assert gp(inner / 2, Y).item() == pytest.approx(before, rel=1e-12)


def test_tangents_of_forward_mode_are_refused(rng):
    """In every argument; predictions would have treated them as constants."""
    from torch.autograd import forward_ad

    _, gp, X, Y = gp_of(rng)
    X, Y = tensors(X, Y)
    with forward_ad.dual_level():
        moved = {
            one: forward_ad.make_dual(one, torch.ones_like(one))
            for one in (X, Y, gp.inducing.detach())
        }
        inducing = {"inducing": list(moved.values())[2]}
        for name, call in (
            ("X", lambda: gp(moved[X], Y)),
            ("X", lambda: gp.predict(moved[X])),
            ("X", lambda: torch.no_grad()(gp.predict)(moved[X])),
            ("Y", lambda: gp(X, moved[Y])),
            ("weights", lambda: gp(X, Y, weights=moved[Y])),
            ("inducing", lambda: torch.func.functional_call(gp, inducing, (X, Y))),
        ):
            with pytest.raises(
                NotImplementedError,
                match=f"`{name}` has a tangent, but forward mode is not supported; use",
            ):
                call()
        assert gp(X, Y).item() == gp(forward_ad.unpack_dual(moved[X]).primal, Y).item()


def test_batches_of_cotangents(rng):
    """The bound only scales by them; predictions refuse batches."""
    _, gp, X, Y = gp_of(rng)
    X, Y = tensors(X, Y)
    X.requires_grad_()
    bound, (mean, _) = gp(X, Y), gp.predict(X)
    (bar,) = torch.autograd.grad(bound, X, retain_graph=True)
    factors = torch.tensor([1.0, -2.0], dtype=f8)
    for bars in (
        torch.autograd.grad(bound, X, factors, is_grads_batched=True, retain_graph=True)[0],
        torch.func.vmap(lambda v: torch.autograd.grad(bound, X, v, retain_graph=True)[0])(factors),
    ):
        np.testing.assert_allclose(bars, torch.stack([bar, -2 * bar]), rtol=1e-13)
    rows = torch.eye(len(X), dtype=f8)
    for call in (
        lambda: torch.autograd.grad(mean, X, rows, is_grads_batched=True, retain_graph=True),
        lambda: torch.autograd.functional.jacobian(gp.predict, X, vectorize=True),
        lambda: torch.func.vmap(lambda v: torch.autograd.grad(mean, X, v, retain_graph=True)[0])(
            rows
        ),
    ):
        with pytest.raises(
            NotImplementedError,
            match="one cotangent per backward pass.*in a loop, without is_grads_batched",
        ):
            call()
    with pytest.raises(NotImplementedError, match="torch.func transforms are not supported"):
        torch.func.vmap(lambda v: torch.autograd.grad(bound, X, v, create_graph=True)[0])(factors)
