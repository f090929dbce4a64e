"""An SVGP as a module of PyTorch: a parameter for each field, the bound and its closed-form gradient, predictions of inputs.

Nothing of the bound is traced. Its value and gradients are computed together, when ``forward`` is
called, and autograd is handed the gradients: of the parameters, and of the inputs, from where it
goes on through whatever lies below. Tensors and arrays are the same memory: NumPy's on the CPU,
CuPy's by DLPack on a device, on the stream that is PyTorch's current one.
"""

import contextlib
import math
from operator import attrgetter

import numpy as np
import torch
from torch.autograd import forward_ad

from .. import check, models
from ..bounds.elbo import elbo, elbo_and_grad
from ..bounds.predict import predict_f
from ..bounds.predict_vjp import predict_f_and_vjp
from ..optim.flat import Unravel
from ..records import leaves, replaced, tree_map
from ..runtime import cuda_devices
from ..runtime.devices import home_of
from .options import refuse_following
from .torch_once import once, refuse_transforms

DTYPES = {torch.float64: np.dtype(np.float64), torch.float32: np.dtype(np.float32)}


class SVGP(torch.nn.Module):
    """A sparse variational Gaussian process whose free fields are parameters of PyTorch.

    Parameters
    ----------
    model : fastsvgp.SVGP
        On the host; ``.to("cuda")`` of the module moves it.
    fixed : str or sequence of str
        Dotted paths of fields that are no parameters, as of ``fastsvgp.ravel``. They are buffers:
        ``state_dict`` has them too.
    transform : {"softplus", "log"}
        How positive numbers become real ones, as of ``fastsvgp.ravel``.

    Notes
    -----
    Parameters have the dotted names of their fields (``covariance.lengthscales``,
    ``posterior.scale_tril``), so that ``gp.covariance.parameters()`` and ``gp.inducing`` are what
    they seem, and the dtype of the model. They are unconstrained, the numbers of
    ``fastsvgp.ravel``: positive fields, and the diagonals of triangular factors, through
    ``transform``; of a factor, or a symmetric matrix, (..., M, M) the lower triangle, row by row,
    (..., M (M + 1) / 2). So every optimiser, weight decay, and clipping sees the numbers that there
    are, each once. ``gp.model`` is the record that they stand for.

    A parameter that requires no gradient costs none. ``torch.compile`` leaves ``forward`` and
    ``predict`` as they are. First derivatives alone exist: a second one raises
    ``NotImplementedError`` where autograd asks for it. The transformations of ``torch.func``
    (``grad``, ``vmap``, ``jacrev``, ``hessian``, ``jvp``) and forward mode raise it when the module
    is called; ``torch.func.functional_call`` works outside of them.

    Examples
    --------
    >>> gp = fastsvgp.interop.torch.SVGP(model)
    >>> optimiser = torch.optim.Adam([*network.parameters(), *gp.parameters()], lr=0.01)
    >>> loss = -gp(network(X), Y, num_data=40_000) / 40_000
    >>> loss.backward()
    """

    def __init__(self, model, fixed=(), transform="softplus"):
        super().__init__()
        if not models.offers("predict_f_and_vjp", model):
            raise TypeError(
                f"interop.torch.SVGP: `model` must be a fastsvgp.SVGP, got {type(model).__name__}"
            )
        if home_of(model) is not None:
            raise TypeError(
                "interop.torch.SVGP: `model` lives on a device; give fastsvgp.to_host(model), and"
                ' .to("cuda") after'
            )
        model, _, _, dtype = check.svgp(model)
        self._start, self._transform, self._maps = model, transform, {}
        whole = Unravel(model, fixed=fixed, transform=transform)
        self._paths, vector = whole.paths, whole.pack(model).astype(dtype)
        for path, kind, value in leaves(model):
            if value is None:
                continue
            *holders, name = path.split(".")
            holder = self
            for step in holders:
                if step not in holder._modules:
                    holder.add_module(step, _Fields())
                holder = holder._modules[step]
            if path in whole.slices:
                part = torch.from_numpy(
                    vector[whole.slices[path]].reshape(_shape(kind, value)).copy()
                )
                holder.register_parameter(name, torch.nn.Parameter(part))
            else:
                holder.register_buffer(name, torch.from_numpy(np.array(value)))
        self._buffer_paths = tuple(
            path
            for path, _, value in leaves(model)
            if value is not None and path not in whole.slices
        )

    def extra_repr(self):
        return repr(self._start)

    @property
    def model(self):
        """The ``fastsvgp.SVGP`` that the parameters stand for now, where they live, in arrays of its own but for fixed fields.

        Set to a model of the same kinds and shapes, as of ``fastsvgp.natural_step``, it gives the
        parameters, and the buffers, its values; ``ValueError`` for another one.
        """
        parameters, device = self._tensors()
        with _at(device) as (array, _):
            return self._record(_flat(parameters, device), array)

    @model.setter
    def model(self, model):
        self._check_alike(model)
        parameters, device = self._tensors()
        with torch.no_grad(), _at(device) as (array, tensor):
            home = array(_flat(parameters, device))
            vector = tensor(self._map(home, self._paths).pack(model))
            for parameter, part in zip(
                parameters, vector.split([p.numel() for p in parameters]), strict=True
            ):
                parameter.copy_(part.reshape(parameter.shape))
            values = {path: value for path, _, value in leaves(model)}
            for path in self._buffer_paths:
                attrgetter(path)(self).copy_(tensor(np.array(values[path], like=home)))

    @torch.compiler.disable  # compiled arrays would be no arrays of NumPy
    def forward(self, X, Y, num_data=None, **options):
        """The evidence lower bound, differentiable in the parameters and in X.

        Parameters
        ----------
        X : (B, D) tensor
        Y : (B,) or (B, P) tensor
            Where the parameters are, both; float64 or float32, labels of integers too.
        num_data : float, optional
            Size of the whole data set, as of ``fastsvgp.elbo_and_grad``.
        **options
            ``jitter``, ``weights``, ``rng`` and all else that ``fastsvgp.elbo`` takes; tensors are
            handed on as arrays.

        Returns
        -------
        () tensor
            To be maximised.

        Raises
        ------
        TypeError
            Arrays in the place of tensors; tensors on several devices; half precision; anything but
            X that requires a gradient; ``wrt`` or ``inputs``. Else as ``fastsvgp.elbo_and_grad``.
        NotImplementedError
            Within a transformation of ``torch.func``; a tensor with a tangent of forward mode.
        """
        refuse_transforms()
        refuse_following("interop.torch", options)
        parameters, device = self._tensors()
        others = {
            "Y": Y,
            **{name: value for name, value in options.items() if isinstance(value, torch.Tensor)},
        }
        self._check(device, X=X, **others)
        for name, value in others.items():
            if value.requires_grad:
                said = f"`{name}` requires a gradient, and the bound has none in it"
                raise TypeError(f"interop.torch: {said}; give {name}.detach()")
        return _Bound.apply(
            self, torch.is_grad_enabled(), {"num_data": num_data, **options}, X, Y, *parameters
        )

    @torch.compiler.disable
    def predict(self, X, *, jitter=None):
        """Posterior mean and variance of the latent function, as of ``fastsvgp.predict_f``, differentiable in X.

        Parameters
        ----------
        X : (N, D) tensor
            Where the parameters are.
        jitter : float, optional

        Returns
        -------
        mean, var : (N,) or (N, P) tensors
            The parameters are constants here; the way back is that of
            ``fastsvgp.predict_f_and_vjp``.

        Raises
        ------
        TypeError, NotImplementedError
            As of ``forward``.
        """
        refuse_transforms()
        _, device = self._tensors()
        self._check(device, X=X)
        if torch.is_grad_enabled() and X.requires_grad:
            return _Predictions.apply(self, jitter, X)
        with _at(device) as (array, tensor):
            return tuple(map(tensor, predict_f(self.model, array(X), jitter=jitter)))

    def _tensors(self):
        """The parameters in the order of their paths, and the one device where these and the buffers are."""
        parameters, buffers = (
            [attrgetter(path)(self) for path in paths]
            for paths in (self._paths, self._buffer_paths)
        )
        first = [*parameters, *buffers][0]
        for path, one in zip(self._paths + self._buffer_paths, parameters + buffers, strict=True):
            if one.dtype not in DTYPES:
                raise _half(path, one, "the module with .float() or .double()")
            if one.dtype != first.dtype or one.device != first.device:
                raise TypeError(
                    f"interop.torch: parameter `{path}` is {one.dtype} on {one.device}, others are"
                    f" {first.dtype} on {first.device}; move the whole module,"
                    f" .to({str(first.device)!r}, {first.dtype})"
                )
        return parameters, first.device

    def _check(self, device, **tensors):
        """Refuse what is no dense tensor of a dtype that we compute in, on the device of the parameters, or has a tangent."""
        for name, value in tensors.items():
            if not isinstance(value, torch.Tensor):
                came = f"{type(value).__module__}.{type(value).__name__}"
                raise TypeError(
                    f"interop.torch: `{name}` must be a tensor, got {came}; torch.as_tensor"
                    " makes one"
                )
            if value.device != device:
                raise TypeError(
                    f"interop.torch: tensors live on different devices: `{name}` on {value.device},"
                    f" the parameters on {device}; move one of them, {name}.to({str(device)!r}) or"
                    f" the module with .to({str(value.device)!r})"
                )
            if value.is_floating_point() and value.dtype not in DTYPES:
                raise _half(name, value, f"{name}.float(), outside torch.autocast")
            if value.layout is not torch.strided:
                raise TypeError(
                    f"interop.torch: `{name}` must be dense, got {value.layout}; give"
                    f" {name}.to_dense()"
                )
        for name, value in (*tensors.items(), *self.named_parameters(), *self.named_buffers()):
            # the result would pass for a constant
            if forward_ad.unpack_dual(value).tangent is not None:
                raise NotImplementedError(
                    f"interop.torch: `{name}` has a tangent, and forward mode is not supported; use"
                    " .backward() or torch.autograd.grad, or fastsvgp.elbo_and_grad(...,"
                    " inputs=True)"
                )

    def _check_alike(self, model):
        """Refuse a model of which the module would take the numbers alone: of other kinds, settings or shapes."""
        if type(model) is not type(self._start):
            raise TypeError(
                f"interop.torch: `model` must be a fastsvgp.SVGP, got {type(model).__name__}"
            )
        here, there = (
            tree_map(lambda value: getattr(value, "shape", ()), one) for one in (self._start, model)
        )
        if repr(here) != repr(there):
            ours, others = (
                {path: shape for path, _, shape in leaves(one)} for one in (here, there)
            )
            names = (
                ", ".join(path for path in ours | others if ours.get(path) != others.get(path))
                or "kinds or settings"
            )
            raise ValueError(
                f"interop.torch: `model` differs from the module in {names}: that has {here!r},"
                f" this is {there!r}"
            )

    def _map(self, flat, paths):
        """The ``Unravel`` of these fields, in the dtype of the parameters and where the vector is."""
        dtype, device = _kind_of(self)
        key = dtype, device, paths
        if key not in self._maps:
            start = tree_map(lambda value: np.asarray(value, DTYPES[dtype], like=flat), self._start)
            fixed = [
                path for path, _, value in leaves(start) if value is not None and path not in paths
            ]
            self._maps[key] = Unravel(start, fixed=fixed, transform=self._transform)
        return self._maps[key]

    def _record(self, flat, array):
        """The model of parameters in one vector."""
        vector, fixed = (
            array(flat),
            {path: array(attrgetter(path)(self)) for path in self._buffer_paths},
        )
        unravel = self._map(vector, self._paths)
        return unravel(vector, like=replaced(self._start, fixed))


