"""Record of layers side by side, a hidden layer of a deep GP with covariances of their own."""

from ..layers.layer import Layer
from ..means import Mean
from ..records import leaf, record
from ..records.typed import Array, Record
from .latent_pass import LatentPass
from .model import (
    axes_of,
    check_functions,
    check_latents,
    columns_name,
    counts_of,
    mixing_of_lists,
    paths_of,
    shared_paths,
)


@record
class ParallelLayers:
    """Layers side by side on the same inputs, mixed linearly: a hidden layer of a ``DeepGP``.

    In the place of a ``Layer`` it gives hidden outputs covariances of their own. What is drawn is
    g, the outputs of all ``latents``; the layer above sees mixing g + mean(x).

    Parameters
    ----------
    latents, mixing, mean, inducing
        As in a ``MultiGP``; ``mixing`` is None or one matrix. In a last layer it is None for
        classes and for likelihoods of several functions per output.

    Examples
    --------
    >>> hidden = fs.layers.Layer(covariance, Z, fs.Whitened(np.zeros((1, 6)), np.eye(6)[None]))
    >>> both = fs.layers.ParallelLayers((hidden, hidden), mixing=np.ones((1, 2)),
    ...     mean=fs.means.IdentityMean())
    >>> deep = fs.DeepGP((both, fs.layers.Layer(covariance, Z, model.posterior)), gaussian)
    >>> fs.elbo_and_grad(deep, X, Y, rng=0)[1].layers[0].mixing.shape
    (1, 2)
    """

    latents: "tuple[Layer, ...]"
    mixing: Array | None = leaf("tuple", default=None)
    mean: Mean | None = None
    inducing: Array | Record | None = None

    keeps_axis = True  # of outputs, also if there is one

    def __post_init__(self):
        mixing_of_lists(self)

    @property
    def posterior_paths(self):
        """The dotted paths of the posteriors."""
        return paths_of(self)

    @property
    def shared_paths(self):
        """The dotted paths that are None because the layers share ``inducing``."""
        return shared_paths(self)

    @property
    def columns_of(self):
        """Name, for messages, of the field that fixes the number of columns of the inputs."""
        return columns_name(self)

    def check_parts(self):
        """Raise ``TypeError`` if a part has the wrong type."""
        check_latents(self)
        if isinstance(self.mixing, tuple):
            raise TypeError(
                "`mixing` must be one matrix (J, L), or None: a tuple of matrices is for the"
                " likelihood of a MultiGP"
            )

    def check_shapes(self):
        """Return ``(columns of the inputs, leading axes of the outputs)``.

        ``ValueError`` if the parts do not fit each other.
        """
        D, J = check_functions(self)
        return D, axes_of(self, J)

    @property
    def draws_each(self):
        """Numbers that are drawn per row: one per latent function."""
        return sum(counts_of(self))

    def start(self, jitter, columns=0, need=(), **more):
        """Begin a pass through these layers: a ``LatentPass``, with its arguments."""
        return LatentPass(self, jitter, columns, need, **more)
