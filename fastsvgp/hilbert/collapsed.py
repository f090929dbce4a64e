"""The process in a fixed basis with Gaussian noise: the bound from sums, and its optimal q(v).

With lambda_j = S(omega_j), D = diag(lambda)^(1/2), whitened weights w = D v, v ~ N(0, I), Gamma =
Phi' W Phi, h = Phi' W y, beta = 1 / noise, B = I + beta D Gamma D = R R', c = beta R^-1 D h:

    log p = -n/2 log(2 pi noise) - sum log R_ii + |c|^2 / 2 - beta y' W y / 2,       n = sum W,

and q(v) = N(m, B^-1), m = R^-T c. Because log p is linear in the first two moments of v at q fixed,

    d log p / d log lambda_j = (m_j^2 + (B^-1)_jj - 1) / 2
    d log p / d noise        = beta^2 e / 2 - beta (n - M + tr B^-1) / 2
    e = |y - Phi D m|^2 = y'Wy - 2 m'D h + m'D Gamma D m = y'Wy - m'D h - |m|^2 / beta,

since beta D Gamma D m = (B - I) m = beta D h - m. A basis of several groups leaves out what its
terms have beyond their frequencies, t = n k(0) - tr(D Gamma D), which noise must not hide: Titsias'
penalty -beta t / 2 is added, with

    d / d log lambda_j = beta (D Gamma D)_jj / 2,    d / d noise = beta^2 t / 2,
    d / d k(0) = -beta n / 2.

P outputs share Gamma; terms without y count P times.
"""

import logging
from typing import Any, NamedTuple

import numpy as np

from .. import check, kernels, models
from ..covariances import Covariance
from ..likelihoods import Gaussian
from ..posteriors import Whitened
from ..posteriors.base import add_to_diagonals
from ..records import data, leaf, plus, record, restricted
from ..records.typed import Number
from .basis import HilbertBasis, functions_for, margin_for
from .model import BasisSVGP, check_groups
from .sums import SufficientSums, check_same_basis, sufficient_sums

log = logging.getLogger("fastsvgp")
LOUD = 0.1  # of the noise: missing variance above it is reported


@record
class BasisGP:
    """A Gaussian process in a fixed basis, with Gaussian noise: trained from sums of the rows.

    One pass over the rows makes ``sufficient_sums``; all else costs m^3, whatever their number. All
    functions take rows X, Y or, in the place of X, their sums.

    Parameters
    ----------
    covariance : Covariance
        ``RBF``, ``Matern12``, ``Matern32``, ``Matern52``; a sum of these, of some columns each; or
        ``Additive``.
    basis : HilbertBasis
    noise_variance : float

    Examples
    --------
    >>> covariance = fs.RBF(1.0, 0.5)
    >>> basis = fs.bounds.HilbertBasis.for_lengthscales(X, covariance)
    >>> sums = fs.bounds.sufficient_sums(basis, X, Y)
    >>> trained, info = fs.fit(fs.bounds.BasisGP(covariance, basis, 0.1), sums)
    >>> mean, var = fs.predict_y(info.svgp, X)
    >>> trained.missing(sums) < 1e-3
    True
    """

    covariance: Covariance
    basis: HilbertBasis = data()
    noise_variance: Number = leaf("positive")

    def missing(self, sums):
        """Return the share of the prior variance at the rows that the basis does not hold.

        1 - tr(Lambda Phi' W Phi) / (n k(0)); below 0 where the box ends too near the data.
        """
        model, sums = checked(self, sums)
        of_basis = (np.exp(_log_densities(model)) * sums.gram().diagonal()).sum()
        return 1 - float(of_basis) / (sums.count * _prior_variance(model))


class State(NamedTuple):
    """What value, gradient and optimum share; ``rest`` is t, or None without the penalty."""

    value: float
    scales: Any
    A: Any
    R: Any
    c: Any
    mean: Any
    rest: Any


