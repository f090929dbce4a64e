"""Moments of bumps over normal inputs, against NumPy and its complex step."""

import numpy as np
from support.looped import looped
from support.normal_inputs import bumps_oracle, normal_inputs_problem, rises_oracle

from fastsvgp import kernels

SIZES = [(1, 1, 1, 1), (3, 2, 2, 1), (4, 7, 3, 2), (5, 33, 5, 1), (2, 50, 4, 3), (40, 17, 6, 1)]
STEP = 1e-30


def turns(rng, N, D):
    return np.linalg.qr(rng.standard_normal((N, D, D)))[0] * rng.uniform(0.5, 1, (N, 1, D))


def scaled(a, b, tolerance):
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(1.0, np.abs(b).max(initial=0)))


@looped("N, M, D, P", SIZES)
def test_bumps(rng, N, M, D, P):
    mean, Z = rng.standard_normal((N, D)), rng.standard_normal((M, D))
    precision, logs = rng.uniform(0, 2, (N, D)), rng.standard_normal(N)
    for turn in (None, turns(rng, N, D)):
        found = kernels.normal_bumps(mean, Z, precision, logs, turn)
        np.testing.assert_allclose(found, bumps_oracle(mean, Z, precision, logs, turn), rtol=1e-13)
    bar = rng.standard_normal((N, M))
    bars = kernels.normal_bumps_vjp(bar, mean, Z, precision)
    moves = [rng.standard_normal(a.shape) for a in (mean, Z, precision)]
    moved = [a + STEP * 1j * d for a, d in zip((mean, Z, precision), moves, strict=True)]
    slope = (bar * np.log(bumps_oracle(*moved, logs)).imag).sum() / STEP
    total = sum((one * d).sum() for one, d in zip(bars, moves, strict=True))
    scaled(total, slope, 1e-11)


@looped("N, M, D, P", SIZES)
def test_forms_and_sums(rng, N, M, D, P):
    given, G, weights = normal_inputs_problem(rng, N, M, D, P)
    R = rises_oracle(*given)
    upper = G.copy()
    upper[:, *np.triu_indices(M, 1)] = np.nan  # not read
    scaled(kernels.normal_rises(*given, upper), np.einsum("pij,nij->np", G, R), 1e-12)
    sums = kernels.normal_rise_sums(*given, weights)
    scaled(sums, np.einsum("np,nij->pij", weights, R), 1e-12)
    np.testing.assert_array_equal(sums, np.swapaxes(sums, 1, 2))
    turn = turns(rng, N, D)
    R = rises_oracle(*given, turn)
    scaled(kernels.normal_rises(*given, G, turn), np.einsum("pij,nij->np", G, R), 1e-12)


@looped("N, M, D, P", SIZES)
def test_reverse_rule_against_complex_steps(rng, N, M, D, P):
    given, G, weights = normal_inputs_problem(rng, N, M, D, P)
    forms, sums, *bars = kernels.normal_rises_vjp(*given, G, weights, sums=True)
    scaled(forms, kernels.normal_rises(*given, G), 1e-13)
    scaled(sums, kernels.normal_rise_sums(*given, weights), 1e-13)
    assert kernels.normal_rises_vjp(*given, G, weights)[1] is None
    log_bar, mean_bar, kappa_bar, nu_bar, shift_bar, Z_bar = bars
    for at, bar in enumerate((mean_bar, Z_bar, log_bar, kappa_bar, nu_bar, shift_bar)):
        move = rng.standard_normal(given[at].shape)
        step = given[at] * move if at == 2 else move  # of the logarithm of values
        moved = [a + STEP * 1j * step if i == at else a for i, a in enumerate(given)]
        R = rises_oracle(*moved).imag / STEP
        scaled((bar * move).sum(), np.einsum("np,pij,nij->", weights, G, R), 1e-10)


def test_small_rises_keep_their_digits(rng):
    """R is proportional to kappa where kappa is small."""
    given, G, weights = normal_inputs_problem(rng, 3, 9, 2, 1)
    mean, Z, values, kappa, *_ = given
    e, none = mean[:, None] - Z, np.zeros(kappa.shape)
    slopes = np.einsum("nid,nd,njd->nij", e, kappa, e) * values[:, :, None] * values[:, None]
    expected = np.einsum("pij,nij->np", G, slopes)
    found = kernels.normal_rises(mean, Z, values, 1e-12 * kappa, none, none[:, 0], G) / 1e-12
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


def test_far_rows(rng):
    """Exponents beyond exp's range, with values that are as small as the exponents are large."""
    N, M, D = 4, 11, 3
    mean, Z = 30 * rng.standard_normal((N, D)), rng.standard_normal((M, D))
    t = np.full((N, D), 0.7)
    p = np.ones(D)
    kappa, nu = t / (1 + 2 * t), t**2 / ((1 + t) * (1 + 2 * t))
    shift = 0.5 * np.log1p(t**2 / (1 + 2 * t)).sum(1)
    logs = -0.5 * ((p / (1 + t))[:, None] * (mean[:, None] - Z) ** 2).sum(-1)
    e = mean[:, None] - Z
    h = 0.5 * (nu[:, None] * e**2).sum(-1)
    x = np.einsum("nid,nd,njd->nij", e, kappa, e) - h[:, :, None] - h[:, None]
    both = logs[:, :, None] + logs[:, None]
    R = np.exp(x + shift[:, None, None] + both) - np.exp(both)
    signs = rng.choice([-1.0, 1.0], (N, M))
    R = R * signs[:, :, None] * signs[:, None]
    G = np.ones((1, M, M))
    found = kernels.normal_rises(mean, Z, signs * np.exp(logs), kappa, nu, shift, G)[:, 0]
    np.testing.assert_allclose(found, R.sum((1, 2)), rtol=1e-10, atol=1e-300)


def test_threads_agree(rng):
    import fastsvgp as fs

    given, G, weights = normal_inputs_problem(rng, 60, 40, 3, 1)
    with fs.set_num_threads(1):
        alone = kernels.normal_rises_vjp(*given, G, weights, sums=True)
    with fs.set_num_threads(3):
        several = kernels.normal_rises_vjp(*given, G, weights, sums=True)
    for one, other in zip(alone, several, strict=True):
        scaled(other, one, 1e-13)
