"""A model as a PyTorch module: one parameter per field, the bound with gradient, and predictions.

The bound is not traced. ``forward`` computes its value and closed-form gradients together, and
passes autograd the gradients of the parameters and of the inputs; autograd continues from there
through the layers below. Tensors and arrays share memory: with NumPy on the CPU, and with CuPy by
DLPack on a device, on PyTorch's current stream.
"""

import math
from operator import attrgetter

import numpy as np
import torch
from torch.autograd import forward_ad

from ..bounds.objectives import elbo, elbo_and_grad
from ..bounds.predict import predict_f
from ..bounds.predict_vjp import predict_f_and_vjp
from ..bounds.protocol import kind_of
from ..bounds.svgp import SVGP as SVGPModel
from ..latents.model import MultiGP as MultiGPModel
from ..optim.flat import Unravel
from ..records import is_record, leaves, replace_leaves, tree_map
from ..runtime.devices import device_array
from .options import refuse_following
from .torch_tensors import DTYPES, arrays_at, flatten, half_precision, once, refuse_transforms


class _Process(torch.nn.Module):
    """A model whose free fields are PyTorch parameters; subclasses say of which kind."""

    _of: type  # the class of the model

    def __init__(self, model, fixed=(), transform="softplus"):
        super().__init__()
        kind = self._of.__name__
        if type(model) is not self._of:
            raise TypeError(
                f"interop.torch.{kind}: `model` must be a fastsvgp.{kind}, got"
                f" {type(model).__name__}"
            )
        if device_array(model) is not None:
            raise TypeError(
                f"interop.torch.{kind}: `model` is on a device; give fastsvgp.to_host(model), and"
                ' move the module with .to("cuda")'
            )
        model, _, _, dtype = kind_of(model).checked(model)
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
        """The current model of fastsvgp, on the module's device.

        Its arrays are copies, except for fixed fields. Assign a model of the same classes and
        shapes, for example from ``fastsvgp.natural_step``, to set parameters and buffers; any other
        model raises ``ValueError``.
        """
        parameters, device = self._tensors()
        with arrays_at(device) as (array, _):
            return self._record(flatten(parameters, device), array)

    @model.setter
    def model(self, model):
        self._check_alike(model)
        parameters, device = self._tensors()
        with torch.no_grad(), arrays_at(device) as (array, tensor):
            device_like = array(flatten(parameters, device))
            vector = tensor(self._map(device_like, self._paths).pack(model))
            for parameter, part in zip(
                parameters, vector.split([p.numel() for p in parameters]), strict=True
            ):
                parameter.copy_(part.reshape(parameter.shape))
            values = {path: value for path, _, value in leaves(model)}
            for path in self._buffer_paths:
                attrgetter(path)(self).copy_(tensor(np.array(values[path], like=device_like)))

    @torch.compiler.disable  # a compiled function could not convert tensors to NumPy arrays
    def forward(self, X, Y, num_data=None, **options):
        """The evidence lower bound, differentiable in the parameters and in X.

        Parameters
        ----------
        X : (B, D) tensor
        Y : (B,) or (B, P) tensor
            Both on the device of the parameters; float64 or float32, or integers for labels.
        num_data : float, optional
            Size of the whole data set, as in ``fastsvgp.elbo_and_grad``.
        **options
            ``jitter``, ``weights``, ``rng`` and other options of ``fastsvgp.elbo``; tensors are
            passed on as arrays.

        Returns
        -------
        () tensor
            The bound, to maximise.

        Raises
        ------
        TypeError
            An argument is an array instead of a tensor, tensors are on several devices or in half
            precision, an argument other than X requires a gradient, or the options contain ``wrt``
            or ``inputs``. Other errors are as in ``fastsvgp.elbo_and_grad``.
        NotImplementedError
            The call is inside a ``torch.func`` transform, or a tensor has a forward-mode tangent.
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
                raise TypeError(
                    f"interop.torch: `{name}` requires a gradient, but the bound has none in it;"
                    f" give {name}.detach()"
                )
        return _Bound.apply(
            self, torch.is_grad_enabled(), {"num_data": num_data, **options}, X, Y, *parameters
        )

    @torch.compiler.disable
    def predict(self, X, *, jitter=None):
        """Posterior mean and variance of the latent function, differentiable in X.

        Parameters
        ----------
        X : (N, D) tensor
            Inputs on the device of the parameters.
        jitter : float, optional
            As in ``fastsvgp.predict_f``.

        Returns
        -------
        mean, var : (N,) or (N, P) tensors
            As from ``fastsvgp.predict_f``. The parameters are constants; the backward pass is that
            of ``fastsvgp.bounds.predict_f_and_vjp``.

        Raises
        ------
        TypeError, NotImplementedError
            As in ``forward``.
        """
        refuse_transforms()
        _, device = self._tensors()
        self._check(device, X=X)
        if torch.is_grad_enabled() and X.requires_grad:
            return _Predictions.apply(self, jitter, X)
        with arrays_at(device) as (array, tensor):
            return tuple(map(tensor, predict_f(self.model, array(X), jitter=jitter)))

    def _tensors(self):
        """Return the parameters in the order of their paths, and the device of the module."""
        parameters, buffers = (
            [attrgetter(path)(self) for path in paths]
            for paths in (self._paths, self._buffer_paths)
        )
        first = [*parameters, *buffers][0]
        for path, one in zip(self._paths + self._buffer_paths, parameters + buffers, strict=True):
            if one.dtype not in DTYPES:
                raise half_precision(path, one, "the module with .float() or .double()")
            if one.dtype != first.dtype or one.device != first.device:
                raise TypeError(
                    f"interop.torch: parameter `{path}` is {one.dtype} on {one.device}, but others"
                    f" are {first.dtype} on {first.device}; move the whole module with"
                    f" .to({str(first.device)!r}, {first.dtype})"
                )
        return parameters, first.device

    def _check(self, device, **tensors):
        """Refuse all but dense float32 or float64 tensors on the module's device, and tangents."""
        for name, value in tensors.items():
            if not isinstance(value, torch.Tensor):
                came = f"{type(value).__module__}.{type(value).__name__}"
                raise TypeError(
                    f"interop.torch: `{name}` must be a tensor, got {came}; convert it with"
                    " torch.as_tensor"
                )
            if value.device != device:
                raise TypeError(
                    f"interop.torch: tensors are on different devices: `{name}` on {value.device},"
                    f" the parameters on {device}; call {name}.to({str(device)!r}), or move the"
                    f" module with .to({str(value.device)!r})"
                )
            if value.is_floating_point() and value.dtype not in DTYPES:
                raise half_precision(name, value, f"{name}.float(), outside torch.autocast")
            if value.layout is not torch.strided:
                raise TypeError(
                    f"interop.torch: `{name}` must be dense, got {value.layout}; give"
                    f" {name}.to_dense()"
                )
        for name, value in (*tensors.items(), *self.named_parameters(), *self.named_buffers()):
            # otherwise the result would be treated as a constant
            if forward_ad.unpack_dual(value).tangent is not None:
                raise NotImplementedError(
                    f"interop.torch: `{name}` has a tangent, but forward mode is not supported; use"
                    " .backward() or torch.autograd.grad, or fastsvgp.elbo_and_grad(...,"
                    " inputs=True)"
                )

    def _check_alike(self, model):
        """Refuse a model with other classes, settings or shapes: only numbers can be taken over."""
        if type(model) is not type(self._start):
            raise TypeError(
                f"interop.torch: `model` must be a fastsvgp.{self._of.__name__}, got"
                f" {type(model).__name__}"
            )
        here, there = (
            tree_map(lambda value: getattr(value, "shape", ()), one) for one in (self._start, model)
        )
        if repr(here) != repr(there):
            ours, others = (
                {path: shape for path, _, shape in leaves(one)} for one in (here, there)
            )
            paths = [path for path in ours | others if ours.get(path) != others.get(path)]
            more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
            if paths:
                names = ", ".join(paths[:3]) + more
                had, came = (of.get(paths[0], "no such field") for of in (ours, others))
            else:
                names, (had, came) = "kinds or settings", _differing(here, there)
            raise ValueError(
                f"interop.torch: `model` differs from the module in {names}: the module has"
                f" {had}, `model` {came}"
            )

    def _map(self, flat, paths):
        """Return the ``Unravel`` of these fields, in the module's dtype, on the vector's device."""
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
        """Build the model from parameters in one vector."""
        vector, fixed = (
            array(flat),
            {path: array(attrgetter(path)(self)) for path in self._buffer_paths},
        )
        unravel = self._map(vector, self._paths)
        return unravel(vector, like=replace_leaves(self._start, fixed))


