"""Averages over positive parameters around a mode: Laplace's approximation.

With phi the logarithms of the free positive parameters, J(phi) the collapsed bound plus the log
density of phi, and H = -d2J/dphi2 at a mode,

    p(phi | data) is about N(phi_mode, H^-1).

Column i of H is a central difference of two gradients, -(J'(phi + h e_i) - J'(phi - h e_i)) / 2h,
with an error of h^2 / 6 times a fourth derivative. H is symmetrised, H = V diag(w) V', and each w
below a quarter is raised to it: along an eigenvector the standard deviation is at most 2, so that a
parameter without influence varies by a factor of about e^2, and a direction of negative curvature
has a Gaussian too. Draws are antithetic,

    phi_mode + V w^(-1/2) z and phi_mode - V w^(-1/2) z,    z ~ N(0, I),

and their mean is the mode. Where J has fallen by more than twice the Gaussian's |z|^2 / 2 and 3
nats at a draw, as on rows almost without noise, z is halved until it has not: the Gaussian says
nothing there, and one such draw would spoil all predictions.

The Newton step from phi is V w^-1 V'g, of (g' V w^-1 V' g)^(1/2) standard deviations.
"""

from collections.abc import Mapping

import numpy as np

from .. import check, models
from ..bounds.mixture import Mixture
from ..bounds.svgp import SVGP
from ..collapsed.orthogonal import OrthogonalSGPR
from ..collapsed.sgpr import SGPR, collapsed_bound_and_grad, optimal_svgp
from ..errors import NotPositiveDefinite
from ..hilbert.collapsed import BasisGP, checked
from ..hilbert.sums import SufficientSums
from ..likelihoods import Gaussian
from ..optim.flat import free_paths, ravel
from ..posteriors.locate import paths_of_q
from ..records import leaves, matches, tree_map
from ..records.typed import ArrayLike, Names, Record, Seed
from ..runtime import devices
from ..runtime.edge import public_call
from .densities import Prior
from .on_models import place_priors, plus_log_prior

STEP = 1e-3  # of the differences, in a logarithm
LEAST = 0.25  # eigenvalue of the Hessian
FARTHEST = 0.5  # from the mode, in standard deviations
FALL, HALVINGS = 3.0, 30  # nats that a draw may lose besides |z|^2; how often it is halved
OF_SVGP = {"likelihood.variance": "noise_variance"}  # fields of the SGPR of an SVGP


@public_call(SGPR, checks=False, blas_threads=False)
def laplace(
    model: Record,
    X: ArrayLike | Record,
    Y: ArrayLike | None = None,
    *,
    priors: Mapping[str, Prior] | None = None,
    draws: int = 16,
    rng: Seed = None,
    fixed: Names = (),
    weights: ArrayLike | None = None,
    jitter: float | None = None,
) -> Mixture:
    """Average over the parameters of a trained model, by Laplace's approximation at its mode.

    With few rows a point estimate of the parameters makes predictions too sure. This draws the
    logarithms of the positive parameters from a Gaussian at the mode. Its precision is minus the
    Hessian of the collapsed bound, plus that of the log priors. Each draw has its optimal q(u).

    Parameters
    ----------
    model : SGPR, OrthogonalSGPR, BasisGP, or SVGP with Gaussian noise
        At a maximum of the collapsed bound in its positive parameters, as ``fit`` leaves an SGPR,
        and an SVGP with ``collapsed=True``. Other fields stay as they are: inducing inputs, and
        parameters of the mean.
    X : (N, D) array; of a BasisGP also SufficientSums
    Y : (N,) or (N, P) array; none with sums
        The data of the training.
    priors : dict of str to Prior, optional
        Those of the training, as in ``fit``. Default: a flat density of the logarithms.
    draws : int
        An even number: they come in pairs on both sides of the mode.
    rng : None, int or numpy.random.Generator
    fixed : str or sequence of str
        Paths of positive parameters that stay as they are: those fixed in the training.
    weights, jitter
        As in ``fit``.

    Returns
    -------
    Mixture
        Of ``draws`` SVGPs with equal shares, in the dtype of model and data. The first is one of
        the two that are nearest to the mode.

    Raises
    ------
    ValueError
        The model is more than half a standard deviation from a mode; ``draws`` is odd; all
        parameters are fixed.
    TypeError
        The noise of an SVGP is not Gaussian; the model is on a device.
    NotPositiveDefinite
        A factorisation failed, perhaps at a draw: give more ``jitter``.

    Notes
    -----
    2 P + ``draws`` gradients and ``draws`` optimal q(u) for P parameters: (8 P + 6 draws) M^2 N
    flops, and others in M^3. Differences are in float64, for float32 models too. Eigenvalues of the
    Hessian below 0.25 are raised to it, so that no direction has a standard deviation above 2, and
    draws are nearer to the mode where the bound falls far faster than this Gaussian. Source:
    MacKay, "Comparison of approximate methods for handling hyperparameters" (1999).

    Examples
    --------
    >>> trained, info = fs.fit(sgpr, X, Y, fixed="inducing")
    >>> average = fs.laplace(trained, X, Y, draws=8, rng=0)
    >>> mean, var = fs.predict_y(average, Xs)
    >>> len(average.models), mean.shape
    (8, (5,))
    """
    return _average(model, model, {}, X, Y, priors, draws, rng, fixed, weights, jitter)


