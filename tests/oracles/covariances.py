"""Covariance matrices by definition, with (N1, N2, D) tensors, in the dtype of the arguments.

Long double arguments give the reference values.
"""

import itertools

import numpy as np


def distance(X1, X2, lengthscales):
    return np.sqrt((((X1[:, None, :] - X2[None, :, :]) / lengthscales) ** 2).sum(-1))


def root(number, like):
    return np.sqrt(like.dtype.type(number))


def rbf(r):
    return np.exp(-(r**2) / 2)


def matern12(r):
    return np.exp(-r)


def matern32(r):
    t = root(3, r) * r
    return (1 + t) * np.exp(-t)


def matern52(r):
    t = root(5, r) * r
    return (1 + t + t**2 / 3) * np.exp(-t)


def slope_rbf(r):
    return -r * np.exp(-(r**2) / 2)


def slope_matern12(r):
    return np.where(r > 0, -np.exp(-r), 0)


def slope_matern32(r):
    return -3 * r * np.exp(-root(3, r) * r)


def slope_matern52(r):
    t = root(5, r) * r
    return -root(5, r) / 3 * t * (1 + t) * np.exp(-t)


PROFILE = {"rbf": rbf, "matern12": matern12, "matern32": matern32, "matern52": matern52}
SLOPE = {
    "rbf": slope_rbf,
    "matern12": slope_matern12,
    "matern32": slope_matern32,
    "matern52": slope_matern52,
}


def stationary(family, X1, X2, variance, lengthscales):
    return variance * PROFILE[family](distance(X1, X2, lengthscales))


def stationary_vjp(K_bar, family, X1, X2, variance, lengthscales):
    """Chain rule: dr/dx_d = (x_d - x'_d) / (l_d^2 r), dr/dl_d = -(x_d - x'_d)^2 / (l_d^3 r)."""
    r = distance(X1, X2, lengthscales)
    r_bar = K_bar * variance * SLOPE[family](r)
    per_r = np.where(r > 0, r_bar / np.where(r > 0, r, 1), 0)[:, :, None]
    difference = X1[:, None, :] - X2[None, :, :]
    pull = per_r * difference / lengthscales**2
    lengthscales_bar = -(per_r * difference**2 / lengthscales**3).sum((0, 1))
    if np.ndim(lengthscales) == 0:
        lengthscales_bar = lengthscales_bar.sum()
    variance_bar = (K_bar * PROFILE[family](r)).sum()
    return pull.sum(1), -pull.sum(0), variance_bar, lengthscales_bar


def linear(X1, X2, variance):
    return ((X1 * variance)[:, None, :] * X2[None, :, :]).sum(-1)


def constant(X1, X2, variance):
    return np.full((len(X1), len(X2)), variance, np.result_type(X1, variance))


# --- trees of covariances: a covariance is identified by its class name and its fields ----------


def features(network, X):
    """Outputs of a network: hidden layers with an activation, the last one linear."""
    h = X
    for W, b in zip(network.weights[:-1], network.biases, strict=True):
        z = h @ W + b
        h = np.tanh(z) if network.activation == "tanh" else np.where(z.real > 0, z, 0)
    return h @ network.weights[-1]


def kind(covariance):
    return type(covariance).__name__.lower()


def of_distance(covariance, r):
    """A stationary covariance of the distances r."""
    if kind(covariance) == "rationalquadratic":
        s = r**2 / (2 * covariance.alpha)
        return covariance.variance * (1 + s) ** -covariance.alpha
    return covariance.variance * PROFILE[kind(covariance)](r)


def rationalquadratic(covariance, X1, X2):
    return of_distance(covariance, distance(X1, X2, covariance.lengthscales))


def on(covariance, X1, X2):
    columns = list(covariance.columns)
    return matrix(covariance.part, X1[:, columns], X2[:, columns])


def pi(like):
    return np.arccos(-like.dtype.type(1))


def periodic(covariance, X1, X2):
    turns = (X1[:, None, :] - X2[None, :, :]) / covariance.period
    chords = 2 * np.sin(pi(X1) * turns) / covariance.part.lengthscales
    return of_distance(covariance.part, np.sqrt((chords**2).sum(-1)))


def weighted_inner(covariance, X1, X2):
    return linear(X1, X2, covariance.weights) + covariance.offset


def polynomial(covariance, X1, X2):
    return weighted_inner(covariance, X1, X2) ** covariance.degree