def _prior_variance(model):
    return float(model.covariance.kff(np.zeros((1, model.basis.D)))[0])


def _log_densities(model):
    return model.covariance.log_spectral_density(model.basis.squared_frequencies())


def checked(model, X, Y=None, weights=None, group=None):
    """Check the arguments of a call; return the model in float64, and the sums."""
    check.parts(model)
    if not isinstance(model.basis, HilbertBasis):
        raise TypeError(
            f"`basis` must be a fastsvgp.bounds.HilbertBasis, got {type(model.basis).__name__}"
        )
    check_groups(model.covariance, model.basis)
    if isinstance(X, SufficientSums):
        given = {"Y": Y, "weights": weights, "group": group}
        if more := [name for name, value in given.items() if value is not None]:
            raise TypeError(f"sums hold all rows: leave `{more[0]}` out, or give it with rows")
        sums = X
    else:
        if Y is None:
            raise TypeError("give `X` and `Y`, or sums made by fs.bounds.sufficient_sums")
        sums = sufficient_sums(model.basis, X, Y, weights=weights, group=group)
    check_same_basis("the sums", sums, model.basis)
    model, _ = check.parameters(model, sums.gram())
    if np.ndim(model.noise_variance):
        raise ValueError(
            f"`noise_variance` has shape {np.shape(model.noise_variance)}; give one number"
        )
    return model, sums


def _forward(model, sums):
    P, crossed = _outputs(sums)
    scales = np.exp(_log_densities(model) / 2)
    beta, gram = 1 / float(model.noise_variance), sums.gram()
    A = gram * scales * scales[:, None]
    B = add_to_diagonals(beta * A, 1)
    R = kernels.cholesky(B, overwrite_a=True)
    c = kernels.solve_triangular(R, beta * scales[:, None] * crossed)
    logs, squares = np.log(np.diagonal(R)).sum(), beta * float(np.sum(sums.squares))
    value = 0.5 * (float(np.square(c).sum()) - squares)
    value -= P * (0.5 * sums.count * np.log(2 * np.pi / beta) + float(logs))
    rest = None
    if len(model.basis.groups) > 1:
        rest = sums.count * _prior_variance(model) - float(np.trace(A))
        value -= 0.5 * P * beta * rest
    mean = kernels.solve_triangular(R, c, transpose=True)
    return State(value, scales, A, R, c, mean, rest)


def _outputs(sums):
    crossed = sums.crossed.reshape(len(sums.crossed), -1)
    return crossed.shape[1], crossed


def evidence(model, sums):
    """Compute the log evidence from sums, without the penalty of several groups."""
    s = _forward(*checked(model, sums))
    rest = 0.0 if s.rest is None else s.rest
    return float(s.value + 0.5 * _outputs(sums)[0] * rest / float(model.noise_variance))


def squared_errors(best, sums):
    """Return the weighted squared errors of the mean of a ``BasisSVGP`` at the rows of sums."""
    log_density = best.covariance.log_spectral_density(best.basis.squared_frequencies())
    _, crossed = _outputs(sums)
    w = np.exp(log_density / 2) * best.posterior.mean.reshape(-1, len(log_density))
    fitted = (kernels.matmul(w, sums.gram()) * w).sum()
    return float(np.sum(sums.squares) - 2 * np.sum(w.T * crossed) + fitted)


def collapsed_bound(sgpr, X, Y=None, *, jitter=None, weights=None, group=None):
    """Compute the log evidence in the basis, with Titsias' penalty for several groups."""
    model, sums = checked(sgpr, X, Y, weights, group)
    return check.result(_forward(model, sums).value, model)


