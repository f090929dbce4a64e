"""Public names, for type checkers and editors; the module loads them at their first use.

Written by ``python tools/public_names.py``.
"""

from ..bounds.at_prior import at_prior as at_prior, joint_posterior as joint_posterior
from ..bounds.convert import convert as convert
from ..paths.record import Paths as Paths
from ..posteriors.base import Pass as Pass, Posterior as Posterior
from ..posteriors.decoupled import Decoupled as Decoupled, DecoupledWeights as DecoupledWeights
from ..posteriors.dual_sites import AbsorbedDualSites as AbsorbedDualSites, DualSites as DualSites
from ..posteriors.gaussian_factor import Marginal as Marginal, Whitened as Whitened
from ..posteriors.inverse_free_whitened import InverseFreeWhitened as InverseFreeWhitened
from ..posteriors.likelihood_form import LikelihoodForm as LikelihoodForm
from ..posteriors.orthogonal import (
    Orthogonal as Orthogonal,
    WhitenedOrthogonal as WhitenedOrthogonal,
)
from ..posteriors.predictive import PredictiveWeights as PredictiveWeights
from ..posteriors.relaxed import Relaxed as Relaxed
from ..records.inducing_sets import InducingPair as InducingPair
