"""A natural-gradient update of q(u) from its ordinary gradient alone, which cannot leave the positive definite precisions.

q = N(m, S) with S = W W' has the natural parameters (S^-1 m, -S^-1 / 2), and the natural gradient
of an objective in them is its gradient in the expectation parameters (m, S + m m'), which is dS for
the second and dm - 2 dS m for the first. A plain step of size g is thus

    S_new^-1 = S^-1 - 2 g dS,    S_new^-1 m_new = S^-1 m + g (dm - 2 dS m) = S_new^-1 m + g dm.

The gradient of W is the lower triangle of 2 dS W. As W' is upper triangular, the lower triangle of
W' tril(2 dS W) is that of

    A = 2 W' dS W,    so    W' S_new^-1 W = I - g A,

which is not positive definite where g A has an eigenvalue of 1 or above: where the objective curves
upwards, or noise says so. With the next term of the retraction of Lin, Schmidt and Khan (2020),
their eq. (9) in these coordinates, it is

    C = I - g A + g^2 A^2 / 2 = (I + (I - g A)^2) / 2,

whose eigenvalues are 1/2 or more whatever A is, and which is the plain step up to g^2. With C = U
U', U upper triangular,

    S_new = W C^-1 W' = (W U^-T) (W U^-T)',    W_new = W U^-T  lower triangular,    m_new = m + g W_new W_new' dm:

the mean moves by the new covariance, as in the plain step. With the old one in its place last
layers were seen to diverge.

Where the square of I - g A would drown the identity in its rounding, the step is cut down to one
that does not; those that mean anything are far below.

Source: Lin, Schmidt and Khan, "Handling the Positive-Definite Constraint in the Bayesian Learning
Rule" (2020).
"""

import numpy as np

from ... import check, kernels
from ...posteriors import Posterior
from ...posteriors.base import PosteriorT, add_to_diagonals
from ...posteriors.dual_sites import DualTying
from ...posteriors.pseudo_targets import PseudoData
from ...records import is_record, leaves, replace
from ...runtime import deferred_checks
from ...runtime.edge import public_call

LARGEST = 1e-3  # of eps |g A|^2, the rounding of the square, beside eigenvalues of 1/2


@public_call()
def natural_update(
    posterior: PosteriorT, posterior_bar: PosteriorT, step_size: float
) -> PosteriorT:
    """One natural-gradient step of a Gaussian q(u), from its gradient: for hidden layers, and loops of your own.

    Parameters
    ----------
    posterior : Posterior
        With a mean and a factor: ``Whitened``, ``Marginal``, ``InverseFreeWhitened``, and set by
        set ``WhitenedOrthogonal`` and ``Orthogonal``. Leading axes are outputs.
    posterior_bar : Posterior
        Its gradient, of what should become large: ``grad.posterior``, or
        ``grad.layers[0].posterior``.
    step_size : float
        Positive; 0.1 is a fair one for minibatches.

    Returns
    -------
    Posterior
        What has no such gradient stays.

    Raises
    ------
    TypeError
        A posterior without factors: a diagonal S~ or sites would not stay what they are. A gradient
        of another kind, or None.
    ValueError
        A step size that is not positive; a gradient of another shape, or that is not finite.

    Notes
    -----
    It is the step of ``natural_step`` up to second order in the step size, and stays positive
    definite whatever the gradient is: no eigenvalue of the precision falls below half of what it
    was. 3 M^3 flops an output. Source: Lin, Schmidt and Khan 2020.

    Examples
    --------
    >>> _, grad = fs.elbo_and_grad(model, X, Y, wrt=("posterior",))
    >>> q = fs.natural_update(model.posterior, grad.posterior, step_size=0.1)
    >>> fs.elbo(fs.replace(model, posterior=q), X, Y) > fs.elbo(model, X, Y)
    True
    """
    size = check.scalar("step_size", step_size)
    if size <= 0:
        raise ValueError(f"`step_size` must be positive, got {size:g}")
    pairs = factor_pairs(posterior)
    deferred_checks.defer(*(value for _, _, value in leaves(posterior)))
    posterior, dtype = check.parameters(posterior, prefix="posterior.")
    posterior.check_size(
        *(
            getattr(posterior, mean).shape[-1] if getattr(posterior, mean).ndim else 0
            for mean, _ in pairs
        )
    )
    posterior_bar = _gradient(posterior, posterior_bar, pairs, dtype)
    changes: dict = {}
    for pair in pairs:
        (m, W), (m_bar, W_bar) = (
            [getattr(q, name) for name in pair] for q in (posterior, posterior_bar)
        )
        changes |= zip(pair, _updated(m, W, m_bar, W_bar, size), strict=True)
    updated = replace(posterior, **changes)
    check.result(
        sum(np.add.reduce(value, axis=None, dtype=np.float64) for value in changes.values()),
        updated,
    )
    return updated


