"""Rules of quadrature, against plain loops over data and nodes."""

import math

import numpy as np

from fastsvgp.kernels.common.quadrature_rules import rule
from fastsvgp.kernels.cpu import quadrature

from .common import Case, plain

ROOT, TWO_PI = math.sqrt(0.5), 2 * math.pi


@plain
def expectation(mean, var, z, w, out):
    out[:] = 0
    for i in range(mean.size):
        root = math.sqrt(var[i])
        for k in range(z.size):
            x = mean[i] + root * z[k]
            tail = 0.5 * math.erfc(-ROOT * x)
            slope = math.exp(-0.5 * x * x) / (math.sqrt(TWO_PI) * tail)
            out[0, i] += w[k] * math.log(tail)
            out[1, i] += w[k] * slope
            out[2, i] += w[k] * z[k] * slope / (2 * root)


@plain
def largest(Y, mean, var, z, w, p):
    for i in range(Y.size):
        y, p[i] = Y[i], 0
        for k in range(z.size):
            f, product = mean[y, i] + math.sqrt(var[y, i]) * z[k], w[k]
            for c in range(len(mean)):
                if c != y:
                    t = (f - mean[c, i]) / math.sqrt(var[c, i])
                    product *= 0.5 * math.erfc(-ROOT * t)
            p[i] += product


@plain
def expected_logsumexp(mean, var, points, value, d_mean):
    value[:] = 0
    d_mean[:] = 0
    C, share, x = len(mean), 1 / len(points), np.empty(len(mean))
    for i in range(value.size):
        for s in range(len(points)):
            top, total = -np.inf, 0.0
            for c in range(C):
                x[c] = mean[c, i] + math.sqrt(var[c, i]) * points[s, c]
                top = max(top, x[c])
            for c in range(C):
                x[c] = math.exp(x[c] - top)
                total += x[c]
            value[i] += share * (top + math.log(total))
            for c in range(C):
                d_mean[c, i] += share * x[c] / total


@plain
def tabulated_average(G, nodes, weights, table, mean, var, out):
    for i in range(mean.size):
        x, w, mass, value = nodes[table[i]], weights[table[i]], 0.0, 0.0
        for k in range(x.size):
            z = x[k] - mean[i]
            e = w[k] * math.exp(-0.5 * z * z / var[i])
            mass += e
            value += e * G[table[i], 0, k]
        out[0, i] = value / mass


def cases(dtype):
    rng, near = np.random.default_rng(0), 1e-10 if dtype == np.float64 else 1e-5
    z, w = rule(20)
    for N in 256, 8192:
        m, v = rng.standard_normal(N).astype(dtype), (0.5 + rng.gamma(1.0, 1.0, N)).astype(dtype)
        out = np.empty((3, N))

        def expected():
            expectation(m.astype(float), v.astype(float), z, w, out)
            return tuple(out)

        yield Case(
            f"expectation, {N}",
            lambda: quadrature.expectation("log_ndtr", m, v, 20, True),
            expected,
            near,
        )
        for C in 3, 10:
            M = rng.standard_normal((C, N)).astype(dtype)
            V = (0.5 + rng.gamma(1.0, 1.0, (C, N))).astype(dtype)
            Y, p, d = rng.integers(0, C, N), np.empty(N), np.empty((C, N))
            points = quadrature.normal_points(C, 64, 0)

            def probability():
                largest(Y, M.astype(float), V.astype(float), z, w, p)
                return p

            def sums():
                expected_logsumexp(M.astype(float), V.astype(float), points, p, d)
                return p, d

            yield Case(
                f"largest, {C} x {N}",
                lambda: quadrature.largest(Y, M, V, 20, False)[0],
                probability,
                near,
            )
            yield Case(
                f"expected_logsumexp, {C} x {N}",
                lambda: quadrature.expected_logsumexp(M, V, points, True)[:2],
                sums,
                near,
            )
        nodes = np.linspace(-9, 9, 400)[None]
        G, weights, table = np.tanh(nodes)[None], np.full((1, 400), 18 / 399), np.zeros(N, int)
        one = np.empty((1, N))

        def averages():
            tabulated_average(G, nodes, weights, table, m.astype(float), v.astype(float), one)
            return one

        yield Case(
            f"tabulated_average, {N}",
            lambda: quadrature.tabulated_average(G, nodes, weights, table, m, v, False)[0],
            averages,
            near,
        )
