"""Public names, for type checkers and editors; the module loads them at their first use.

Written by ``python tools/public_names.py``.
"""

from ..bounds.from_blocks import (
    elbo_and_grad_from_blocks as elbo_and_grad_from_blocks,
    predict_from_blocks as predict_from_blocks,
)
from ..bounds.inverse_free_direction import lsvgp_direction as lsvgp_direction
from ..bounds.mixture import Mixture as Mixture
from ..bounds.objectives import (
    data_term_and_grad as data_term_and_grad,
    elbo as elbo,
    elbo_and_grad as elbo_and_grad,
    kl_term_and_grad as kl_term_and_grad,
)
from ..bounds.predict_vjp import predict_f_and_vjp as predict_f_and_vjp
from ..bounds.svgp import SVGP as SVGP
from ..collapsed.certificate import Certificate as Certificate
from ..collapsed.moment_interval import (
    MomentInterval as MomentInterval,
    moment_interval as moment_interval,
)
from ..collapsed.orthogonal import OrthogonalSGPR as OrthogonalSGPR
from ..collapsed.sgpr import (
    SGPR as SGPR,
    collapsed_bound as collapsed_bound,
    collapsed_bound_and_grad as collapsed_bound_and_grad,
    optimal_svgp as optimal_svgp,
)
from ..collapsed.tighter import (
    tighter_bound as tighter_bound,
    tighter_bound_and_grad as tighter_bound_and_grad,
)
from ..conditioning.streaming import (
    streaming_bound_and_grad as streaming_bound_and_grad,
    streaming_svgp as streaming_svgp,
)
from ..hilbert.basis import HilbertBasis as HilbertBasis
from ..hilbert.collapsed import BasisGP as BasisGP
from ..hilbert.model import BasisSVGP as BasisSVGP
from ..hilbert.sums import SufficientSums as SufficientSums, sufficient_sums as sufficient_sums
from ..near.model import VIF as VIF
from ..near.record import NearRows as NearRows, neighbours as neighbours
from ..train.compare_sums import FoldScores as FoldScores, compare as compare
from ..uncertain.forecast import forecast as forecast, lagged as lagged
from ..uncertain.gplvm import GPLVM as GPLVM, start_gplvm as start_gplvm
from ..uncertain.infer import infer_inputs as infer_inputs
from ..uncertain.input_covariance import input_covariance as input_covariance
from ..uncertain.inputs import GaussianInputs as GaussianInputs
from ..uncertain.measured import measured as measured
