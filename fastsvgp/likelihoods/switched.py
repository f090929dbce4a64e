"""Several likelihoods of one function; a column of Y says which one each datum has."""

import numpy as np

from ..errors import BadEntry
from ..records import Marginals, is_record, record
from .base import Likelihood, sum_outputs
from .targets import as_targets, not_whole, refuse_in_column


@record
class Switched(Likelihood):
    """p(y | f) of one of several parts; targets have the columns y, part.

    Y is (N, 2), or (N, P, 2) for P outputs; parts are numbered from 0. So rows of different
    instruments have noise of their own, and labels stand beside numbers. Densities and distribution
    functions are those of the part of each target. Moments and quantiles of y would need one: put
    it into the model, ``fs.replace(model, likelihood=model.likelihood.parts[0])``.

    Parameters
    ----------
    parts : tuple of likelihoods
        Each of one latent function per output, and of targets of one column.

    Examples
    --------
    >>> two = fs.likelihoods.Switched((fs.Gaussian(0.1), fs.Gaussian(0.4)))
    >>> of_parts = np.stack([Y, np.arange(40) % 2], axis=1)
    >>> round(fs.elbo(fs.replace(model, likelihood=two), X, of_parts), 2)
    -184.87
    """

    parts: tuple
    target_columns = ("y", "part")

    def __post_init__(self):
        if isinstance(self.parts, list):
            object.__setattr__(self, "parts", tuple(self.parts))

    @property
    def log_concave(self):
        return all(part.log_concave for part in self.parts)

    @property
    def linear_in_var(self):
        return all(part.linear_in_var for part in self.parts)

    @property
    def samples(self):
        return any(part.samples for part in self.parts)

    def _rows(self, Y):
        """Yield each part, its positions among the flattened targets, and these targets."""
        y, which = (column.ravel() for column in Y)
        for number, part in enumerate(self.parts):
            at = np.argwhere(which == number)[:, 0]
            yield part, at, y[at]

    def expected_log_prob(self, Y, f, rng=None, need=True, weights=None):
        m, v = f.mean.ravel(), f.var.ravel()
        mean_bar, var_bar = (np.zeros(m.shape, m.dtype, like=m) for _ in range(2))
        ell, bars = 0.0, []
        for part, at, y in self._rows(Y):
            w = {} if weights is None else {"weights": weights.ravel()[at]}
            own, f_bar, bar = part.expected_log_prob(y, Marginals(m[at], v[at]), rng, need, **w)
            ell = ell + own
            bars.append(bar)
            if need:
                mean_bar[at], var_bar[at] = f_bar.mean, f_bar.var
        if not need:
            return ell, None, None
        f_bar = Marginals(*(bar.reshape(f.mean.shape) for bar in (mean_bar, var_bar)))
        return ell, f_bar, Switched(tuple(bars))

    def _apply_to_each(self, function, Y, f):
        """Apply ``function(part, y, f)`` -> (n,) to the rows of each part."""
        m, v = f.mean.ravel(), f.var.ravel()
        out = np.empty(m.shape, m.dtype, like=m)
        for part, at, y in self._rows(Y):
            out[at] = function(part, y, Marginals(m[at], v[at]))
        return out.reshape(f.mean.shape)

    def predict_mean_and_var(self, f):
        raise TypeError(_which_part("predict_y"))

    def predict_log_density(self, Y, f):
        return sum_outputs(self._apply_to_each(lambda p, y, g: p.predict_log_density(y, g), Y, f))

    def predict_cdf(self, Y, f):
        return self._apply_to_each(lambda part, y, g: part.predict_cdf(y, g), Y, f)

    def predict_quantiles(self, levels, f):
        raise TypeError(_which_part("predict_quantiles"))

    def check_settings(self):
        if not isinstance(self.parts, tuple) or not self.parts:
            raise TypeError("Switched: `parts` must be a tuple of at least one likelihood")
        for i, part in enumerate(self.parts):
            kind = part.__name__ if isinstance(part, type) else type(part).__name__
            if not is_record(part) or not isinstance(part, Likelihood):
                raise TypeError(f"Switched: `parts[{i}]` must be a likelihood, got {kind}")
            if part.num_latent is not None or part.latents_per_output != 1:
                raise TypeError(
                    f"Switched: `parts[{i}]` is a {kind}, which reads several functions; each part"
                    " reads one"
                )
            if len(part.target_columns) != 1:
                raise TypeError(
                    f"Switched: `parts[{i}]` is a {kind} of the columns"
                    f" {', '.join(part.target_columns)}; each part has targets of one column"
                )
            part.check_settings()

    def check_targets(self, Y, name="Y"):
        Y, count = as_targets(Y), len(self.parts)
        advice = "Number the parts from 0, in the order of `parts`"
        bad = not_whole(Y[1]) | ~((Y[1] >= 0) & (Y[1] < count))
        refuse_in_column(name, Y, (1, "part"), bad, f"numbers of parts 0 ... {count - 1}", advice)
        for part, at, y in self._rows(Y):
            try:
                part.check_targets(y, name)
            except BadEntry as error:
                error.index = 0, *map(int, np.unravel_index(int(at[error.index[0]]), Y.shape[1:]))
                raise


def _which_part(function):
    return (
        f"{function}: new targets of a Switched likelihood have no part; put the one you mean into"
        " the model: fastsvgp.replace(model, likelihood=model.likelihood.parts[0])"
    )
