"""The protocol between bounds and layers: what a layer's pass does, and what a kind of model adds.

A model is a layer and a likelihood. A layer is whatever has a pass with these methods: one set of
inducing variables or several, a chain of layers, latent functions with their mixing, layers on
patches, sites. Bounds, predictions, natural steps and ranks call these methods and no others.
"""

from typing import Any, NamedTuple, Protocol

from .. import check
from ..likelihoods.layout import laid_out, stack_latents
from ..records import Marginals

ALL = slice(None)


class LayerProtocol(Protocol):
    """A forward and backward pass through a layer; the classes that fulfil it derive from it.

    N rows of X, B rows of the call, S draws of a row, P functions. The chunks of a call come in
    order. A hidden layer of a deep GP also has ``floor``; one that maps its draws has ``of_draws``
    and ``draws_vjp``, as a ``LatentPass``.

    Attributes
    ----------
    num_inducing : int
        M, of passes with one matrix Kuf.
    sizes : list of (int, int)
        For each matrix Kuf: inducing variables, and columns per row of X. Sets the size of chunks.
    samples : int
        S: draws per row. Marginals have S N columns, draw by draw.
    clamped : int
        Number of variances that rounding drove below their floor.
    shares_rows : bool
        Whether the pass keeps its blocks for that of a gradient after a natural step.
    """

    samples: int = 1
    shares_rows: Any = False
    clamped: Any = 0
    num_inducing: int

    @property
    def sizes(self):
        return [(self.num_inducing, 1)]

    def forward(self, X, rows=ALL) -> tuple[Marginals, Any]:
        """Return marginals (P, S N) or (S N,), and residuals for ``pull``.

        X (N, D) are the ``rows`` (a slice) of the B inputs of the call. M^2 N flops per function.
        """
        raise NotImplementedError

    def data_term(self, likelihood, Y, f, rng=None, need=True, **weights) -> tuple:
        """Return ``(ell, f_bar, likelihood_bar)`` of the marginals, as ``expected_log_prob``."""
        ell, f_bar, likelihood_bar = likelihood.expected_log_prob(
            Y, laid_out(likelihood, f), rng, need=need, **weights
        )
        return ell, stack_latents(likelihood, f_bar), likelihood_bar

    def pull(self, residuals, f_bar) -> Any:
        """Add the cotangents of the parameters; return those of X (N, D), or None if not needed.

        Consumes the residuals of a ``forward``. About twice its flops.
        """
        raise NotImplementedError

    def means(self, X, rows=ALL) -> Any:
        """Return the means of ``forward`` alone. 2 M N flops per function."""
        return self.forward(X, rows)[0].mean

    def joint(self, X) -> Any:
        """Return the ``Joint`` moments of each function at all X: covariances (P, N, N)."""
        raise NotImplementedError

    def joint_outputs(self, X) -> tuple[Any, Any]:
        """Return means (P, N) and covariances (N, P, P) over the functions at each row."""
        raise TypeError(f"{type(self).__name__} does not mix functions")

    def sample(self, X, num_samples, jitter, rng, name=None) -> Any:
        """Draw functions at all X: (num_samples, N) or (num_samples, N, P).

        ``name`` is that of X in errors. N^3 / 3 flops per function.
        """
        raise NotImplementedError

    def kl(self) -> float:
        """Return KL[q(u) || p(u)], of all inducing variables."""
        raise NotImplementedError

    def finish(self, kl_bar) -> Any:
        """Return the cotangents of the layer's fields: of all pulled rows, and of the KL term.

        Ends the pass and frees its memory. M^3 flops.
        """
        raise NotImplementedError

    def natural_sums(self) -> Any:
        """Return the sums over rows of a natural step, which ranks add up in place.

        Those with three axes are matrices of which only the lower triangles count.
        """
        raise NotImplementedError

    def natural_step(self, step_size) -> Any:
        """Return the posterior after a natural step. M^3 flops."""
        raise NotImplementedError

    def omitted_variances(self) -> Any:
        """Return what variances that the marginals leave out add to the data term."""
        return 0.0

    def follow(self, model, jitter, columns, need, **quantities) -> Any:
        """Begin a pass of the model after the step that takes the blocks of this one.

        For passes with ``shares_rows``.
        """
        raise TypeError(f"{type(self).__name__} does not keep its blocks")


class Functions(NamedTuple):
    """The functions of a model: f = mixing g + mean, where g are the outputs of the layers.

    mixing : (J, L) array or None
    axes : leading axes of f; None for those of the one layer
    """

    layers: tuple
    mixing: Any = None
    mean: Any = None
    axes: tuple | None = None


class ModelKind:
    """What a kind of model with one likelihood above one layer supplies."""

    def checked(self, model, X=check.ABSENT, Y=check.ABSENT, names=("X", "Y")):
        """Check and cast the arguments of a call: ``(model, X, Y, dtype)``."""
        raise NotImplementedError

    def quantities(self, model, X, dtype, rng, options, partition=None):
        """Return the random quantities of a pass by name, drawn, given the ``options`` of the call.

        With ``partition`` X are some of the rows of all ranks.
        """
        raise NotImplementedError

    def points(self, model, X, options):
        """Return the quantities of a pass for predictions at X, given the options of the call."""
        return {}

    def check_joint(self):
        """Raise ``ValueError`` if the functions at several rows are not jointly Gaussian."""

    def begin(self, model, jitter, columns=0, need=(), **quantities) -> LayerProtocol:
        """Begin the pass of a checked model.

        ``columns``: number of rows that will be pulled. ``need``: dotted names of the model's
        fields to differentiate; "inputs"; "natural_step"; ``MEANS``; ``KL``; ``SUMS``.
        """
        raise NotImplementedError

    def gradient(self, model, bars, likelihood_bar):
        """Make the record of a gradient from the result of ``finish``, or from None."""
        raise NotImplementedError

    def functions(self, model) -> Functions | None:
        """Return what moments over uncertain inputs need; None if the model has draws of a row."""
        return None

    def check_natural(self, function, model):
        """Raise ``TypeError`` if a posterior of the model has no natural steps."""
        raise NotImplementedError

    def turns(self, call, shares=False):
        """Yield the ``Turn`` of each part of a natural step; is sent the model after each.

        ``shares``: a gradient on the same batch follows.
        """
        raise NotImplementedError


class Turn(NamedTuple):
    """A part of a natural step: the pass, and ``model_with(result of natural_step)``."""

    layer: Any
    model_with: Any


KINDS: dict[type, ModelKind] = {}
AT_RECORDS: dict[type, Any] = {}  # by the type of inputs that are a record: its kind of a kind


def kind_of(model, X=None) -> ModelKind:
    """Return the ``ModelKind`` of a model; a class derived from a kind is another kind.

    X : inputs of predictions; some records are served
    """
    kind = KINDS[type(model)]
    return AT_RECORDS[type(X)](kind, X) if type(X) in AT_RECORDS else kind
