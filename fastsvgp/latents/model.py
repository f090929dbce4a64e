"""Records of models with several latent functions, and the checks of their arguments."""

import numpy as np

from .. import check
from ..layers.layer import Layer, naming
from ..likelihoods import Likelihood
from ..means import Mean
from ..records import leaf, record, replace
from ..records.constructors import array_of
from ..records.typed import Array, Record
from .mixing import matrices


@record
class MultiGP:
    """Several latent functions with covariances of their own, mixed linearly, and a likelihood.

    The J functions that the likelihood reads are f(x) = mixing g(x) + mean(x), where g stacks the
    outputs of all ``latents``, L in total.

    Parameters
    ----------
    latents : tuple of Layer
        Each has a covariance, inducing inputs, a posterior with fields (M,) or (Q, M) for Q
        outputs, and a mean or None. Any posterior of an ``SVGP``. A layer whose ``inducing`` is
        None takes those of the model.
    likelihood : Likelihood
        With ``latents_per_output`` K, J = K P: row k P + p of f is the k-th function of output p.
    mixing : (J, L) array, tuple of arrays, or None
        None: f = g. For K > 1 a tuple of K matrices (P, L_k), each over latents of its own, because
        such a likelihood takes the functions of a datum to be independent; a list of matrices is
        read as a tuple. None for classes, for the same reason.
    mean : Mean, optional
        Mean function of the J functions.
    inducing : (M, D) array, or a record, optional
        Inducing inputs of all layers whose own are None. Its gradient is the sum over them.

    Notes
    -----
    Functions that take an ``SVGP`` and dispatch on the kind of model take a ``MultiGP`` too;
    ``multi_gp`` makes an initial one. Separate covariances are one layer per output without a
    mixing; the linear model of coregionalisation is several layers and a mixing; the intrinsic one
    is one layer of L outputs and a mixing, with one factor of Kuu for all. The scale of a column of
    the mixing and the variance of its latent function are one number too many: hold one of them
    fixed. Source: Alvarez, Rosasco and Lawrence, "Kernels for Vector-Valued Functions" (2012);
    van der Wilk et al., "A Framework for Interdomain and Multioutput Gaussian Processes" (2020).

    Examples
    --------
    >>> smooth = fs.layers.Layer(fs.RBF(1.0, 2.0), Z, fs.Whitened(np.zeros(6), np.eye(6)))
    >>> rough = fs.layers.Layer(fs.RBF(1.0, 0.3), Z, fs.Whitened(np.zeros(6), np.eye(6)))
    >>> multi = fs.MultiGP((smooth, rough), gaussian, mixing=np.array([[1.0, 0.2], [0.5, 1.0]]))
    >>> value, grad = fs.elbo_and_grad(multi, X, np.stack([Y, -Y], axis=1))
    >>> grad.mixing.shape, grad.latents[1].covariance.lengthscales.shape
    ((2, 2), ())
    """

    latents: "tuple[Layer, ...]"
    likelihood: Likelihood
    mixing: Array | tuple[Array, ...] | None = leaf("tuple", default=None)
    mean: Mean | None = None
    inducing: Array | Record | None = None

    keeps_axis = False  # whether one function has an axis

    def __post_init__(self):
        mixing_of_lists(self)

    @property
    def posterior_paths(self):
        """The dotted paths of the posteriors."""
        return paths_of(self)

    def check_parts(self):
        """Raise ``TypeError`` if a part has the wrong type."""
        check_latents(self)
        check.parts(self, ("likelihood",))


def paths_of(model):
    return tuple(f"latents.{number}.posterior" for number in range(len(model.latents)))


def mixing_of_lists(model):
    """Read a list of lists, or a tuple of rows, as one matrix, and a list of matrices as a tuple.

    Matrices in a tuple stay apart.
    """
    given = model.mixing
    if type(given) not in (list, tuple) or not given:
        return
    parts = tuple(array_of(part) if type(part) in (list, tuple) else part for part in given)
    dims = {getattr(part, "ndim", None) for part in parts}
    if dims == {2}:
        model.__dict__["mixing"] = parts
    elif type(given) is list or dims == {1} and {type(part) for part in parts} == {np.ndarray}:
        model.__dict__["mixing"] = array_of(list(parts))