class _Fields(torch.nn.Module):
    """The fields of a record."""


class _Bound(torch.autograd.Function):
    """The value; its gradients come with it."""

    @staticmethod
    def forward(ctx, gp, differentiated, options, X, Y, *parameters):
        need_X, _, *needs = (
            ctx.needs_input_grad[3:] if differentiated else [False] * (2 + len(parameters))
        )
        paths, free = (
            tuple(one for one, need in zip(all_, needs, strict=True) if need)
            for all_ in (gp._paths, parameters)
        )
        ctx.inputs, bars = (X, Y, *parameters), [None] * (2 + len(parameters))
        with _at(X.device) as (array, tensor):
            options = {
                name: array(value) if isinstance(value, torch.Tensor) else value
                for name, value in options.items()
            }
            model = gp._record(_flat(parameters, X.device), array)
            if need_X or free:
                value, grad, *X_bar = elbo_and_grad(
                    model, array(X), array(Y), wrt=paths, inputs=need_X, **options
                )
                vector = array(_flat(free, X.device))
                pulled = tensor(gp._map(vector, paths).pullback(vector, grad))
                parts = iter(pulled.split([one.numel() for one in free]))
                bars = [next(parts).reshape(one.shape).to(one.dtype) if need else None
                        for one, need in zip(parameters, needs, strict=True)]  # fmt: skip
                bars = [tensor(X_bar[0]).to(X.dtype) if need_X else None, None, *bars]
            else:
                value = elbo(model, array(X), array(Y), **options)
        ctx.save_for_backward(*bars)
        return torch.tensor(
            value, dtype=torch.promote_types(X.dtype, _kind_of(gp)[0]), device=X.device
        )

    @staticmethod
    def backward(ctx, value_bar):
        bars = once(ctx.inputs, ctx.saved_tensors)
        return None, None, None, *(bar if bar is None else value_bar * bar for bar in bars)


