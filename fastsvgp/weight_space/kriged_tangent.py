"""The tangent bound of each of two samples, kriged, and its own gradient.

With kriging, B = k_xP K_PP^-1, and a sample's features phi^ and phi^_P, weights included,

    p^ = (phi^ - B phi^_P + B phi_P) A,    E p^ = phi A,    V^ = V + sum_r X^_r^2,    E V^ >= sd^2,    sd^ = (V^ / t + t) / 2:

H(mean^, sd^) is at most H(mean, sd) on average, by less the less p^ varies (``sampled``). Squares
of one sample stand for the products of two: they can only add to E V^, and so what a side says
depends on that side alone. The value is the mean of both.

Its average over samples depends on A by what is sampled, and by phi_P A, which is known but dense.
With out_bar, the cotangents (p_bar, 2 V_bar X^) that one side has of its p^ and X^, the gradient of
the average is the average of

    phi^' out_bar - phi^_P' B' out_bar + phi_P' B' out_bar,

and as out_bar and the *other* sample are independent, the other's phi^_P' may stand for phi_P' in
the last. So, with halves of out_bar for the mean of both, the rows that i names get

    phi_i' out_bar_i + phi_Pi' B' (out_bar_j - out_bar_i):

their own side's word where the points know nothing of a function, the other's where they tell all
of it (phi = phi_P B'). It is unbiased for the gradient of what the value is on average, a bound, in
all of the posterior. In hyperparameters it is that of the value: the control's basis stays as it
was.
"""

import numpy as np

from .. import kernels
from ..records import Marginals, plus, tree_map
from .control_variates import add_there


def tangent(likelihood, Y, mean, V, scale, t):
    """``(ell, p_bar, V_bar, likelihood_bar)`` of the tangent bound at estimates of the mean and the variance."""
    sd = 0.5 * (V / t + t)
    # at 0 the derivative in sd is 0, whatever that in var is
    var = np.maximum(sd * sd, np.finfo(sd.dtype).tiny ** 0.5)
    ell, f_bar, likelihood_bar = likelihood.expected_log_prob(Y, Marginals(mean, var), None)
    return (
        scale * ell,
        scale * f_bar.mean,
        scale * f_bar.var * sd / t,
        tree_map(lambda bar: bar * scale, likelihood_bar),
    )


def kriged_tangent(likelihood, Y, i, j, scale, t, control, near):
    """``(ell, likelihood_bar)``; the sides get their cotangents."""
    ell, bars, rows = 0.0, None, []
    for side in (i, j):
        V = side.V + np.square(side.X).sum(axis=0)
        value, p_bar, V_bar, bar = tangent(likelihood, Y, side.p, V, 0.5 * scale, t)
        side.pull(p_bar, 2 * V_bar * side.X, V_bar)
        ell, bars = ell + value, plus(bar, bars)
        rows.append(side.out_bar)
    apart = control.weighed(kernels.matmul(rows[1] - rows[0], near, transpose_b=True))
    add_there(i, apart)
    add_there(j, -apart)
    return ell, bars
