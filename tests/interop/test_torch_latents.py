"""The PyTorch module of several latent functions."""

import copy

import numpy as np
import pytest
from support.multi_gp_problems import MULTI, multi_of
from support.torch_problems import JITTER, tensors

import fastsvgp as fs

torch = pytest.importorskip("torch")
interop = pytest.importorskip("fastsvgp.interop.torch")


@pytest.mark.parametrize("name", MULTI)
def test_value_gradients_and_predictions(rng, name):
    model, X, Y = multi_of(rng, name)
    gp = interop.MultiGP(model)
    vector, unravel = fs.ravel(model)
    assert {path for path, _ in gp.named_parameters()} == set(unravel.paths)
    value, grad, X_bar = fs.elbo_and_grad(
        unravel(vector), X, Y, num_data=50, jitter=JITTER, inputs=True
    )
    pulled = unravel.pullback(vector, grad)
    tX, tY = tensors(X, Y)
    tX.requires_grad_()
    bound = gp(tX, tY, 50, jitter=JITTER)
    assert bound.item() == pytest.approx(value, rel=1e-12)
    (-3 * bound).backward()
    np.testing.assert_allclose(tX.grad, -3 * X_bar, rtol=1e-11, atol=1e-11)
    for path, part in unravel.slices.items():
        bar = gp.get_parameter(path).grad.numpy().ravel()
        np.testing.assert_allclose(bar, -3 * pulled[part], rtol=1e-11, atol=1e-11, err_msg=path)
    expected = fs.predict_f(gp.model, X, jitter=JITTER)
    for one, other in zip(gp.predict(tX, jitter=JITTER), expected, strict=True):
        np.testing.assert_allclose(one.detach(), other, rtol=1e-11, atol=1e-12)
    assert torch.autograd.gradcheck(
        lambda X: gp.predict(X, jitter=JITTER), (tX,), eps=1e-5, atol=1e-6, rtol=1e-5
    )


def test_missing_outputs(rng):
    model, X, Y = multi_of(rng, "mixed")
    gp, there = interop.MultiGP(model), rng.random(Y.shape) < 0.7
    Y[~there] = np.nan
    value = fs.elbo(model, X, Y, weights=there.astype(float))
    assert gp(*tensors(X, Y), weights=torch.from_numpy(there * 1.0)).item() == pytest.approx(value)


def test_fixed_fields_copies_and_the_way_back(rng):
    model, X, Y = multi_of(rng, "mixed")
    gp = interop.MultiGP(model, fixed=["inducing", "latents.0.covariance"])
    assert {name for name, _ in gp.named_buffers()} >= {"inducing", "latents.0.covariance.variance"}
    assert gp.latents.get_submodule("1").covariance.variance.requires_grad
    X, Y = tensors(X, Y)
    again = interop.MultiGP(multi_of(rng, "mixed")[0], fixed=["inducing", "latents.0.covariance"])
    again.load_state_dict(gp.state_dict())
    assert again(X, Y).item() == copy.deepcopy(gp)(X, Y).item() == gp(X, Y).item()
    optimiser = torch.optim.Adam(gp.parameters(), lr=0.01)
    before = gp(X, Y).item()
    for _ in range(20):
        optimiser.zero_grad()
        loss = -gp(X, Y)
        loss.backward()
        optimiser.step()
    assert gp(X, Y).item() > before
    assert gp.float()(X.float(), Y.float()).dtype == torch.float32
    gp.double().model, _ = fs.natural_step(gp.model, X.numpy(), Y.numpy(), step_size=0.3)
    assert gp(X, Y).item() == pytest.approx(fs.elbo(gp.model, X.numpy(), Y.numpy()), rel=1e-12)


def test_each_module_takes_its_kind_of_model(rng):
    model, *_ = multi_of(rng, "separate")
    with pytest.raises(TypeError, match="torch.SVGP: `model` must be a fastsvgp.SVGP, got MultiGP"):
        interop.SVGP(model)
    with pytest.raises(TypeError, match="torch.MultiGP: .* must be a fastsvgp.MultiGP, got RBF"):
        interop.MultiGP(fs.RBF())
    gp = interop.MultiGP(model)
    with pytest.raises(TypeError, match="must be a fastsvgp.MultiGP, got Layer"):
        gp.model = model.latents[0]
    with pytest.raises(ValueError, match="differs from the module in mixing"):
        gp.model = fs.replace(model, mixing=np.eye(2))
    for latents, said in (
        (model.latents[:1], r"in latents.1.*, latents.1.*, latents.1.* and \d+ more: "),
        (
            (fs.replace(model.latents[0], covariance=fs.Matern12(1.0, 1.0)), *model.latents[1:]),
            "in ",
        ),
    ):
        with pytest.raises(ValueError, match=f"differs from the module {said}") as caught:
            gp.model = fs.replace(model, latents=latents)
        assert len(str(caught.value)) < 300