class _Predictions(torch.autograd.Function):
    """Mean and variance, and the way back to their inputs."""

    @staticmethod
    def forward(ctx, gp, jitter, X):
        ctx.set_materialize_grads(False)
        ctx.inputs = (X,)
        with _at(X.device) as (array, tensor):
            # fixed fields are buffers, and may change meanwhile
            model = tree_map(lambda value: value.copy(), gp.model)
            mean, var, ctx.vjp = predict_f_and_vjp(model, array(X), jitter=jitter)
            return tensor(mean), tensor(var)

    @staticmethod
    def backward(ctx, mean_bar, var_bar):
        X_bar = None
        if mean_bar is not None or var_bar is not None:
            with torch.no_grad(), _at(ctx.inputs[0].device) as (array, tensor):
                try:
                    bars = [bar if bar is None else array(bar) for bar in (mean_bar, var_bar)]
                except (
                    RuntimeError
                ) as error:  # a batch of cotangents has no memory that could be shared
                    raise NotImplementedError(
                        "interop.torch: predictions take one cotangent per backward pass; call"
                        " torch.autograd.grad in a loop, without is_grads_batched, vectorize or"
                        " vmap"
                    ) from error
                X_bar = tensor(ctx.vjp(*bars)).to(ctx.inputs[0].dtype)
        return None, None, *once((*ctx.inputs, mean_bar, var_bar), [X_bar])