def naming_latent(number):
    """Put the number of the latent layer in front of error messages."""
    return naming(f"latents[{number}]")


def sharing(model):
    """Return the numbers of the layers that take the inducing inputs of the model."""
    return tuple(i for i, layer in enumerate(model.latents) if layer.inducing is None)


def shared_paths(model):
    """Return the dotted paths that are None because the layers share ``inducing``."""
    return tuple(f"latents.{number}.inducing" for number in sharing(model))


def layers_of(model):
    """Return the layers, each with its inducing inputs."""
    return tuple(
        replace(layer, inducing=model.inducing) if layer.inducing is None else layer
        for layer in model.latents
    )


def columns_name(model):
    """Return the name, for messages, of what fixes the number of columns of the inputs."""
    name = model.latents[0].columns_of
    shared = model.latents[0].inducing is None and name == "`inducing`"
    return name if shared else name.replace("`", "`latents.0.", 1)


def counts_of(model):
    """Return the number of outputs of each layer."""
    return [number_of(layer.check_shapes()[1]) for layer in layers_of(model)]


def number_of(axes):
    """Return the number of outputs, from the leading axes () or (P,)."""
    return axes[0] if axes else 1


def check_latents(model):
    """Raise ``TypeError`` or ``ValueError`` unless ``latents`` are layers with inducing inputs."""
    latents = model.latents
    if not isinstance(latents, tuple) or not latents:
        came = f"a {type(latents).__name__}" + (
            f" of {len(latents)}" if isinstance(latents, (tuple, list)) else ""
        )
        raise TypeError(
            f"`latents` must be a tuple of at least one fastsvgp.layers.Layer, got {came}"
        )
    for number, layer in enumerate(latents):
        if not isinstance(layer, Layer):
            came = layer.__name__ + ", a class" if isinstance(layer, type) else type(layer).__name__
            raise TypeError(f"`latents[{number}]` must be a fastsvgp.layers.Layer, got {came}")
        with naming_latent(number):
            layer.check_parts()
        if layer.inducing is None and model.inducing is None:
            raise TypeError(
                f"`latents.{number}.inducing` is None, and so is `inducing`: give this layer its"
                " inducing inputs, or the model those of all layers"
            )
    if model.inducing is not None and not sharing(model):
        raise TypeError(
            "`inducing` is given, but every layer has inducing inputs: leave it out, or make"
            " `inducing` of the layers that share it None"
        )
    check.parts(model, ("mean",))


def check_functions(model):
    """Check the layers and the mixing; return ``(columns of the inputs, J functions)``."""
    sizes = []
    for number, layer in enumerate(layers_of(model)):
        with naming_latent(number):
            sizes.append(layer.check_shapes())
        if sizes[-1][0] != sizes[0][0]:
            raise ValueError(
                f"the inducing inputs of `latents[{number}]` have {sizes[-1][0]} columns, and those"
                f" of `latents[0]` {sizes[0][0]}: all layers see the same inputs"
            )
    D, L = sizes[0][0], sum(number_of(axes) for _, axes in sizes)
    J = _check_mixing(model.mixing, L)
    if model.mean is not None:
        model.mean.check_shapes(D, axes_of(model, J))
    return D, J


def _check_mixing(mixing, L):
    """Return J, the number of functions that a mixing makes of L; ``ValueError`` otherwise."""
    if mixing is None:
        return L
    shapes = [np.shape(W) for W in matrices(mixing)]
    several = isinstance(mixing, tuple)
    for number, shape in enumerate(shapes):
        if len(shape) != 2 or 0 in shape:
            name = f"mixing[{number}]" if several else "mixing"
            apart = "; give several matrices as a tuple" if len(shape) == 3 else ""
            raise ValueError(f"`{name}` must have shape (J, L), got {shape}{apart}")
    columns = sum(shape[1] for shape in shapes)
    if columns != L:
        came = " and ".join(map(str, shapes))
        raise ValueError(
            f"`mixing` has {columns} columns ({came}), and the layers have {L} outputs in total:"
            " each output needs one column"
        )
    return sum(shape[0] for shape in shapes)


