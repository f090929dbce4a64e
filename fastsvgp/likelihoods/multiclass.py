"""Likelihoods of integer labels 0 ... C - 1, with one latent function per class."""

import math
from typing import ClassVar

import numpy as np

from .. import kernels
from ..records import Marginals, record, static
from .base import NODES, Likelihood, log_sum_exp, total, weighted, whole_number
from .targets import as_targets, not_whole, refuse

CHUNK = 256  # data per chunk of (classes, samples, data) temporaries


class Multiclass(Likelihood):
    """Base of both: ``f`` (C, N), labels ``Y`` (N,), predicted class probabilities (C, N)."""

    @property
    def num_latent(self):
        return self.num_classes

    def _probabilities(self, f):
        raise NotImplementedError

    def predict_mean_and_var(self, f):
        """Class probabilities p (C, N), which sum to one, and the variances p (1 - p)."""
        p = self._probabilities(f)
        return p, p * (1 - p)

    def check_targets(self, Y, name="Y"):
        Y, C = as_targets(Y), self.num_classes
        advice = "Number the classes from 0: np.unique(Y, return_inverse=True)[1]."
        what = f"integer labels 0 ... {C - 1} (num_classes={C})"
        refuse(name, Y, not_whole(Y), what, advice)
        refuse(name, Y, (Y < 0) | (Y >= C), what, advice)


@record
class RobustMax(Multiclass):
    """p(y | f) = 1 - epsilon for the class with the largest f, epsilon / (C - 1) for each other.

    The probability that class y has the largest f, P_y = E_q(f_y) prod_{c != y} Phi((f_y - mean_c)
    / sd_c), is a one-dimensional Gauss-Hermite rule of ``num_nodes`` over f_y. Its error depends
    on differences of means and ratios of variances only, not on the size of variances:

    ==========================  ====  ====  ====
    largest ratio of variances     1    10   100
    ==========================  ====  ====  ====
    error with 20 nodes         4e-5  2e-2  8e-2
    ==========================  ====  ====  ====

    Predicted probabilities have the same errors. Predictions rescale the P_c to sum to one.
    The cost is num_nodes C per datum; predictions cost C times that.

    Parameters
    ----------
    num_classes : int
        Number C of classes, at least 2; labels are 0 ... C - 1.
    epsilon : float
        Probability of all other classes together. Between 0 and 1.
    num_nodes : int
        Number of nodes of the Gauss-Hermite rule.

    Examples
    --------
    >>> three = fs.posteriors.at_prior(fs.Whitened, covariance, Z, outputs=3)
    >>> classifier = fs.SVGP(covariance, Z, three, fs.likelihoods.RobustMax(num_classes=3))
    >>> round(fs.elbo(classifier, X, np.arange(40) % 3), 2)
    -202.7
    """

    num_classes: int = static()
    epsilon: float = static(default=1e-3)
    num_nodes: int = static(default=20)
    settings = NODES | {
        "num_classes": whole_number(2),
        "epsilon": (lambda value: 0 < value < 1, "between 0 and 1"),
    }

    def expected(self, Y, f, need=True):
        # E log p = P log(1 - eps) + (1 - P) log(eps / (C - 1))
        low = float(np.log(self.epsilon / (self.num_classes - 1)))
        gain = float(np.log1p(-self.epsilon)) - low
        P, *slopes = kernels.largest(Y, f.mean, f.var, self.num_nodes, need)
        return (low + gain * P, *(gain * slope for slope in slopes)) if need else (low + gain * P,)

    def _probabilities(self, f):
        C, N = f.mean.shape
        labels = (kernels.full(N, c, f.mean, np.int64) for c in range(C))
        P = np.stack(
            [kernels.largest(Y, f.mean, f.var, self.num_nodes, need=False)[0] for Y in labels]
        )
        P /= P.sum(axis=0)
        return (1 - self.epsilon) * P + (self.epsilon / (C - 1)) * (1 - P)

    def predict_log_density(self, Y, f):
        return np.log(
            np.take_along_axis(self._probabilities(f), as_targets(Y, np.intp)[None], axis=0)[0]
        )