def _updated(m, W, m_bar, W_bar, size):
    """``(m, W)`` of all outputs after a step."""
    A = kernels.symmetrise(kernels.multiply_triangular(W, W_bar, transpose=True))
    # so that no square overflows
    top = np.maximum(abs(A).max(axis=(-2, -1), keepdims=True), np.finfo(A.dtype).tiny)
    norms = top * np.sqrt(np.square(A / top).sum(axis=(-2, -1), keepdims=True))
    longest = np.sqrt(LARGEST / np.finfo(A.dtype).eps)
    sizes = (longest / np.maximum(norms, longest / size)).astype(A.dtype, copy=False)
    B = add_to_diagonals(np.multiply(A, -sizes, out=A), 1)
    C = kernels.tril_product(B, B)
    C *= 0.5
    U = kernels.cholesky_of_inverse(add_to_diagonals(C, 0.5))
    W = kernels.tril(kernels.tril_multiply(W, U, overwrite_b=True))
    step = kernels.multiply_triangular(
        W, kernels.multiply_triangular(W, m_bar[..., None], transpose=True)
    )
    return m + (sizes * step)[..., 0], W


def factor_pairs(posterior):
    """The names of a posterior's means and their factors.

    ``TypeError`` for one that takes no such update.
    """
    if not is_record(posterior) or not isinstance(posterior, Posterior):
        came = type(posterior).__name__
        raise TypeError(
            "natural_update: `posterior` must be a record such as fastsvgp.Whitened(...), got"
            f" {came}"
        )
    kind, fields = type(posterior).__name__, [name for name, _ in posterior._record_fields]
    pairs = [
        (name, name.replace("mean", "scale_tril"))
        for name in fields
        if name.partition("_")[0] == "mean"
    ]
    if isinstance(posterior, (PseudoData, DualTying)) or not all(
        tril in fields for _, tril in pairs
    ):
        why = (
            "its S~ is diagonal, and would not stay so" if isinstance(posterior, PseudoData)
            else "it holds sites, not a mean and a factor; natural_step moves those of a last layer or an SVGP"
            if isinstance(posterior, DualTying) else f"it has no factor beside {pairs[-1][0] if pairs else 'its fields'}"
        )  # fmt: skip
        raise TypeError(
            f"natural_update: a {kind} posterior can not take it, because {why}; train it with"
            " fastsvgp.adam"
        )
    return pairs


def _gradient(posterior, bar, pairs, dtype):
    """The gradient, checked."""
    if type(bar) is not type(posterior):
        raise TypeError(
            f"natural_update: `posterior_bar` must be a {type(posterior).__name__} as the posterior"
            f" is, such as grad.posterior, got {type(bar).__name__}"
        )
    found = {}
    for name in sum(pairs, ()):
        value = getattr(bar, name)
        if value is None:
            raise TypeError(
                f"natural_update: `posterior_bar.{name}` is None; ask for it in `wrt` of the bound"
            )
        value = check.as_array(f"posterior_bar.{name}", value).astype(dtype, copy=False)
        due = np.shape(getattr(posterior, name))
        if value.shape != due:
            raise ValueError(
                f"natural_update: `posterior_bar.{name}` must have shape {due} as the posterior,"
                f" got {value.shape}"
            )
        found[name] = (
            kernels.tril(np.array(value, order="C", like=value))
            if name.startswith("scale_tril")
            else value
        )
        check.finite(f"posterior_bar.{name}", found[name])
    return replace(bar, **found)
