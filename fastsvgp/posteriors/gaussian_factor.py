"""Base of the posteriors with a mean and a lower factor, and the choice of their pass."""

from typing import ClassVar

from ..records import record, replace
from .base import SUMS, Posterior, check_vector_and_matrix, wanted
from .whitening import (
    BatchWhitenedPass,
    GramWhitenedPass,
    LongWhitenedPass,
    SmallWhitenedPass,
    sums_pay,
)

LONG_FROM = 4  # data per inducing input and output
# outputs from which the Gram form takes less time than the long one if their cotangents are common,
# and 1 / (3 P + 2) more if not; two, if only sums of their variances are needed
MANY = 4


@record
class GaussianFactor(Posterior):
    """Base of posteriors with a mean and a lower factor; whitening can involve L = chol(Kuu)."""

    natural_fields = ("mean", "scale_tril")
    starts_at_prior = True
    sums_variances = True
    whitening_is_fixed: ClassVar[bool] = True  # the whitened parameters do not depend on L

    def check_size(self, M):
        return check_vector_and_matrix(self, M)

    def start_from(self, prior, columns=0, need=()):
        """Begin a pass in the form that is fastest for what will be pulled."""
        size, needs_Kuf = self.mean.size, wanted(need, "Kuf", "blocks")
        summed = SUMS in need and sums_pay(prior.Kuu, columns)
        many = 2 if summed else MANY
        if needs_Kuf and SmallWhitenedPass.suits(self, prior, columns):
            form = SmallWhitenedPass
        elif needs_Kuf and columns > LONG_FROM * size and size < many * self.mean.shape[-1]:
            form = LongWhitenedPass
        elif "natural_step" in need or 2 * columns > 3 * size:
            form = GramWhitenedPass
        else:
            form = BatchWhitenedPass
        return form(self, prior, columns, need)

    def whitened(self, L):
        """``(m', W')`` (..., M), (..., M, M) of v = L^-1 u."""
        return self.mean, self.scale_tril

    def whitened_vjp(self, work, mean_bar, tril_bar, C):
        """Cotangents of the fields from m'_bar, W'_bar; adds those of L to C unless C is None."""
        return mean_bar, tril_bar

    def unwhitened(self, L, mean, tril):
        """The posterior with these ``whitened`` parameters. Overwrites ``tril``."""
        return replace(self, mean=mean, scale_tril=tril)
