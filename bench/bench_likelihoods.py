"""Expected log density and all its derivatives, for every likelihood.

Error: of the gradient in the mean and variance along a random direction, against five-point
differences of the value."""

import numpy as np
import pytest
from harness import record
from support.numerics import five_point

from fastsvgp import likelihoods as lk
from fastsvgp.records import Marginals

LIKELIHOODS = {
    "Gaussian": lk.Gaussian(0.3),
    "BernoulliProbit": lk.BernoulliProbit(),
    "BernoulliLogit": lk.BernoulliLogit(),
    "Poisson": lk.Poisson(),
    "Laplace": lk.Laplace(0.5),
    "StudentT": lk.StudentT(0.5, df=4.0),
    "NegativeBinomial": lk.NegativeBinomial(1.7),
    "ZeroInflatedPoisson": lk.ZeroInflatedPoisson(0.3),
    "Binomial": lk.Binomial(),
    "Ordinal": lk.Ordinal(-0.5, np.ones(2)),
    "Censored": lk.Censored(0.3),
    "KnownNoise": lk.KnownNoise(0.3),
    "RobustMax": lk.RobustMax(num_classes=10),
    "Softmax": lk.Softmax(num_classes=10),
}


@pytest.mark.parametrize("N", [256, 1024, 8192])
@pytest.mark.parametrize("name", LIKELIHOODS)
def bench_expected_log_prob(benchmark, rng, name, N):
    likelihood = LIKELIHOODS[name]
    C = likelihood.num_latent
    shape = (N,) if C is None else (C, N)
    Y = rng.integers(0, 2 if C is None else C, N)
    Y = Y.astype(float) if C is None else Y
    if len(likelihood.target_columns) > 1:
        Y = np.stack([Y, np.ones(N)])
    mean, var = rng.standard_normal(shape), 0.1 + rng.gamma(1.0, 1.0, shape)
    f = Marginals(mean, var)
    _, f_bar, _ = likelihood.expected_log_prob(Y, f)
    d, e = rng.standard_normal(shape), rng.standard_normal(shape) * np.minimum(var, 1)
    forward = five_point(
        lambda s: likelihood.expected_log_prob(Y, Marginals(mean + s * d, var + s * e))[0]
    )
    scale = np.linalg.norm(f_bar.mean) * np.linalg.norm(d) + np.linalg.norm(
        f_bar.var
    ) * np.linalg.norm(e)
    error = abs(forward - np.vdot(f_bar.mean, d) - np.vdot(f_bar.var, e)) / scale
    record(
        benchmark,
        lambda: likelihood.expected_log_prob(Y, f),
        bytes=4 * mean.nbytes + Y.nbytes,
        error=float(error),
    )