class SVGP(_Process):
    """A sparse variational Gaussian process whose free fields are PyTorch parameters.

    Parameters
    ----------
    model : fastsvgp.SVGP
        Model on the host; move the module with ``.to("cuda")``.
    fixed : str or sequence of str
        Dotted paths of fields that are held fixed, as in ``fastsvgp.ravel``. They are buffers, and
        part of ``state_dict``.
    transform : {"softplus", "log"}
        Transform of positive numbers to real ones, as in ``fastsvgp.ravel``.

    Notes
    -----
    Parameters have the dotted names of their fields (``covariance.lengthscales``,
    ``posterior.scale_tril``) and the dtype of the model, so ``gp.covariance.parameters()`` and
    ``gp.inducing`` work as expected. They are unconstrained, as in ``fastsvgp.ravel``: positive
    fields and the diagonals of triangular factors pass through ``transform``. A factor or a
    symmetric matrix (..., M, M) is stored as its lower triangle, row by row, (..., M (M + 1) / 2).
    Optimisers, weight decay and gradient clipping thus see every number once. ``gp.model`` is the
    corresponding record.

    A parameter that requires no gradient costs none. ``torch.compile`` does not compile ``forward``
    and ``predict``. Only first derivatives exist: if autograd requests a second one, it raises
    ``NotImplementedError``. Inside a ``torch.func`` transform (``grad``, ``vmap``, ``jacrev``,
    ``hessian``, ``jvp``), and in forward mode, calling the module raises it;
    ``torch.func.functional_call`` works outside transforms.

    Examples
    --------
    >>> gp = fastsvgp.interop.torch.SVGP(model)
    >>> optimiser = torch.optim.Adam([*network.parameters(), *gp.parameters()], lr=0.01)
    >>> loss = -gp(network(X), Y, num_data=40_000) / 40_000
    >>> loss.backward()
    """

    _of = SVGPModel


