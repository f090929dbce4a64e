"""Base classes of posteriors: records of their parameters, and passes through a bound."""

from itertools import accumulate
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from .. import kernels, models
from ..errors import NotPositiveDefinite, not_written
from ..records import Marginals, record
from ..runtime import deferred_checks

PosteriorT = TypeVar("PosteriorT", bound="Posterior")
# A name in ``need``: the data term is linear in the variances, so only a sum of them is needed.
# ``project`` may leave out what q(u) adds to them, and ``omitted_variances`` adds it up.
SUMS = "sum of variances"


class Projection(NamedTuple):
    """Result of ``Pass.project``: the latent function at a chunk of rows.

    Parameters
    ----------
    f : Marginals
        Marginals of the function, (..., N).
    rows
        Residuals of these rows for ``Pass.pull``.

    Examples
    --------
    >>> Projection(fs.records.Marginals(np.zeros(3), np.ones(3)), rows=None).f.mean
    array([0., 0., 0.])
    """

    f: Marginals
    rows: Any


class Joint(NamedTuple):
    """Result of ``Pass.joint``: the joint distribution of the latent function at N inputs.

    Parameters
    ----------
    mean : (..., N) array
    cov : (..., N, N) array

    Examples
    --------
    >>> Joint(np.zeros(3), np.eye(3)).cov.shape
    (3, 3)
    """

    mean: Any
    cov: Any


class Bars(NamedTuple):
    """Result of ``Pass.finish``: cotangents at the end of a pass.

    Parameters
    ----------
    posterior : record
        Cotangents in a record of the posterior's class; fields that are not needed are None.
    Kuu : (M, M) array, or None
        Cotangent of Kuu, symmetric.

    Examples
    --------
    >>> Bars(fs.Whitened(np.zeros(3), None), Kuu=None).posterior.mean
    array([0., 0., 0.])
    """

    posterior: Any
    Kuu: Any


class cached_attribute:
    """Cached attribute: calls the method at its first use and stores the result.

    On Python 3.11 ``functools.cached_property`` has one lock for all instances: threads wait for
    each other, and a child process forked meanwhile can deadlock. A pass belongs to one thread and
    needs no lock.
    """

    def __init__(self, method):
        self.method, self.__doc__ = method, method.__doc__

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        # later look-ups find the value in the instance's dictionary first
        value = instance.__dict__[self.method.__name__] = self.method(instance)
        return value


class Factor:
    """A lower factor L (M, M), and its ``inverse``, computed at first use."""

    def __init__(self, L):
        self.L = L

    @cached_attribute
    def inverse(self):
        return kernels.inverse_triangular(self.L)


class PriorFactor:
    """Kuu and its Cholesky factor; passes with different parameters can share it.

    Kuu : (M, M), without jitter
    jitter : absolute amount added to the diagonal of Kuu
    L : chol(Kuu + jitter I), computed at first use
    inverse : L^-1, computed at first use
    factor : L and its inverse without Kuu, for a pass that does not keep Kuu in memory
    """

    def __init__(self, Kuu, jitter):
        self.Kuu, self.jitter = Kuu, jitter

    @cached_attribute
    def L(self):
        return covariance_factor(self.Kuu, self.jitter)

    @cached_attribute
    def factor(self):
        return Factor(self.L)

    @property
    def inverse(self):
        return self.factor.inverse