@record
class Softmax(Multiclass):
    """p(y | f) = exp(f_y) / sum_c exp(f_c).

    E log p(y | f) = mean_y - E log sum_c exp(f_c). The second term is an average over
    ``num_samples`` reparameterised quasi-random points, the same for every datum (see
    ``kernels.normal_points``). The derivatives are exact derivatives of the average. ``rng`` can be
    an integer seed, a Generator (new points per call), or None for a fixed seed, with which value
    and gradient agree from call to call. The cost is num_samples C per datum.

    With 10 classes, the root mean square errors per datum are

    ======================  ====  ====  ====  ====
    marginal variance        0.3     3    10   100
    ======================  ====  ====  ====  ====
    error with 128 samples  5e-4  1e-2  3e-2  8e-2
    ======================  ====  ====  ====  ====

    Predicted probabilities are averages over the same points. Their root mean
    square errors are 8e-4 at variances around 1, 3e-3 around 3, and 1e-2 around 50; with 1,024
    samples they are 3e-4, 7e-4 and 3e-3.

    Parameters
    ----------
    num_classes : int
        Number C of classes, at least 2; labels are 0 ... C - 1.
    num_samples : int
        Number of points: a power of two, at least 4 C for full accuracy.

    Examples
    --------
    >>> three = fs.posteriors.at_prior(fs.Whitened, covariance, Z, outputs=3)
    >>> classifier = fs.SVGP(covariance, Z, three, fs.Softmax(num_classes=3))
    >>> probabilities, _ = fs.predict_y(classifier, X)
    >>> probabilities.shape
    (40, 3)
    """

    samples: ClassVar[bool] = True
    num_classes: int = static()
    num_samples: int = static(default=128)
    settings = {
        "num_classes": whole_number(2),
        "num_samples": (
            lambda value: value >= 2 and math.frexp(value)[0] == 0.5,
            "a power of two, at least 2",
        ),
    }

    def expected_log_prob(self, Y, f, rng=None, need=True, weights=None):
        # Latents relative to that of the label: the log-sum-exp is then -log p itself, without
        # cancellation.
        Y = as_targets(Y, np.intp)
        relative = f.mean - np.take_along_axis(f.mean, Y[None], axis=0)
        points = kernels.normal_points(self.num_classes, self.num_samples, rng, f.mean)
        value, d_mean, d_var = kernels.expected_logsumexp(relative, f.var, points, need)
        ell = -total(value, weights)
        if not need:
            return ell, None, None
        np.negative(d_mean, out=d_mean)
        np.negative(d_var, out=d_var)
        d_mean[Y, np.arange(Y.size, like=Y)] += 1
        return ell, Marginals(weighted(d_mean, weights), weighted(d_var, weights)), self

    def _probabilities(self, f):
        # d/df_c log-sum-exp = softmax_c, so the derivative in mean_c is the average softmax
        points = kernels.normal_points(self.num_classes, self.num_samples, None, f.mean)
        return kernels.expected_logsumexp(f.mean - f.mean.max(axis=0), f.var, points)[1]

    def predict_log_density(self, Y, f):
        # The logarithm of the average softmax, at the points of ``_probabilities``. The
        # probabilities themselves underflow far from the label.
        Y = as_targets(Y, np.intp)
        points = kernels.normal_points(self.num_classes, self.num_samples, None, f.mean).T[
            :, :, None
        ]
        sd, out = np.sqrt(f.var, dtype=np.float64), np.empty(Y.shape, f.mean.dtype, like=f.mean)
        for start in range(0, Y.size, CHUNK):
            here = slice(start, start + CHUNK)
            F = f.mean[:, None, here] + sd[:, None, here] * points
            own = np.take_along_axis(F, Y[None, None, here], axis=0)[0]
            out[here] = log_sum_exp(own - log_sum_exp(F)) - float(np.log(self.num_samples))
        return out
