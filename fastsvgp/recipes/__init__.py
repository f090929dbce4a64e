"""A good start: standardised data, an initial model in these units, and the arguments of ``fit``.

Come here for a good start from data alone.

``start = fs.recipes.regression(X, y)`` chooses lengthscales, noise, inducing inputs, a posterior
and its training.
``model, info = fs.fit(start.model, start.scale.X(X), start.scale.y(y), **start.fit)`` trains the
model, and ``start.scale.back`` converts predictions to the units of y. The command line and the
estimators of ``fastsvgp.sklearn`` use the same recipe.

A repeated row and a row of weight 2 give the same start, up to rounding. With more than
``relevance_rows`` rows (``runtime.tuning``) they do not, because a sample of rows is drawn
regardless of weights.
"""

from ..public_names import offer
from .detail import NEAR_STEPS as NEAR_STEPS, near_rows as near_rows
from .guesses import first_mean as first_mean
from .model_search.search_models import SearchResult as SearchResult, search as search
from .names import (
    BINARY as BINARY,
    CHOICES as CHOICES,
    COVARIANCES as COVARIANCES,
    MULTICLASS as MULTICLASS,
    NOISE as NOISE,
    ORDERED as ORDERED,
    POSTERIORS as POSTERIORS,
    REGRESSION as REGRESSION,
    classes_of as classes_of,
    columns_of as columns_of,
    likelihood_of as likelihood_of,
    look_up as look_up,
    posterior_of as posterior_of,
)
from .routine import (
    finish as finish,
    keeping_noise as keeping_noise,
    training as training,
)
from .scaling import LogScale as LogScale
from .searching import (
    Start as Start,
    begin as begin,
    classification as classification,
    course_of as course_of,
    regression as regression,
)
from .settings import Course as Course, Method as Method, Settings as Settings
from .several import check_latents as check_latents, fixed_variances as fixed_variances
from .solvers import (
    COLLAPSED as COLLAPSED,
    SOLVERS as SOLVERS,
    collapses as collapses,
    sizes_for as sizes_for,
    solver_for as solver_for,
    solver_of as solver_of,
)
from .splits import Split as Split
from .target_values import (
    check_log_target as check_log_target,
    check_target as check_target,
    comparable_targets as comparable_targets,
    grade_probabilities as grade_probabilities,
)

__getattr__, __dir__, __all__ = offer("recipes")
