"""Uses of the public names that type checkers must accept or refuse. Nothing runs this file.

``.ci/run`` checks it with mypy and pyright in strict mode; mypy also reports each expression of
type ``Any``. A call that they must refuse has the errors in brackets, and both complain if that
error does not occur.
"""

from typing import assert_type

import numpy as np

import fastsvgp as fs
from fastsvgp.optim.base import OptimiserState
from fastsvgp.optim.flat import Unravel
from fastsvgp.optim.natural.backtracking import NaturalStepInfo
from fastsvgp.records.typed import Array, Number, Record, Vector
from fastsvgp.train.info import FitInfo, StepInfo

covariance = fs.RBF(variance=1.0)
assert_type(covariance, fs.RBF)
assert_type(covariance.lengthscales, Number)
assert_type(
    fs.Matern32() + fs.Linear() * fs.covariances.Constant(variance=0.2), fs.covariances.Covariance
)
assert_type(fs.Gaussian(), fs.Gaussian)
assert_type(2.0 * fs.RBF() + 1.0, fs.covariances.Covariance)

X, Y = np.zeros((5, 2)), np.zeros(5)
posterior = fs.posteriors.LikelihoodForm(
    mean=np.zeros(3), variance=np.ones(3), preconditioned=False
)
model = fs.SVGP(
    covariance=covariance,
    inducing=np.zeros((3, 2)),
    posterior=posterior,
    likelihood=fs.Softmax(num_classes=3),
)
assert_type(model.covariance, fs.covariances.Covariance)
assert_type(model.inducing, Array | Record)
assert_type(model.posterior, fs.posteriors.Posterior)
assert_type(model.likelihood, fs.likelihoods.Likelihood)
assert_type(model.mean, fs.means.Mean | None)
if isinstance(model.covariance, fs.RBF):
    assert_type(model.covariance.lengthscales, Number)
assert_type(fs.records.replace_at(model, "covariance.variance", 2.0), fs.SVGP)
deep = fs.layers.deep_gp(X, fs.Gaussian(variance=0.1), 2, 3)

# bounds: the gradient has the type of the model
assert_type(fs.elbo(model, X, Y, num_data=10.0, rng=np.random.default_rng(0)), float)
assert_type(fs.elbo(deep, X, Y, num_samples=4), float)
assert_type(fs.elbo_and_grad(model, X, Y, wrt=("covariance",), probes=5), tuple[float, fs.SVGP])
assert_type(fs.elbo_and_grad(deep, X, Y), tuple[float, fs.DeepGP])
assert_type(fs.elbo_and_grad(model, X, Y, inputs=True), tuple[float, fs.SVGP, Array])
assert_type(
    fs.elbo_and_grad(model, X, Y, inputs=bool(len(X))),
    tuple[float, fs.SVGP] | tuple[float, fs.SVGP, Array],
)
assert_type(fs.bounds.data_term_and_grad(model, X, Y, inputs=True)[2], Array)
assert_type(fs.bounds.kl_term_and_grad(model, sampled=3), tuple[float, fs.SVGP])

# predictions
assert_type(fs.predict_f(model, X), tuple[Array, Array])
assert_type(fs.predict_f(model, X, full_cov=True, chunk_size=3), tuple[Array, Array])
assert_type(fs.predict_f(model, X, var=False), Array)
assert_type(fs.predict_y(model, X.tolist()), tuple[Array, Array])
assert_type(fs.predict_y(deep, X, num_samples=3, rng=0), tuple[Array, Array])
assert_type(fs.predict_quantiles(model, X, (0.1, 0.9)), Array)

# flat vectors
vector, unravel = fs.ravel(model, fixed="inducing")
assert_type(vector, Vector)
assert_type(unravel, Unravel[fs.SVGP])
assert_type(unravel(vector - 0.1), fs.SVGP)
assert_type(
    unravel.pullback(vector, fs.elbo_and_grad(unravel(vector), X, Y, wrt=unravel.paths)[1]), Vector
)

# steps, one by one
optimiser = fs.adam(0.01, step_sizes={"inducing": fs.optim.schedules.log_linear(1e-4, 0.1, 100)})
state = optimiser.init(model)
assert_type(state, OptimiserState)
assert_type(optimiser.step(model, model, state), tuple[fs.SVGP, OptimiserState])
assert_type(fs.natural_step(model, X, Y, sampled=5), tuple[fs.SVGP, NaturalStepInfo])
assert_type(
    fs.optim.natural_step_and_grad(model, X, Y, wrt=()),
    tuple[fs.SVGP, NaturalStepInfo, float, fs.SVGP],
)
assert_type(fs.sites.natural_steps(model, X, Y, steps=3)[1], list[NaturalStepInfo])


# training
def stops(step: int, value: float, info: StepInfo) -> bool:
    return value > 3 and info.epoch > 2


def score(trained: fs.SVGP) -> float:
    return fs.elbo(trained, X, Y)


assert_type(
    fs.fit(model, X, Y, steps=3, callback=stops, validate=score, graph="auto", probes=3),
    tuple[fs.SVGP, FitInfo],
)
both = fs.optim.by_field(fs.sgd(1e-3), {"layers.0": optimiser})
assert_type(fs.fit(deep, X, Y, epochs=0.5, optimiser=both), tuple[fs.DeepGP, FitInfo])
trained, info = fs.fit(
    fs.SGPR(covariance, X, noise_variance=0.1), X, Y, fixed=("covariance", "noise_variance")
)
assert_type(trained, fs.SGPR)
assert_type(trained.noise_variance, Number)
assert_type(info.values, Vector)
assert_type(info.reason, str)