def axes_of(model, J):
    """Return the leading axes of J functions: none for one, except of ``ParallelLayers``."""
    return (J,) if J > 1 or model.keeps_axis else ()


def _check_independent(model, J):
    """Refuse a mixing across functions that the likelihood takes to be independent."""
    likelihood, mixing = model.likelihood, model.mixing
    kind, K = type(likelihood).__name__, likelihood.latents_per_output
    if likelihood.num_latent is not None:
        if mixing is not None:
            raise ValueError(
                f"`mixing` must be None with a {kind} likelihood: its expectation takes the"
                " functions of the classes to be independent, and mixed ones are not"
            )
        if J != likelihood.num_latent:
            raise ValueError(
                f"{kind} with {likelihood.num_latent} classes reads as many functions, and"
                f" `latents` have {J} outputs"
            )
        return
    if K == 1 or mixing is None:
        if J % K:
            raise ValueError(
                f"{kind} reads {K} functions of each output, and there are {J} functions: their"
                f" number must be a multiple of {K}"
            )
        if isinstance(mixing, tuple) and len(mixing) != 1:
            raise ValueError(
                f"`mixing` is a tuple of {len(mixing)} matrices, and {kind} reads one function of"
                " each output: give one matrix (J, L)"
            )
        return
    if not isinstance(mixing, tuple) or len(mixing) != K:
        came = f"{len(mixing)} of them" if isinstance(mixing, tuple) else "one matrix"
        raise ValueError(
            f"`mixing` must be a tuple of {K} matrices (P, L_k) with {kind}, got {came}: its"
            f" {K} functions must be independent, so each needs latents of its own"
        )
    if len({np.shape(W)[0] for W in mixing}) > 1:
        raise ValueError(
            f"the matrices of `mixing` have {[np.shape(W)[0] for W in mixing]} rows: each needs P,"
            " the number of outputs"
        )


def check_multi_gp(model, X=check.ABSENT, Y=check.ABSENT, names=("X", "Y")):
    """Check and cast the arguments of a function of a MultiGP: ``(model, X, Y, dtype)``."""
    model.check_parts()
    model, X, Y, dtype = check.arguments(model, X, Y, names, shared_paths(model))
    if X is not check.ABSENT:
        for number, layer in enumerate(layers_of(model)):
            path = "inducing" if number in sharing(model) else f"latents.{number}.inducing"
            check.inducing_for(X, layer, (names[0], path))
    D, J = check_functions(model)
    model.likelihood.check_settings()
    _check_independent(model, J)
    if X is not check.ABSENT:
        check.columns(X, D, names[0], columns_name(model))
        for latent in model.latents:
            check.codes(latent.covariance, X, names[0])
        X = X.astype(dtype, copy=False)
    if Y is not check.ABSENT:
        Y = _targets(Y, len(X), model, J, dtype, names)
    return model, X, Y, dtype


def _targets(Y, N, model, J, dtype, names):
    """Check targets against J functions."""
    likelihood, K = model.likelihood, model.likelihood.latents_per_output
    P = J // K
    if likelihood.num_latent is None and P > 1 and check.axes_of_targets(Y, likelihood) != (P,):
        C = check.num_columns(likelihood)
        columns = "" if C == 1 else f", {C}"
        raise ValueError(
            f"`{names[1]}` has shape {Y.shape}, and {J} functions, {K} for each output, are for"
            f" targets of shape ({N}, {P}{columns})"
        )
    return check.targets(Y, N, axes_of(model, J), likelihood, dtype, names)