class Pass:
    """One forward and backward pass through a bound.

    The forward pass calls ``project`` for each chunk of rows (at least one chunk, which can be
    empty). The backward pass calls ``pull`` for each chunk, in any order, each once, and then
    ``finish`` or ``natural_step``. ``kl`` can be called at any time.

    A pass holds the parameters in the form that its algebra needs, and the sums over chunks. Its
    ``PriorFactor`` holds what depends on Kuu only; the ``rows`` of a ``Projection`` hold what
    belongs to one chunk.

    clamped : number of marginal variances so far that rounding drove below eps kff and that were
        raised to it

    omits : whether ``project`` may leave out what q(u) adds to variances: see ``SUMS``

    Examples
    --------
    >>> blocks = covariance.blocks(Z, X)
    >>> work = model.posterior.start(blocks.Kuu, 1e-6)
    >>> f = work.project(blocks.Kuf, blocks.kff).f
    >>> f.mean.shape, float(work.kl())
    ((40,), 0.0)
    """

    clamped: Any = 0
    omits: bool = False
    # whether passes with one prior share ``rows``: see ``WhitenedPass.project_rows``
    shares_rows: ClassVar[bool] = False

    def count_clamped(self, raised):
        """Add a result of ``raise_to_floor``; the first count on a device needs no addition."""
        self.clamped = (
            raised if isinstance(self.clamped, int) and self.clamped == 0 else self.clamped + raised
        )

    def project(self, Kuf, kff) -> Projection:
        """Compute marginals (..., N) at a chunk of rows, from Kuf (M, N) and kff (N,)."""
        raise not_written(self, "project", "posterior")

    def omitted_variances(self) -> float:
        """What the omitted variances add to the data term, after the last ``pull``."""
        return 0.0

    def joint(self, Kuf, Kff) -> Joint:
        """Compute the joint distribution at N inputs, from Kuf (M, N) and Kff (N, N)."""
        raise not_written(self, "joint", "posterior")

    def pull(self, rows, f_bar):
        """Accumulate the cotangents of the marginals at these rows.

        Returns ``Kuf_bar`` (M, N) if "blocks" or "blocks.Kuf" are needed. Consumes ``rows``.
        """
        raise not_written(self, "pull", "posterior")

    def kl(self):
        """KL[q(u) || p(u)], a float."""
        raise not_written(self, "kl", "posterior")

    def natural_sums(self):
        """Arrays with the sums over rows of ``natural_step``; a group writes those of all ranks."""
        raise not_written(self, "natural_sums", "posterior")

    def finish(self, kl_bar) -> Bars:
        """Compute the cotangents of everything that all rows share; that of the KL is ``kl_bar``.

        Consumes the sums.
        """
        raise not_written(self, "finish", "posterior")

    def natural_step(self, step_size):
        """Compute the posterior after one natural-gradient step of the bound, KL included.

        The pass must have been started with "natural_step" in ``need``. Keeps the sums. Raises
        ``NotPositiveDefinite`` if the new precision is not positive definite.
        """
        raise not_written(self, "natural_step", "posterior")


class CholeskyPass(Pass):
    """A pass that computes L^-1 Kuf: by solves, or by products with L^-1 where these are faster.

    L : (M, M)
    by_inverse : whether products are faster, given the number of columns
    """

    def __init__(self, prior, columns):
        self.L, self._factor = prior.L, prior.factor
        self.by_inverse = kernels.prefers_inverse(self.L, columns)

    @property
    def inverse(self):
        """L^-1, or None. Computed at first use: a pass for the KL only never needs it."""
        return self._factor.inverse if self.by_inverse else None

    def _solve(self, B, transpose=False, overwrite_b=False):
        """op(L)^-1 B."""
        if self.by_inverse and B.size:
            return kernels.multiply_triangular(self.inverse, B, transpose, overwrite_b)
        return kernels.solve_triangular(self.L, B, transpose, overwrite_b)