def _of_svgp(model, X, Y, *, priors=None, draws=16, rng=None, fixed=(), weights=None, jitter=None):
    check.parts(model)
    if type(model.likelihood) is not Gaussian:
        raise TypeError(
            "laplace: the collapsed bound is that of Gaussian noise, and the likelihood is a"
            f" {type(model.likelihood).__name__}; leave laplace out"
        )
    sgpr = SGPR(model.covariance, model.inducing, model.likelihood.variance, model.mean)
    return _average(model, sgpr, OF_SVGP, X, Y, priors, draws, rng, fixed, weights, jitter)


def _of_basis(model, X, Y=None, *, priors=None, draws=16, rng=None, fixed=(), weights=None):
    sums = checked(model, X, Y, weights)[1]
    return _average(model, model, {}, sums, None, priors, draws, rng, fixed, None, None)


models.register(SVGP, laplace=_of_svgp)
models.register(BasisGP, laplace=_of_basis)
models.share(OrthogonalSGPR, SGPR, "laplace")


def _average(model, sgpr, renamed, X, Y, priors, draws, rng, fixed, weights, jitter):
    """Do the work of ``laplace``; ``renamed`` has paths of ``model`` that differ in ``sgpr``."""
    draws, rng = check.whole("draws", draws, 2), check.generator(rng)
    if draws % 2:
        raise ValueError(f"laplace: `draws` must be even, for they come in pairs, got {draws}")
    if devices.device_array(model) is not None:
        raise TypeError("laplace works on the host: move the model by fastsvgp.to_host(model)")
    placed = place_priors(model, priors) or {}
    placed = {renamed.get(path, path): prior for path, prior in placed.items()}
    names = {renamed.get(path, path): path for path in _averaged(model, fixed)}
    if isinstance(X, SufficientSums):
        sgpr, dtype = check.parameters(sgpr, X.gram())
        data = given = (X,)
    else:
        given = X, Y = check.inputs("X", X), check.as_array("Y", Y)
        sgpr, dtype = check.parameters(sgpr, X, *((Y,) if Y.dtype.kind == "f" else ()))
        data = np.asarray(X, np.float64), np.asarray(Y, np.float64)
    options = {"weights": weights, "jitter": check.jitter_amount(jitter, dtype)}

    wide = _cast(sgpr, np.float64)
    held = [path for path in free_paths(wide) if path not in names]
    mode, unravel = ravel(wide, fixed=held, transform="log")

    def height_and_slope(vector):
        there = unravel(vector)
        found = collapsed_bound_and_grad(there, *data, wrt=unravel.paths, **options)
        value, grad = plus_log_prior(placed, there, *found)
        return value, unravel.pullback(vector, grad)

    def slope(vector):
        return height_and_slope(vector)[1]

    root = _inverse_root(_hessian(slope, mode))
    _refuse_slope(slope(mode), root, unravel, names)
    z = rng.standard_normal((draws // 2, len(mode)))
    z = z[np.argsort(np.square(z).sum(axis=1))]
    found, top = [], height_and_slope(mode)[0]
    for one in np.concatenate([z, -z]):
        vector = _shorten(lambda vector: height_and_slope(vector)[0], top, mode, root, one)
        try:
            found.append(optimal_svgp(_cast(unravel(vector), dtype), *given, **options))
        except NotPositiveDefinite as error:
            error.add_note(f"laplace: at draw {len(found) + 1} of {draws}; give more `jitter`")
            raise
    return Mixture(tuple(found), (1 / draws,) * draws)


def _averaged(model, fixed):
    """Return the paths of the positive leaves that are averaged over."""
    kinds = {path: kind for path, kind, _ in leaves(model)}
    held = (*paths_of_q(model), "inducing")
    found = [
        path
        for path in free_paths(model, fixed)
        if kinds[path] == "positive" and not matches(path, held)
    ]
    if not found:
        raise ValueError("laplace: all positive parameters are fixed, there is nothing to average")
    return found


def _cast(model, dtype):
    return tree_map(lambda value: np.asarray(value, dtype)[()], model)


def _hessian(slope, at):
    """Return minus the derivative of ``slope``, (P, P), by central differences."""
    steps = STEP * np.eye(len(at))
    H = np.stack([slope(at - step) - slope(at + step) for step in steps]) / (2 * STEP)
    return (H + H.T) / 2


def _inverse_root(H):
    """Return V w^(-1/2) of the eigenvalues w of H, raised to ``LEAST``, and eigenvectors V."""
    w, V = np.linalg.eigh(H)
    return V / np.sqrt(np.maximum(w, LEAST))


def _shorten(height, top, mode, root, z):
    """Return ``mode + root z``, with z halved until ``height`` has not fallen too far."""
    for _ in range(HALVINGS):
        try:
            if top - height(mode + root @ z) <= z @ z + FALL:
                break
        except NotPositiveDefinite:
            pass
        z = z / 2
    return mode + root @ z


def _refuse_slope(slope, root, unravel, names):
    """Refuse a gradient whose Newton step leads too far away; ``names`` are paths for messages."""
    far = float(np.linalg.norm(root.T @ slope))
    if not far <= FARTHEST:
        at = int(np.argmax(np.abs(slope)))
        (path,) = (path for path, part in unravel.slices.items() if part.start <= at < part.stop)
        part = unravel.slices[path]
        entry = f"[{at - part.start}]" if part.stop - part.start > 1 else ""
        raise ValueError(
            f"laplace: `model` is {far:.2g} standard deviations from a mode (the gradient is"
            f" {slope[at]:.2g} in {names[path]}{entry}): train on, with these X, Y, `priors` and"
            " `fixed`"
        )
