"""Public names, for type checkers and editors; the module loads them at their first use.

Written by ``python tools/public_names.py``.
"""

from ..qsgp.bases.fourier import RandomFourier as RandomFourier
from ..qsgp.bases.inducing import InducingBasis as InducingBasis, RelevanceBasis as RelevanceBasis
from ..qsgp.bases.samples import (
    BasisSample as BasisSample,
    SparseRows as SparseRows,
    draw_basis_sample as draw_basis_sample,
)
from ..qsgp.closed_form import WeightsInfo as WeightsInfo, optimal_diagonal as optimal_diagonal
from ..qsgp.control_changes import update_control_variate as update_control_variate
from ..qsgp.control_variates import (
    KrigedControl as KrigedControl,
    kriging_control_variate as kriging_control_variate,
)
from ..qsgp.from_features import (
    sampled_bound_and_grad_from_features as sampled_bound_and_grad_from_features,
)
from ..qsgp.model import QSGP as QSGP, bound as bound, bound_and_grad as bound_and_grad
from ..qsgp.paired import (
    PairedControl as PairedControl,
    paired_control_variate as paired_control_variate,
)
from ..qsgp.posterior import ChevronWeights as ChevronWeights
from ..qsgp.relevance import (
    optimal_precision as optimal_precision,
    prune as prune,
    relevance_vectors as relevance_vectors,
)
from ..qsgp.sampled_bound import (
    SampledInfo as SampledInfo,
    sampled_bound_and_grad as sampled_bound_and_grad,
)
from ..train.optimal_weights import optimal_weights as optimal_weights
