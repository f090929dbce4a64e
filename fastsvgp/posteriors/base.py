"""What every posterior offers to the bounds: a record of its parameters, and passes through a bound."""

from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from .. import kernels, models
from ..errors import NotPositiveDefinite
from ..records import Marginals, record
from ..runtime import deferred_checks

PosteriorT = TypeVar("PosteriorT", bound="Posterior")


class Projection(NamedTuple):
    """What ``Pass.project`` gives: the latent function at a run of rows.

    Parameters
    ----------
    f : Marginals
        (..., N).
    rows
        What ``Pass.pull`` needs of these rows.

    Examples
    --------
    >>> Projection(fs.Marginals(np.zeros(3), np.ones(3)), rows=None).f.mean
    array([0., 0., 0.])
    """

    f: Marginals
    rows: Any


class Joint(NamedTuple):
    """What ``Pass.joint`` gives: the latent function at N inputs jointly.

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
    """What ``Pass.finish`` gives: cotangents at the end of a pass.

    Parameters
    ----------
    posterior : record
        Of the posterior's class; fields that nobody needs are None.
    Kuu : (M, M) array, or None
        Symmetric.

    Examples
    --------
    >>> Bars(fs.Whitened(np.zeros(3), None), Kuu=None).posterior.mean
    array([0., 0., 0.])
    """

    posterior: Any
    Kuu: Any


class once:
    """A method without arguments as an attribute, computed where it is first asked for.

    ``functools.cached_property`` has one lock for all instances on Python 3.11: threads take turns
    at it, and a child forked meanwhile waits for it for ever. A pass belongs to one thread, and
    needs none.
    """

    def __init__(self, method):
        self.method, self.__doc__ = method, method.__doc__

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        # found before this from then on
        value = instance.__dict__[self.method.__name__] = self.method(instance)
        return value


class Factor:
    """L (M, M), a lower factor, and its ``inverse``, computed where it is first asked for."""

    def __init__(self, L):
        self.L = L

    @once
    def inverse(self):
        return kernels.inverse_triangular(self.L)


class Prior:
    """What depends on Kuu alone; passes with other parameters may share one.

    Kuu : (M, M), without jitter; jitter : the absolute amount added to its diagonal
    L : chol(Kuu + jitter I); inverse : of L. Both computed where they are first asked for.
    factor : the two without Kuu, for a pass that holds them and lets Kuu go
    """

    def __init__(self, Kuu, jitter):
        self.Kuu, self.jitter = Kuu, jitter

    @once
    def L(self):
        return prior_factor(self.Kuu, self.jitter)

    @once
    def factor(self):
        return Factor(self.L)

    @property
    def inverse(self):
        return self.factor.inverse


class Pass:
    """One way through a bound: forward by ``project``, run of rows by run of rows (at least one, which may be empty), back by
    ``pull``, and ``finish``.

    A pass holds the parameters as its algebra wants them, and the sums over runs; what depends on
    Kuu alone is in the ``Prior`` that it began with, what belongs to one run of rows in the
    ``rows`` of its ``Projection``. Runs are pulled in any order, each once, and before ``finish``
    or ``natural_step``; ``kl`` may be called at any time.

    clamped : number of marginal variances so far that rounding had driven below eps kff, and that were raised to it

    Examples
    --------
    >>> blocks = covariance.blocks(Z, X)
    >>> work = model.posterior.start(blocks.Kuu, 1e-6)
    >>> f = work.project(blocks.Kuf, blocks.kff).f
    >>> f.mean.shape, float(work.kl())
    ((40,), 0.0)
    """

    clamped: Any = 0
    # whether passes with one prior share ``rows``: see ``Whitening.project_rows``
    shares_rows: ClassVar[bool] = False

    def count_clamped(self, raised):
        """Add what ``raise_to_floor`` returned; on a device the first count is no sum."""
        self.clamped = (
            raised if isinstance(self.clamped, int) and self.clamped == 0 else self.clamped + raised
        )

    def project(self, Kuf, kff) -> Projection:
        """Marginals (..., N) at a run of rows, for Kuf (M, N), kff (N,)."""
        raise NotImplementedError

    def joint(self, Kuf, Kff) -> Joint:
        """For predictions, from Kuf (M, N), Kff (N, N)."""
        raise NotImplementedError

    def pull(self, rows, f_bar):
        """Take in the cotangents of the marginals at these rows; ``Kuf_bar`` (M, N) if "blocks" are needed. Consumes ``rows``."""
        raise NotImplementedError

    def kl(self):
        """KL[q(u) || p(u)], a float."""
        raise NotImplementedError

    def natural_sums(self):
        """What ``natural_step`` knows of the rows, for sums over several ranks to be written into: Lam a (P, M), and G (P, M, M),
        of which the lower triangles count.
        """
        return self.Lam_a, self.G

    def finish(self, kl_bar) -> Bars:
        """Cotangents of what all rows share, the KL term with its own ``kl_bar``.

        Consumes the sums.
        """
        raise NotImplementedError

    def natural_step(self, step_size):
        """The posterior after one natural-gradient step of the bound, KL included; the pass began with that need. Keeps the sums.

        Raises ``NotPositiveDefinite`` where the step leaves the cone.
        """
        raise NotImplementedError


class WhiteningPass(Pass):
    """A pass that takes Kuf through L^-1: by solves, or by products with the inverse where these are the better choice.

    L : (M, M); by_inverse : whether they are, for so many columns
    """

    def __init__(self, prior, columns):
        self.L, self._factor = prior.L, prior.factor
        self.by_inverse = kernels.prefers_inverse(self.L, columns)

    @property
    def inverse(self):
        """L^-1, or None. Made where it is first used: a KL term alone has nothing to multiply."""
        return self._factor.inverse if self.by_inverse else None

    def _solve(self, B, transpose=False, overwrite_b=False):
        """op(L)^-1 B."""
        if self.by_inverse and B.size:
            return kernels.multiply_triangular(self.inverse, B, transpose, overwrite_b)
        return kernels.solve_triangular(self.L, B, transpose, overwrite_b)


@record
class Posterior:
    """Base of Gaussian posteriors q(u) over M inducing variables.

    A member provides ``check_size`` and ``start_from``.

    docs/posterior.md adds one, step by step.

    Examples
    --------
    >>> isinstance(model.posterior, fs.Posterior)
    True
    """

    num_sets: ClassVar[int] = 1  # of inducing inputs: 2 for an ``InducingPair``
    natural_fields: ClassVar[tuple[str, ...]] = ()  # what a natural step moves
    no_natural_step: ClassVar[str] = "it has no natural-gradient step"  # why, where these are none
    # whether ``fit`` takes natural steps unless it is told otherwise
    natural_by_default: ClassVar[bool] = False
    kl_depends_on_Kuu: ClassVar[bool] = True  # and so on the covariance and the inducing inputs
    held_fields: ClassVar[tuple[str, ...]] = ()  # what first-order steps of ``fit`` leave alone
    starts_at_prior: ClassVar[bool] = False  # whether ``at_prior`` makes one
    # a factor of an inverse, which training keeps one: see ``inverse_of``
    inverse_field: ClassVar[str | None] = None
    # of steps that are no gradients, which ``start_from`` takes as ``direction=``
    directions: ClassVar[tuple[str, ...]] = ()
    # names of what ``start_from`` takes beside; ``draw`` makes it
    random_quantities: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls):
        models.RANDOM_QUANTITIES.update(cls.random_quantities)

    def check_size(self, M):
        """Raise ``ValueError`` unless the fields fit M inducing variables (one argument a set); returns their leading axes."""
        raise NotImplementedError

    def set_sizes(self, M):
        """How M inducing variables, all sets together, divide into sets: the arguments of ``check_size``."""
        return (M,)

    def start(self, Kuu, jitter, columns=0, need=(), **more) -> Pass:
        """Begin a pass by itself, from Kuu (M, M); all else as for ``start_from``."""
        return self.start_from(Prior(Kuu, jitter), columns, need, **more)

    def start_from(self, prior, columns=0, need=(), **more) -> Pass:
        """Begin a pass.

        Parameters
        ----------
        prior : Prior
        columns : int
            How many data will be pulled: it decides on the cheapest form.
        need : tuple of str
            What is asked of the pass: "posterior" or single fields ("posterior.mean"), "blocks" or
            one of them ("blocks.Kuf", "blocks.Kuu"), "natural_step".
        **more
            Random quantities as ``draw`` made them; ``direction``, one of ``directions``.
        """
        raise NotImplementedError

    def draw(self, name, value, M, dtype, rng):
        """The random quantity that an argument of a bound stands for: drawn, or checked where it is given."""
        raise NotImplementedError

    def inverse_of(self, Kuu, jitter):
        """``(A, smallest)``: L L' = A^-1 is wanted of L, the field ``inverse_field``; a lower bound of the eigenvalues of A."""
        raise NotImplementedError