@record
class Posterior:
    """Base of Gaussian posteriors q(u) over M inducing variables.

    A subclass provides ``check_size`` and ``start_from``. docs/posterior.md shows how to add a
    posterior, step by step.

    Examples
    --------
    >>> isinstance(model.posterior, fs.posteriors.Posterior)
    True
    """

    num_sets: ClassVar[int] = 1  # number of sets of inducing inputs: 2 for an ``InducingPair``
    names: ClassVar[tuple[str, ...]] = ("",)  # of the sets; fields are named ``mean_u`` for "u"
    natural_fields: ClassVar[tuple[str, ...]] = ()  # fields that a natural step updates
    no_natural_step: ClassVar[str] = "it has no natural-gradient step"  # the reason, if so
    # whether ``fit`` takes natural steps by default
    natural_by_default: ClassVar[bool] = False
    kl_depends_on_Kuu: ClassVar[bool] = True  # and so on the covariance and the inducing inputs
    sums_variances: ClassVar[bool] = False  # whether ``start_from`` knows ``SUMS``
    held_fields: ClassVar[tuple[str, ...]] = ()  # fields that first-order steps of ``fit`` keep
    starts_at_prior: ClassVar[bool] = False  # whether ``at_prior`` can construct one
    # field with a factor of an inverse, which training refreshes: see ``inverse_of``
    inverse_field: ClassVar[str | None] = None
    # step directions other than the gradient; ``start_from`` takes one as ``direction=``
    directions: ClassVar[tuple[str, ...]] = ()
    # names of random arguments of ``start_from``, which ``draw`` makes
    random_quantities: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls):
        models.RANDOM_QUANTITIES.update(cls.random_quantities)

    def check_size(self, M):
        """Return the leading axes of the fields; raise ``ValueError`` unless they fit M.

        M : number of inducing variables, one argument per set.
        """
        raise not_written(self, "check_size", "posterior")

    def set_sizes(self, M):
        """Split M, the total number of inducing variables, into the arguments of ``check_size``."""
        return (M,)

    def spans(self, M):
        """Return ``(name, slice)`` of each set in the stack of all M inducing variables."""
        sizes = self.set_sizes(M)
        ends = accumulate(sizes)
        return [
            (name, slice(end - size, end))
            for name, size, end in zip(self.names, sizes, ends, strict=True)
        ]

    def start(self, Kuu, jitter, columns=0, need=(), **more) -> Pass:
        """Begin a pass from Kuu (M, M); other arguments as for ``start_from``."""
        return self.start_from(PriorFactor(Kuu, jitter), columns, need, **more)

    def start_from(self, prior, columns=0, need=(), **more) -> Pass:
        """Begin a pass.

        Parameters
        ----------
        prior : PriorFactor
        columns : int
            Number of data that will be pulled; used to choose the cheapest form.
        need : tuple of str
            Requested results: "posterior" or single fields ("posterior.mean"), "blocks" or one of
            them ("blocks.Kuf", "blocks.Kuu"), "natural_step".
        **more
            Random quantities as ``draw`` made them; ``direction``, one of ``directions``.
        """
        raise not_written(self, "start_from", "posterior")

    def natural_shapes(self):
        """Kind and shape of each of ``natural_sums``; of a "tril" the lower triangle counts."""
        shapes = [np.shape(getattr(self, name)) for name in self.natural_fields]
        least = min(map(len, shapes))
        M = sum(shape[-1] for shape in shapes if len(shape) == least)
        P = shapes[0][0] if least > 1 else 1
        return [("real", (P, M)), ("tril", (P, M, M))]

    def draw(self, name, value, M, dtype, rng):
        """Draw the random quantity ``name`` of a bound, or check a given value of it."""
        raise not_written(self, "draw", "posterior")

    def path_weights(self, prior, values, normal):
        """Draw the weights v (P, M, S) that turn S prior functions f0 into functions under q.

        Matheron's rule: with u0 the inducing variables of f0, and u ~ q(u) independent of it,

            f(x) = f0(x) + k(x, Z) v,    v = (Kuu + jitter I)^-1 (u - u0)

        has the distribution of f under q, because f0(x) - k(x, Z) (Kuu + jitter I)^-1 u0 is
        independent of u0. Any other v with the same E v and the same joint covariance with u0
        gives the same Gaussian, so a posterior can avoid the inverse.

        Here the moments of u come from ``joint`` of the pass: that of one more point with the
        covariances of u. ``prior.jitter`` is added to the covariance of u for its factor. A
        subclass with a factor of its own can do without; it is then a few lines.

        Parameters
        ----------
        prior : PriorFactor
        values : (P, M, S)
            u0, with the covariance Kuu + jitter I. Can be overwritten.
        normal : function
            ``normal(*shape)`` draws standard normal numbers.
        """
        K = add_to_diagonals(prior.Kuu.copy(), prior.jitter)
        try:
            u = self.start_from(prior).joint(K, K)
        except NotImplementedError:
            raise TypeError(
                f"sample_paths: a {type(self).__name__} posterior has no rule for paths; its class"
                " needs `path_weights`, or a pass with `joint`"
            ) from None
        root = kernels.cholesky(u.cov, prior.jitter)
        draws = gaussian_draws(u.mean, root, values.shape[-1], normal)
        half = kernels.solve_triangular(prior.L, draws - values, overwrite_b=True)
        return kernels.solve_triangular(prior.L, half, transpose=True, overwrite_b=True)

    def inverse_of(self, Kuu, jitter):
        """``(A, smallest)``: the field L = ``inverse_field`` should satisfy L L' = A^-1.

        smallest : a lower bound of the eigenvalues of A
        """
        raise not_written(self, "inverse_of", "posterior")