class MultiGP(_Process):
    """Several latent functions whose free fields are PyTorch parameters: as ``SVGP``.

    Parameters
    ----------
    model : fastsvgp.MultiGP
        Model on the host; move the module with ``.to("cuda")``.
    fixed, transform
        As of ``SVGP``.

    Notes
    -----
    Parameters have names such as ``latents.0.covariance.lengthscales`` and ``mixing``. The notes on
    ``SVGP`` hold.

    Examples
    --------
    >>> gp = fastsvgp.interop.torch.MultiGP(fastsvgp.layers.multi_gp(X, Y, num_latents=2))
    >>> optimiser = torch.optim.Adam(gp.parameters(), lr=0.01)
    >>> loss = -gp(torch.from_numpy(X), torch.from_numpy(Y))
    >>> loss.backward()
    """

    _of = MultiGPModel


class _Fields(torch.nn.Module):
    """Module that holds the fields of a record."""


class _Bound(torch.autograd.Function):
    """The bound; ``forward`` also computes the gradients."""

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
        with arrays_at(X.device) as (array, tensor):
            options = {
                name: array(value) if isinstance(value, torch.Tensor) else value
                for name, value in options.items()
            }
            model = gp._record(flatten(parameters, X.device), array)
            if need_X or free:
                value, grad, *X_bar = elbo_and_grad(
                    model, array(X), array(Y), wrt=paths, inputs=need_X, **options
                )
                vector = array(flatten(free, X.device))
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
    """Mean and variance, with the backward pass to their inputs."""

    @staticmethod
    def forward(ctx, gp, jitter, X):
        ctx.set_materialize_grads(False)
        ctx.inputs = (X,)
        with arrays_at(X.device) as (array, tensor):
            # copied, because fixed fields are buffers that can change before the backward pass
            model = tree_map(lambda value: value.copy(), gp.model)
            mean, var, ctx.vjp = predict_f_and_vjp(model, array(X), jitter=jitter)
            return tensor(mean), tensor(var)

    @staticmethod
    def backward(ctx, mean_bar, var_bar):
        X_bar = None
        if mean_bar is not None or var_bar is not None:
            with torch.no_grad(), arrays_at(ctx.inputs[0].device) as (array, tensor):
                try:
                    bars = [bar if bar is None else array(bar) for bar in (mean_bar, var_bar)]
                except RuntimeError as error:  # a batch of cotangents has no memory to share
                    raise NotImplementedError(
                        "interop.torch: predictions take one cotangent per backward pass; call"
                        " torch.autograd.grad in a loop, without is_grads_batched, vectorize or"
                        " vmap"
                    ) from error
                X_bar = tensor(ctx.vjp(*bars)).to(ctx.inputs[0].dtype)
        return None, None, *once((*ctx.inputs, mean_bar, var_bar), [X_bar])


def _differing(here, there):
    """Return the smallest records at one place of two trees that differ."""
    if type(here) is type(there) and is_record(here):
        for name, _ in here._record_fields:
            of_both = getattr(here, name), getattr(there, name)
            for one, other in zip(*map(_as_parts, of_both), strict=False):
                if is_record(one) and repr(one) != repr(other):
                    return _differing(one, other)
    return here, there


def _as_parts(value):
    return value if isinstance(value, tuple) else (value,)


def _kind_of(gp):
    """Return dtype and device of the module; all of its tensors agree."""
    first = attrgetter((gp._paths + gp._buffer_paths)[0])(gp)
    return first.dtype, first.device


def _shape(kind, value):
    """Shape of the parameter of a leaf."""
    if kind not in ("tril", "symmetric"):
        return np.shape(value)
    *batch, _, M = np.shape(value)
    return *batch, math.comb(M + 1, 2)
