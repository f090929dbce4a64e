"""Records of a deep GP, and the argument checks of its public functions."""

import numpy as np

from .. import check
from ..bounds.posterior_passes import layer_pass
from ..covariances import Covariance
from ..covariances.checks import refuse_codes
from ..errors import BadEntry, NotPositiveDefinite
from ..likelihoods import Likelihood
from ..means import Mean
from ..posteriors import Posterior
from ..posteriors.locate import posteriors_of
from ..records import record, replace
from ..records.typed import Array, Record
from .convolutional import ConvolutionalLayer


@record
class Layer:
    """P functions of one layer's inputs, with a common covariance and common inducing inputs.

    Parameters
    ----------
    covariance : Covariance
    inducing : (M, D) array, or a record
        As in an ``SVGP``; inputs of this layer. None in a ``MultiGP`` that has them.
    posterior : Posterior
        Any posterior of an ``SVGP``. In a hidden layer its fields have a leading axis of P outputs,
        the columns of the next layer's inputs; in the last layer they are as in an ``SVGP``.
    mean : Mean, optional
        Added to the functions; ``None`` is zero. A hidden layer with a zero mean forgets its
        inputs: use ``IdentityMean()`` or ``pca_mean(X, P)``.

    Examples
    --------
    >>> layer = fs.layers.Layer(covariance, inducing=Z, posterior=model.posterior)
    >>> fs.DeepGP((layer,), gaussian).likelihood
    Gaussian(variance=0.1)
    """

    covariance: Covariance
    inducing: Array | Record | None
    posterior: Posterior
    mean: Mean | None = None

    @property
    def columns_of(self):
        """Name, for messages, of the field that fixes the number of columns of the inputs."""
        return self.covariance.columns_of

    def check_parts(self):
        """Raise ``TypeError`` if a part has the wrong type."""
        check.parts(self)

    def check_shapes(self):
        """Return ``(columns of the inputs, leading axes of the outputs)``.

        ``ValueError`` if the parts do not fit each other.
        """
        sizes, D = check.inducing(
            self, self.posterior.num_sets, f"a {type(self.posterior).__name__} posterior"
        )
        outputs = self.posterior.check_size(*sizes)
        if self.mean is not None:
            self.mean.check_shapes(D, outputs)
        return D, outputs

    def start(self, jitter, columns=0, need=(), **more):
        """Begin a pass through this layer: a ``LayerPass``, with its arguments."""
        return layer_pass(self, jitter, columns, need, **more)


@record
class DeepGP:
    """Layers of Gaussian processes, each on draws of the layer below, and a likelihood.

    Parameters
    ----------
    layers : tuple of Layer, ConvolutionalLayer or ParallelLayers
        From the inputs upwards. All but the last are hidden.
    likelihood : Likelihood

    Notes
    -----
    Functions that take an ``SVGP`` and dispatch on the kind of model take a ``DeepGP`` too;
    ``deep_gp`` makes an initial one. Source: Salimbeni and Deisenroth, "Doubly Stochastic
    Variational Inference for Deep Gaussian Processes" (2017); Shi et al. 2020, section 6.2.

    Examples
    --------
    >>> q = fs.Whitened(np.zeros((1, 6)), np.eye(6)[None])
    >>> hidden = fs.layers.Layer(covariance, Z, q, fs.means.IdentityMean())
    >>> deep = fs.DeepGP((hidden, fs.layers.Layer(covariance, Z, model.posterior)), gaussian)
    >>> value, grad = fs.elbo_and_grad(deep, X, Y, num_samples=2, rng=0)
    >>> grad.layers[0].inducing.shape
    (6, 1)
    """

    layers: tuple[Layer | ConvolutionalLayer | Record, ...]
    likelihood: Likelihood

    draws_rows = True  # a bound draws numbers for each row

    @property
    def posterior_paths(self):
        """The dotted paths of the posteriors."""
        return tuple(
            f"layers.{number}.{path}"
            for number, layer in enumerate(self.layers)
            for path in posteriors_of(layer)
        )


class naming:
    """Context manager that puts the name of a part of the model in front of error messages."""

    def __init__(self, name):
        self._name = name

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if (
            isinstance(error, (TypeError, ValueError, NotPositiveDefinite))
            and error.args
            and isinstance(error.args[0], str)
        ):
            if isinstance(error, BadEntry):  # it puts the name of the array in quotes itself
                error.name = f"{self._name}.{error.name}"
                error.args = (error.name, *error.args[1:])
            else:
                error.args = (f"`{self._name}`: {error.args[0]}", *error.args[1:])


def naming_layer(number):
    """Put the number of the layer in front of error messages."""
    return naming(f"layers[{number}]")


