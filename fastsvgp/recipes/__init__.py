"""A good start: data standardised, a model in these units, and the arguments with which ``fit`` trains it.

``start = fs.recipes.regression(X, y)`` chooses lengthscales, noise, inducing inputs, a posterior
and how it is trained;
``model, info = fs.fit(start.model, start.scale.X(X), start.scale.y(y), **start.fit)`` trains it,
and ``start.scale.back`` takes predictions to the units of y. The command line and the estimators of
``fastsvgp.sklearn`` start so: ``begin`` here, ``training`` and ``train`` of ``routine`` are their
one recipe.

What a start depends on is the rows with their weights: a row that comes twice, and one of weight 2,
are the same, up to rounding. Only where there are more than ``relevance.ROWS`` rows, some of which
are drawn, do they count as the rows that they are.
"""

from .model_search.search_models import Found as Found, search as search
from .names import (
    BINARY as BINARY,
    CHOICES as CHOICES,
    COVARIANCES as COVARIANCES,
    MULTICLASS as MULTICLASS,
    NOISE as NOISE,
    POSTERIORS as POSTERIORS,
    REGRESSION as REGRESSION,
    likelihood_of as likelihood_of,
    named as named,
    posterior_of as posterior_of,
)
from .routine import (
    checked_natural_step as checked_natural_step,
    finished as finished,
    steps_of as steps_of,
    training as training,
)
from .searching import (
    Start as Start,
    begin as begin,
    classification as classification,
    keeping_noise as keeping_noise,
    regression as regression,
    sizes_for as sizes_for,
)
from .solvers import COLLAPSED as COLLAPSED, SOLVERS as SOLVERS, solver_for as solver_for