def arccosine(covariance, X1, X2):
    lengths = [
        np.sqrt(np.stack([weighted_inner(covariance, x[None], x[None])[0, 0] for x in X]))
        for X in (X1, X2)
    ]
    lengths = lengths[0][:, None] * lengths[1]
    angle = np.arccos(np.clip(weighted_inner(covariance, X1, X2) / lengths, -1, 1))
    rest = pi(X1) - angle
    if covariance.order == 1:
        J = np.sin(angle) + rest * np.cos(angle)
    else:
        J = 3 * np.sin(angle) * np.cos(angle) + rest * (1 + 2 * np.cos(angle) ** 2)
    return covariance.variance / pi(X1) * lengths**covariance.order * J


def cosine(covariance, X1, X2):
    turns = ((X1[:, None, :] - X2[None, :, :]) * covariance.frequencies).sum(-1)
    return covariance.variance * np.cos(2 * pi(X1) * turns)


def changepoints(covariance, X1, X2):
    total, at = 0, np.sort(covariance.at)
    for i, part in enumerate(covariance.parts):
        K = matrix(part, X1, X2)
        for x, shape in ((X1[:, covariance.column], (-1, 1)), (X2[:, covariance.column], (1, -1))):
            w = np.ones_like(x)
            if i > 0:
                w = w / (1 + np.exp(-covariance.steepness * (x - at[i - 1])))
            if i < len(covariance.parts) - 1:
                w = w / (1 + np.exp(-covariance.steepness * (at[i] - x)))
            K = K * w.reshape(shape)
        total = total + K
    return total


def additive(covariance, X1, X2):
    """By the definition: a sum over all sets of columns."""
    z = np.exp(-(((X1[:, None, :] - X2[None, :, :]) / covariance.lengthscales) ** 2) / 2)
    return sum(
        variance * z[:, :, list(columns)].prod(-1)
        for j, variance in enumerate(covariance.variances)
        for columns in itertools.combinations(range(X1.shape[1]), j + 1)
    )


OTHERS = {
    "additive": additive,
    "arccosine": arccosine,
    "changepoints": changepoints,
    "cosine": cosine,
    "on": on,
    "periodic": periodic,
    "polynomial": polynomial,
    "rationalquadratic": rationalquadratic,
}


def matrix(covariance, X1, X2):
    """The dense definition of any tree of covariances."""
    name = kind(covariance)
    if name in ("sum", "product"):
        return {"sum": np.add, "product": np.multiply}[name].reduce(
            [matrix(part, X1, X2) for part in covariance.parts]
        )
    if name in ("linear", "constant"):
        return {"linear": linear, "constant": constant}[name](X1, X2, covariance.variance)
    if name in OTHERS:
        return OTHERS[name](covariance, X1, X2)
    return stationary(name, X1, X2, covariance.variance, covariance.lengthscales)


def matrix_vjp(K_bar, covariance, X1, X2, prefix=""):
    """Cotangents of ``matrix``: of the fields, as a dictionary by dotted path, of X1 and of X2."""
    name = kind(covariance)
    if name in ("sum", "product"):
        fields, X1_bar, X2_bar = {}, np.zeros_like(X1), np.zeros_like(X2)
        for i, part in enumerate(covariance.parts):
            part_bar = K_bar
            if name == "product":
                for other in covariance.parts[:i] + covariance.parts[i + 1 :]:
                    part_bar = part_bar * matrix(other, X1, X2)
            own, own_X1_bar, own_X2_bar = matrix_vjp(part_bar, part, X1, X2, f"{prefix}parts.{i}.")
            fields |= own
            X1_bar += own_X1_bar
            X2_bar += own_X2_bar
        return fields, X1_bar, X2_bar
    if name == "constant":
        return {prefix + "variance": K_bar.sum()}, np.zeros_like(X1), np.zeros_like(X2)
    variance = covariance.variance
    if name == "linear":
        each = K_bar[:, :, None] * X1[:, None, :] * X2[None, :, :]
        variance_bar = each.sum((0, 1)) if np.ndim(variance) else each.sum()
        X1_bar, X2_bar = (
            (K_bar[:, :, None] * X2[None]).sum(1),
            (K_bar[:, :, None] * X1[:, None]).sum(0),
        )
        return {prefix + "variance": variance_bar}, X1_bar * variance, X2_bar * variance
    X1_bar, X2_bar, variance_bar, lengthscales_bar = stationary_vjp(
        K_bar, name, X1, X2, variance, covariance.lengthscales
    )
    return (
        {prefix + "variance": variance_bar, prefix + "lengthscales": lengthscales_bar},
        X1_bar,
        X2_bar,
    )