def check_deep(model, X=check.ABSENT, Y=check.ABSENT, names=("X", "Y")):
    """Check and cast the arguments of a function of a deep GP: ``(model, X, Y, dtype)``.

    ``check.svgp`` does the same for an SVGP.
    """
    check_parts(model)
    absent = tuple(
        f"layers.{number}.{path}"
        for number, layer in enumerate(model.layers)
        for path in getattr(layer, "shared_paths", ())  # of ``ParallelLayers``
    )
    model, X, Y, dtype = check.arguments(model, X, Y, names, absent)
    if X is not check.ABSENT:
        for path, layer in _seeing_inputs(model.layers[0]):
            check.inducing_for(X, layer, (names[0], path))
    D, outputs = _check_chain(model.layers)
    model.likelihood.check_settings()
    latent = model.likelihood.num_latent
    if latent is not None and outputs != (latent,):
        raise ValueError(
            f"the fields of `posterior` of the last layer have leading axes {outputs}, "
            f"but {type(model.likelihood).__name__} with {latent} classes needs ({latent},)"
        )
    check.outputs_of(model.likelihood, outputs, "posterior")
    _check_independent(model)
    if X is not check.ABSENT:
        check.columns(X, D, names[0], model.layers[0].columns_of)
        for _, layer in _seeing_inputs(model.layers[0]):
            check.codes(layer.covariance, X, names[0])
        X = X.astype(dtype, copy=False)
    if Y is not check.ABSENT:
        Y = check.targets(Y, len(X), outputs, model.likelihood, dtype, names)
    return model, X, Y, dtype


def _seeing_inputs(first):
    """Yield ``(path of the inducing inputs, layer)`` of the layers in the first one of a chain."""
    if isinstance(first, Layer):
        yield "layers.0.inducing", first
    for number, layer in enumerate(getattr(first, "latents", ())):  # of ``ParallelLayers``
        if layer.inducing is None:
            yield "layers.0.inducing", replace(layer, inducing=first.inducing)
        else:
            yield f"layers.0.latents.{number}.inducing", layer


def check_parts(model):
    layers = model.layers
    if not isinstance(layers, tuple) or not layers:
        came = f"a {type(layers).__name__}" + (
            f" of {len(layers)}" if isinstance(layers, (tuple, list)) else ""
        )
        raise TypeError(
            f"`layers` must be a tuple of at least one fastsvgp.layers.Layer, got {came}"
        )
    for number, layer in enumerate(layers):
        if not hasattr(layer, "start") or isinstance(layer, type):
            came = layer.__name__ + ", a class" if isinstance(layer, type) else type(layer).__name__
            raise TypeError(f"`layers[{number}]` must be a fastsvgp.layers.Layer, got {came}")
        with naming_layer(number):
            layer.check_parts()
    check.parts(model, ("likelihood",))


def _check_independent(model):
    """Refuse a mixing below a likelihood that takes the functions of a datum to be independent."""
    likelihood, top = model.likelihood, len(model.layers) - 1
    reads_several = likelihood.num_latent is not None or likelihood.latents_per_output > 1
    if reads_several and getattr(model.layers[-1], "mixing", None) is not None:
        raise ValueError(
            f"`layers[{top}]`: `mixing` must be None with a {type(likelihood).__name__} likelihood:"
            " its expectation takes the functions of a datum to be independent, and mixed ones are"
            " not"
        )


def _check_chain(layers):
    """Return the columns of the first layer's inputs and the leading axes of the last outputs."""
    sizes = []
    for number, layer in enumerate(layers):
        with naming_layer(number):
            for part in getattr(layer, "latents", (layer,)) if number else ():
                refuse_codes("covariance", part.covariance, f"outputs of `layers[{number - 1}]`")
            sizes.append(layer.check_shapes())
    for number, ((_, outputs), (D, _)) in enumerate(zip(sizes, sizes[1:], strict=False)):
        if not outputs:
            raise ValueError(
                f"`layers[{number}]`: the fields of a hidden layer's `posterior` need a leading"
                f" axis, its outputs: use mean ({D}, M), whose {D} outputs are the columns that"
                f" `layers[{number + 1}]` takes"
            )
        below, above = layers[number : number + 2]
        made, taken = getattr(below, "output_shape", outputs), _image_of(above) or (D,)
        if outputs != (D,) or len(made) == len(taken) != 1 and made != taken:
            raise ValueError(
                f"`layers[{number}]` has {_describe(made)} outputs, but the inducing inputs of"
                f" `layers[{number + 1}]` are for {_describe(taken)} columns; the outputs of a"
                " layer are the columns of the next"
            )
    return sizes[0][0], sizes[-1][1]


def _image_of(layer):
    """Return (H, W, C) of a layer on images, or of its covariance on images; else None."""
    covariance = getattr(layer, "covariance", None)  # none of ``ParallelLayers``
    geometry = getattr(layer, "geometry", None) or getattr(covariance, "geometry", None)
    return geometry and geometry[:3]


def _describe(shape):
    """Describe a shape and its product."""
    return " x ".join(map(str, shape)) + (f" = {np.prod(shape)}" if len(shape) > 1 else "")


def widths(layers):
    """Return how many numbers are drawn per row in each hidden layer: its outputs, mostly."""
    return [
        getattr(layer, "draws_each", None) or layer.check_shapes()[1][0] for layer in layers[:-1]
    ]