def collapsed_bound_and_grad(sgpr, X, Y=None, *, jitter=None, weights=None, wrt=None, group=None):
    """Compute ``collapsed_bound`` and its gradient: m^3 flops from sums."""
    model, sums = checked(sgpr, X, Y, weights, group)
    wrt = check.names(wrt, model)
    s, (P, crossed) = _forward(model, sums), _outputs(sums)
    beta, squares = 1 / float(model.noise_variance), np.square(s.mean).sum(axis=1)
    inverse = kernels.cholesky_inverse(s.R).diagonal()
    log_bar = 0.5 * (squares + P * (inverse - 1))
    error = float(np.sum(sums.squares)) - float(np.sum(s.mean * s.scales[:, None] * crossed))
    error -= float(squares.sum()) / beta
    noise_bar = 0.5 * beta * (beta * error - P * (sums.count - len(inverse) + inverse.sum()))
    need = tuple(name for name in wrt if name.partition(".")[0] == "covariance")
    covariance_bar = None
    if s.rest is not None:
        log_bar += 0.5 * P * beta * s.A.diagonal()
        noise_bar += 0.5 * P * beta**2 * s.rest
    if need:
        frequencies = model.basis.squared_frequencies()
        covariance_bar = model.covariance.log_spectral_density_vjp(log_bar, frequencies, need)
        if s.rest is not None:
            of_prior = np.array([-0.5 * P * beta * sums.count])
            at = np.zeros((1, model.basis.D))
            covariance_bar = plus(model.covariance.kff_vjp(of_prior, at, need)[0], covariance_bar)
    grad = BasisGP(covariance_bar, model.basis, np.float64(noise_bar))
    return check.result(s.value, model), restricted(grad, wrt)


def optimal_svgp(sgpr, X, Y=None, *, jitter=None, weights=None, group=None):
    """Compute the ``BasisSVGP`` with the optimal q(v), whose bound is the collapsed one."""
    model, sums = checked(sgpr, X, Y, weights, group)
    s = _forward(model, sums)
    check.result(s.value, model)
    _report_missing(model, sums)
    B = add_to_diagonals(s.A / float(model.noise_variance), 1)
    tril = kernels.cholesky_of_inverse(B)
    if np.ndim(sums.squares) == 0:
        posterior = Whitened(s.mean[:, 0].copy(), tril)
    else:
        means = np.ascontiguousarray(s.mean.T)
        posterior = Whitened(means, np.repeat(tril[None], len(means), axis=0))
    likelihood = Gaussian(variance=model.noise_variance)
    return BasisSVGP(model.covariance, model.basis, posterior, likelihood)


def _report_missing(model, sums):
    """Log a warning if the basis leaves out more than a tenth of the noise, and why."""
    prior, noise = _prior_variance(model), float(model.noise_variance)
    missing = model.missing(sums)
    if abs(missing) * prior <= LOUD * noise:
        return
    log.warning(
        "the basis leaves out %.2g of the prior variance, more than %.2g of the noise: %s",
        missing,
        LOUD,
        _shortfall(model),
    )


def _shortfall(model):
    """Return in words what a basis lacks most: width of the box, or functions."""
    basis = model.basis
    found = []
    half = (basis.upper - basis.lower) / 2
    for columns, scales, smoothness in model.covariance.spectral_terms(basis.D):
        margin = margin_for(smoothness)
        for column, scale in zip(columns, scales, strict=True):
            beyond = (basis.boundary[column] - 1) * half[column] / scale
            needs = functions_for(basis.half_width[column], scale, smoothness)
            has = int(basis.num_functions[column])
            found.append(
                (
                    needs / has,
                    f"in column {column} a lengthscale of {scale:.3g} needs {needs} functions, not"
                    f" {has}",
                )
            )
            found.append(
                (
                    margin / max(beyond, 1e-9),
                    f"in column {column} the box ends {beyond:.2g} lengthscales beyond the data,"
                    f" not {margin:g}",
                )
            )
    return max(found)[1]


models.register(
    BasisGP,
    instead="predict with info.svgp of model, info = fs.fit(...), or fs.optimal_svgp(model, sums)",
    collapsed_bound=collapsed_bound,
    collapsed_bound_and_grad=collapsed_bound_and_grad,
    optimal_svgp=optimal_svgp,
)