def sum_over_outputs(var_bar):
    """Sum cotangents of the variances (..., N) over outputs: the cotangents of kff (N,)."""
    return var_bar if var_bar.ndim == 1 else var_bar.sum(axis=0)


def check_vector_and_matrix(q, M, first="mean", second="scale_tril"):
    """``check_size`` for a field (..., M), such as a mean, and a field (..., M, M), a factor."""
    vector, matrix = np.shape(getattr(q, first)), np.shape(getattr(q, second))
    if len(vector) not in (1, 2) or vector[-1] != M or vector[0] == 0 or matrix != vector + (M,):
        raise ValueError(
            f"`posterior` has {first} {vector} and {second} {matrix}, but there are {M} inducing"
            f" inputs: use {first} ({M},) with {second} ({M}, {M}), or {first} (P, {M}) with"
            f" {second} (P, {M}, {M}) for P outputs"
        )
    return vector[:-1]


def covariance_factor(K, jitter):
    """L = chol(K + jitter I), for a covariance K (..., M, M) of values of functions.

    Without jitter, refuse pivots of the size of rounding errors, as duplicated inputs give: whether
    these are positive depends on the BLAS kernel.
    """
    L = kernels.cholesky(K, jitter)
    if jitter == 0:
        M = K.shape[-1]
        pivots = np.square(L.diagonal(0, -2, -1))
        lost = pivots <= 2 * M * np.finfo(L.dtype).eps * K.diagonal(0, -2, -1)
        if not deferred_checks.none(lost):
            *batch, pivot = np.argwhere(lost)[0].tolist()
            raise NotPositiveDefinite(batch, pivot, jitter, M, L.dtype)
    return L


raise_to_floor = kernels.raise_to_floor


def add_to_diagonals(A, amount):
    """Add to the diagonals of A (..., M, M), C-contiguous, in place; return A."""
    M = A.shape[-1]
    A.reshape(-1, M * M)[:, :: M + 1] += amount
    return A


def identities(mean):
    """Identity factors (..., M, M), one per mean (..., M)."""
    return add_to_diagonals(np.zeros((*mean.shape, mean.shape[-1]), mean.dtype, like=mean), 1)


def solve_vectors(L, vectors, transpose=False):
    """``L^-1 v``, or ``L^-T v``, for each of the vectors (..., M)."""
    return kernels.solve_triangular(L, vectors[..., None], transpose=transpose)[..., 0]


def gaussian_draws(mean, tril, count, normal):
    """Draw (P, M, count) from N(mean, tril tril'), for mean (..., M) and tril (..., M, M)."""
    M = mean.shape[-1]
    means, trils = mean.reshape(-1, M, 1), tril.reshape(-1, M, M)
    draws = kernels.multiply_triangular(trils, normal(len(means), M, count), overwrite_b=True)
    draws += means
    return draws


def path_weights_of_whitened(L, draws, values):
    """``L^-T (draws - L^-1 values)``, as in ``path_weights``, for draws of L^-1 u. Overwrites them.

    Each argument but L has the shape (P, M, S).
    """
    draws -= kernels.solve_triangular(L, values, overwrite_b=True)
    return kernels.solve_triangular(L, draws, transpose=True, overwrite_b=True)


def needs(need, name, root="posterior"):
    """Whether ``need`` holds ``root`` or ``root.name``."""
    return root in need or f"{root}.{name}" in need


def gradient(q, **bars):
    """A record of the type of ``q`` with these cotangents, and None in the other fields."""
    return type(q)(
        **{
            name: getattr(q, name) if kind == "static" else bars.get(name)
            for name, kind in q._record_fields
        }
    )