def over_outputs(var_bar):
    """Cotangents of kff (N,), which all outputs share, from those of the variances (..., N)."""
    return var_bar if var_bar.ndim == 1 else var_bar.sum(axis=0)


def check_vector_and_matrix(q, M, first="mean", second="scale_tril"):
    """``check_size`` for a field (..., M), such as a mean, and another (..., M, M), such as a factor."""
    vector, matrix = np.shape(getattr(q, first)), np.shape(getattr(q, second))
    if len(vector) not in (1, 2) or vector[-1] != M or vector[0] == 0 or matrix != vector + (M,):
        raise ValueError(
            f"`posterior` has {first} {vector} and {second} {matrix}, but there are {M} inducing"
            f" inputs: use {first} ({M},) with {second} ({M}, {M}), or {first} (P, {M}) with"
            f" {second} (P, {M}, {M}) for P outputs"
        )
    return vector[:-1]


def prior_factor(Kuu, jitter):
    """L = chol(Kuu + jitter I).

    Without jitter, pivots are refused too that may be nothing but rounding: of duplicated inputs.
    """
    L = kernels.cholesky(Kuu, jitter)
    if jitter == 0:
        pivots = np.square(L.diagonal())
        lost = pivots <= 2 * len(L) * np.finfo(L.dtype).eps * Kuu.diagonal()
        if not deferred_checks.none(lost):
            raise NotPositiveDefinite((), int(np.argwhere(lost)[0, 0]), jitter, len(L), L.dtype)
    return L


raise_to_floor = kernels.raise_to_floor


def add_to_diagonals(A, amount):
    """In place, for matrices A (..., M, M), C-contiguous; returns A."""
    M = A.shape[-1]
    A.reshape(-1, M * M)[:, :: M + 1] += amount
    return A


def identities(mean):
    """A factor I (..., M, M) for each mean (..., M)."""
    return add_to_diagonals(np.zeros((*mean.shape, mean.shape[-1]), mean.dtype, like=mean), 1)


def solve_vectors(L, vectors, transpose=False):
    """``L^-1 v``, or ``L^-T v``, for each of the vectors (..., M)."""
    return kernels.solve_triangular(L, vectors[..., None], transpose=transpose)[..., 0]


def wanted(need, name, root="posterior"):
    """Whether ``need`` holds all of ``root``, or this of it."""
    return root in need or f"{root}.{name}" in need


def gradient(q, **bars):
    """A record like a posterior, with these cotangents in its fields and None in the others."""
    return type(q)(
        **{
            name: getattr(q, name) if kind == "static" else bars.get(name)
            for name, kind in q._record_fields
        }
    )
