"""Natural-gradient update of q(u) from its ordinary gradient; precisions stay positive definite.

q = N(m, S) with S = W W' has the natural parameters (S^-1 m, -S^-1 / 2), and the natural gradient
of an objective in them is its gradient in the expectation parameters (m, S + m m'), which is dS for
the second and dm - 2 dS m for the first. A plain step of size g is thus

    S_new^-1 = S^-1 - 2 g dS,    S_new^-1 m_new = S^-1 m + g (dm - 2 dS m) = S_new^-1 m + g dm.

The gradient of W is the lower triangle of 2 dS W. As W' is upper triangular, the lower triangle of
W' tril(2 dS W) is that of

    A = 2 W' dS W,    so    W' S_new^-1 W = I - g A,

which is not positive definite if g A has an eigenvalue of 1 or above: if the objective curves
upwards, or if noise suggests that it does. The next term of the retraction of Lin, Schmidt and Khan
(2020), their eq. (9) in these coordinates, gives

    C = I - g A + g^2 A^2 / 2 = (I + (I - g A)^2) / 2,

whose eigenvalues are at least 1/2 for every A, and which is the plain step up to g^2. With C = U
U', U upper triangular,

    S_new = W C^-1 W' = (W U^-T) (W U^-T)',
    W_new = W U^-T  lower triangular,
    m_new = m + g W_new W_new' dm:

the mean moves by the new covariance, as in the plain step. With the old covariance, last layers
were seen to diverge.

If the rounding of (I - g A)^2 would exceed the identity, the step is shortened until it does not.
Meaningful steps are far smaller.

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

LARGEST = 1e-3  # upper limit of eps |g A|^2, the rounding of the square; eigenvalues are >= 1/2


@public_call()
def natural_update(
    posterior: PosteriorT, posterior_bar: PosteriorT, step_size: float
) -> PosteriorT:
    """Take one natural-gradient step of a Gaussian q(u), from the gradient of q(u).

    For hidden layers, and for custom training loops.

    Parameters
    ----------
    posterior : Posterior
        A posterior with a mean and a factor: ``Whitened``, ``Marginal``, ``InverseFreeWhitened``;
        set by set for ``WhitenedOrthogonal`` and ``Orthogonal``. Leading axes are outputs.
    posterior_bar : Posterior
        Gradient of an objective to be maximised: ``grad.posterior``, or
        ``grad.layers[0].posterior``.
    step_size : float
        Positive; 0.1 is reasonable for minibatches.

    Returns
    -------
    Posterior
        Other fields are unchanged.

    Raises
    ------
    TypeError
        A posterior without factors: a diagonal S~ would not stay diagonal, nor sites stay sites. A
        gradient of another class, or None.
    ValueError
        A step size that is not positive; a gradient of another shape, or with NaN or infinity.

    Notes
    -----
    It equals the step of ``natural_step`` up to second order in the step size, and stays positive
    definite for every gradient: no eigenvalue of the precision falls below half of its old value. 3
    M^3 flops per output. Source: Lin, Schmidt and Khan 2020.

    Examples
    --------
    >>> _, grad = fs.elbo_and_grad(model, X, Y, wrt=("posterior",))
    >>> q = fs.optim.natural_update(model.posterior, grad.posterior, step_size=0.1)
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
        changes |= zip(pair, _step(m, W, m_bar, W_bar, size), strict=True)
    updated = replace(posterior, **changes)
    check.result(
        sum(np.add.reduce(value, axis=None, dtype=np.float64) for value in changes.values()),
        updated,
    )
    return updated


def _step(m, W, m_bar, W_bar, size):
    """Return ``(m, W)`` of all outputs after a step."""
    A = kernels.symmetrise(kernels.multiply_triangular(W, W_bar, transpose=True))
    # scaled, so no square overflows
    top = np.maximum(abs(A).max(axis=(-2, -1), keepdims=True), np.finfo(A.dtype).tiny)
    norms = top * np.sqrt(np.square(A / top).sum(axis=(-2, -1), keepdims=True))
    longest = np.sqrt(LARGEST / np.finfo(A.dtype).eps)
    sizes = (longest / np.maximum(norms, longest / size)).astype(A.dtype, copy=False)
    B = add_to_diagonals(np.multiply(A, -sizes, out=A), 1)
    C = kernels.tril_product(B, B)
    C *= 0.5
    U = kernels.cholesky_of_inverse(add_to_diagonals(C, 0.5))
    W = kernels.tril_multiply(W, U, overwrite_b=True, lower=True)
    step = kernels.multiply_triangular(
        W, kernels.multiply_triangular(W, m_bar[..., None], transpose=True)
    )
    return m + (sizes * step)[..., 0], W


def factor_pairs(posterior):
    """Return the names of a posterior's means and their factors.

    ``TypeError`` if the posterior has no factor for each mean.
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
            "its S~ is diagonal, and would not stay so"
            if isinstance(posterior, PseudoData)
            else "it holds sites, not a mean and a factor; natural_step moves those of a last layer"
            " or an SVGP"
            if isinstance(posterior, DualTying)
            else f"it has no factor beside {pairs[-1][0] if pairs else 'its fields'}"
        )
        raise TypeError(
            f"natural_update: a {kind} posterior cannot take it, because {why}; train it with"
            " fastsvgp.adam"
        )
    return pairs


def _gradient(posterior, bar, pairs, dtype):
    """Return the gradient, checked."""
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
