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

from .searching import (
    BINARY as BINARY,
    CHOICES as CHOICES,
    COLLAPSED as COLLAPSED,
    COVARIANCES as COVARIANCES,
    MULTICLASS as MULTICLASS,
    NOISE as NOISE,
    POSTERIORS as POSTERIORS,
    REGRESSION as REGRESSION,
    SOLVERS as SOLVERS,
    Start as Start,
    begin as begin,
    checked_natural_step as checked_natural_step,
    classification as classification,
    finished as finished,
    keeping_noise as keeping_noise,
    likelihood_of as likelihood_of,
    named as named,
    posterior_of as posterior_of,
    regression as regression,
    sizes_for as sizes_for,
    solver_for as solver_for,
    steps_of as steps_of,
    training as training,
)