class Unsized:
    """Rows that ``fit`` could read if they had a length."""

    shape, dtype = (5, 2), X.dtype

    def __getitem__(self, rows: object) -> Array:
        return X


class File(Unsized):
    """An object like a data set of h5py."""

    def __len__(self) -> int:
        return len(X)


assert_type(fs.fit(model, File(), Y, steps=3), tuple[fs.SVGP, FitInfo])
assert_type(fs.collapsed_bound_and_grad(trained, X, Y), tuple[float, fs.SGPR])
assert_type(fs.certificate(trained, X, Y).enough, bool | None)
best = fs.optimal_svgp(trained, X, Y)
assert_type(best, fs.SVGP)
assert_type(best.covariance, fs.covariances.Covariance)

# starting models, and files
assert_type(fs.inducing.kmeans(X, 3, rng=0), Array)
assert_type(fs.inducing.kmeans(X, (3, 2)), fs.posteriors.InducingPair)
assert_type(fs.inducing.median_lengthscales(X, ard=False), float)
fs.recipes.regression(X, Y, inducing=(3, 2), solver="adam", batch_size=100)
fs.save("model.npz", model, note="any", version=3)
loaded = fs.load("model.npz")
assert_type(loaded, Record)
if isinstance(loaded, fs.SVGP):
    assert_type(fs.predict_y(loaded, X), tuple[Array, Array])
paths = fs.sample_paths(model, 3, frequencies="shared", rng=0)
assert_type(paths, fs.posteriors.Paths)
assert_type(paths[1:](X), Array)
assert_type(paths.and_grad(X), tuple[Array, Array])
if isinstance(loaded, fs.optim.TrainingState):
    assert_type(loaded.model, Record)

# refused: unknown names,
fs.RBF(varianc=1.0)  # type: ignore[call-arg]
fs.elbo(model, X, Y, jiter=1e-6)  # type: ignore[call-arg]
fs.elbo_and_grad(model, X, Y, nmu_data=3)  # type: ignore[call-overload]
fs.bounds.data_term_and_grad(model, X, Y, prob=3)  # type: ignore[call-overload]
fs.bounds.kl_term_and_grad(model, jiter=1e-6)  # type: ignore[call-arg]
fs.bounds.lsvgp_direction(model, X, Y, probes=3)  # type: ignore[call-arg]
fs.fit(model, X, Y, stepz=3)  # type: ignore[call-arg]
fs.fit(model, X, Y, steps=3, probe=3)  # type: ignore[call-arg]
fs.em(model, X, Y, steps=3)  # type: ignore[call-arg]
fs.natural_step(model, X, Y, stepsize=0.1)  # type: ignore[call-arg]
fs.sites.natural_steps(model, X, Y, batch=5)  # type: ignore[call-arg]
fs.optim.natural_step_and_grad(model, X, Y, probs=3)  # type: ignore[call-arg]
fs.predict_f(model, X, fullcov=True)  # type: ignore[call-overload]
fs.predict_y(model, X, chunk=3)  # type: ignore[call-arg]
fs.sample_f(model, X, 3, seed=0)  # type: ignore[call-arg]
fs.sample_paths(model, 3, seed=0)  # type: ignore[call-arg]
fs.optimal_svgp(trained, X, Y, jiter=1e-6)  # type: ignore[call-arg]
fs.collapsed_bound_and_grad(trained, X, Y, weight=Y)  # type: ignore[call-arg]
given = (fs.records.Blocks(X, X, Y), posterior, fs.Gaussian(0.1), Y)
fs.bounds.elbo_and_grad_from_blocks(*given, num_date=3)  # type: ignore[call-arg]
fs.posteriors.convert(model, fs.Whitened, jiter=1e-6)  # type: ignore[call-arg]
fs.ravel(model, unconstraind=True)  # type: ignore[call-arg]
fs.adam(step=0.1)  # type: ignore[call-arg]
fs.load("model.npz", kind=fs.SVGP)  # type: ignore[call-arg]
fs.inducing.kmeans(X, 3, seed=0)  # type: ignore[call-overload]
fs.recipes.regression(X, Y, solvr="adam")  # type: ignore[call-arg]

# too few arguments or too many, and values of other kinds
fs.elbo_and_grad(model, X)  # type: ignore[call-overload]
fs.predict_f(model, X, 3)  # type: ignore[call-overload]
fs.bounds.data_term_and_grad(model, X, Y, wrt=())[2]  # type: ignore[misc]
fs.RBF() + "1.0"  # type: ignore[operator]
fs.fit(X, model, Y)  # type: ignore[arg-type, type-var]
fs.fit(model, Unsized(), Y)  # type: ignore[arg-type]
fs.fit(model, X, Y, optimiser=fs.adam)  # type: ignore[arg-type]
fs.fit(model, X, Y, graph="yes")  # type: ignore[arg-type]
fs.SVGP(posterior, X, covariance, fs.Gaussian(0.1))  # type: ignore[arg-type]
model.inducing = np.ones((3, 2))  # type: ignore[misc]
