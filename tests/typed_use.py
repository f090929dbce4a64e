"""What a type checker accepts of the public names, and what it refuses: ``.ci/run`` has mypy read this file; nothing runs it.

A call that it must refuse carries the error in brackets, and mypy is told to complain where such an error does not come.
"""

from typing import assert_type

import numpy as np

import fastsvgp as fs
from fastsvgp.covariances.base import Covariance

covariance = fs.RBF(variance=1.0)
assert_type(covariance, fs.RBF)
assert_type(fs.Matern32() + fs.Linear() * fs.Constant(variance=0.2), Covariance)
fs.RBF(varianc=1.0)  # type: ignore[call-arg]
assert_type(fs.Gaussian(), fs.Gaussian)
assert_type(2.0 * fs.RBF() + 1.0, Covariance)
fs.RBF() + "1.0"  # type: ignore[operator]

posterior = fs.LikelihoodForm(mean=np.zeros(3), variance=np.ones(3), preconditioned=False)
likelihood = fs.Softmax(num_classes=3)
model = fs.SVGP(covariance=covariance, inducing=np.zeros((3, 2)), posterior=posterior, likelihood=likelihood)
model.inducing = np.ones((3, 2))  # type: ignore[misc]

X, Y = np.zeros((5, 2)), np.zeros(5)
assert_type(fs.elbo(model, X, Y, num_data=10.0), float)
value, grad = fs.elbo_and_grad(model, X, Y, wrt=("covariance",))
assert_type(value, float)
assert_type(grad, fs.SVGP)
fs.elbo_and_grad(model, X)  # type: ignore[call-overload]
fs.elbo_and_grad(model, X, Y, probes=5)  # random quantities have the names that posteriors give them
X_bar = fs.elbo_and_grad(model, X, Y, inputs=True)[2]
fs.data_term_and_grad(model, X, Y, wrt=())[2]  # type: ignore[misc]
fs.natural_steps(model, X, Y, batch=5)  # type: ignore[call-arg]
fs.natural_step(model, X, Y, sampled=5)
fs.predict_f(model, X, 3)  # type: ignore[call-arg]

sgpr = fs.SGPR(covariance, X, noise_variance=0.1)
assert_type(fs.collapsed_bound_and_grad(sgpr, X, Y), tuple[float, fs.SGPR])
assert_type(fs.optimal_svgp(sgpr, X, Y), fs.SVGP)