@contextlib.contextmanager
def _at(device):
    """``(array, tensor)``, while it lasts: the ways between tensors of this device and arrays of the same memory."""
    if device.type == "cpu":
        yield (lambda tensor: tensor.detach().numpy()), torch.from_numpy
        return
    if device.type != "cuda":
        raise TypeError(
            f"interop.torch: tensors are on {device}, and fastsvgp computes on the CPU and on CUDA"
            " devices alone"
        )
    cupy = cuda_devices.cupy()
    with (
        cupy.cuda.Device(device.index),
        cupy.cuda.Stream.from_external(torch.cuda.current_stream(device)),
    ):
        yield (lambda tensor: cupy.from_dlpack(tensor.detach())), torch.from_dlpack


def _flat(parameters, device):
    """The parameters as one float64 vector, as an ``Unravel`` takes it."""
    parts = [parameter.detach().reshape(-1).to(torch.float64) for parameter in parameters]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64, device=device)


def _kind_of(gp):
    """dtype and device of the module, whose tensors agree."""
    first = attrgetter((gp._paths + gp._buffer_paths)[0])(gp)
    return first.dtype, first.device


def _shape(kind, value):
    """Of a leaf as a parameter."""
    if kind not in ("tril", "symmetric"):
        return np.shape(value)
    *batch, _, M = np.shape(value)
    return *batch, math.comb(M + 1, 2)


def _half(name, tensor, advice):
    return TypeError(
        f"interop.torch: `{name}` is {tensor.dtype}, and fastsvgp computes in float32 and float64;"
        f" give {advice}"
    )
