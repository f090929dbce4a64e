"""Basis of the relevance vector machine: covariances as functions, one precision per weight."""

import numpy as np

from ... import check
from ...records import leaf, record, replace
from ...records.typed import Array, Record
from .base import Basis, Energy, below, sum_of_squares
from .inducing import InducingBasis


@record
class RelevanceBasis(InducingBasis):
    """m functions k(., z_i) with weights N(0, diag(precision)^-1) and learned precisions.

    Most of the precisions grow without bound.

    Parameters
    ----------
    covariance : Covariance
    inducing : (m, D) array
    precision : (m,), positive

    Notes
    -----
    Source: Tipping 2001; Evans and Nair 2018, section 3 (QSRVM).

    Examples
    --------
    >>> basis = fs.qsgp.RelevanceBasis(covariance, inducing=X, precision=np.ones(40))
    >>> [path for path, _, _ in fs.records.leaves(basis)]
    ['covariance.variance', 'covariance.lengthscales', 'inducing', 'precision']
    """

    per_function = "inducing", "precision"
    dense_precision = False
    sampled_energy, sampled_precision = Basis.sampled_energy, Basis.sampled_precision

    covariance: Record
    inducing: Array = leaf()
    precision: Array = leaf("positive")

    def check_settings(self):
        super().check_settings()
        shape, m = np.shape(self.precision), len(self.inducing)
        if shape != (m,):
            raise ValueError(
                f"`basis.precision` must have shape ({m},), one for each row of `basis.inducing`,"
                f" got {shape}"
            )

    def of(self, rows):
        """Return the basis of some of its functions."""
        return replace(self, inducing=self.inducing[rows], precision=self.precision[rows])

    def precisions(self, functions):
        precision = self.precision[functions]
        check.finite("basis.precision", precision)
        check.positive("basis.precision", precision)
        return precision

    precision_times = Basis.precision_times

    def precision_diagonal(self, jitter):
        return self.precision

    def energy(self, W, v, jitter):
        log_det = np.log(self.precision, dtype=np.float64).sum()
        return Energy(
            sum_of_squares(W, self.precision) + (v * self.precision).sum(dtype=np.float64),
            log_det,
            None,
        )

    def energy_vjp(self, quadratic_bar, log_det_bar, saved, W, v, need):
        s, bars = self.precision, {}
        if below(need, "precision"):
            bars["precision"] = quadratic_bar * (np.square(W).sum(axis=0) + v) + log_det_bar / s
        return 2 * quadratic_bar * s * W, quadratic_bar * s, bars
