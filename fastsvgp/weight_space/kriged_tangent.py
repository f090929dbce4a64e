"""Tangent bound of each of two samples, kriged, and its gradient.

With kriging, B = k_xP K_PP^-1, and a sample's features phi^ and phi^_P, weights included,

    p^ = (phi^ - B phi^_P + B phi_P) A,    E p^ = phi A,
    V^ = V + sum_r X^_r^2,    E V^ >= sd^2,    sd^ = (V^ / t + t) / 2:

H(mean^, sd^) is at most H(mean, sd) on average (see ``sampled_bound``). The difference shrinks with
the variance of p^. Squares of one sample replace the products of two; they can only increase E V^.
So the term of a side depends only on that side. The value is the mean of both.

The average of the value over samples depends on A through the sampled features, and through
phi_P A, which is known but dense. With out_bar, the cotangents (p_bar, 2 V_bar X^) of one side's p^
and X^, the gradient of the average is the average of

    phi^' out_bar - phi^_P' B' out_bar + phi_P' B' out_bar.

Because out_bar and the *other* sample are independent, the other's phi^_P' can replace phi_P' in
the last term. With halves of out_bar for the mean of both, the rows that i names get

    phi_i' out_bar_i + phi_Pi' B' (out_bar_j - out_bar_i):

the term of their own side for a function that the points do not determine, and that of the other
side for a function that they determine fully (phi = phi_P B'). The gradient is unbiased for that of
the average value, a bound, in the whole posterior. In hyperparameters it is the gradient of the
value: the control's basis is held fixed.
"""

import numpy as np

from .. import kernels
from ..records import Marginals, plus
from .estimators import DataTerm, Reduced, tangent_bound
from .sample_side import SeenBars, moments


class KrigedTangent(Reduced):
    """Tangent bound with a control: the mean of both sides' own bounds."""

    def data_term(self):
        """Evaluate both sides separately, and couple their cotangents at the control's points."""
        task, t, ell, likelihood_bar, bars = self.task, self.task.sd_guess(), 0.0, None, []
        seen = [side.forward(task.X, task.control, task.near) for side in (self.i, self.j)]
        for one in seen:
            f = Marginals(one.p, one.V + np.square(one.X).sum(axis=0))
            value, p_bar, V_bar, bar = tangent_bound(
                task.model.likelihood, task.Y, f, 0.5 * task.scale, t
            )
            bars.append(SeenBars.of(p_bar, 2 * V_bar * one.X, V_bar))
            ell, likelihood_bar = ell + value, plus(bar, likelihood_bar)
        difference = kernels.matmul(bars[1].out - bars[0].out, task.near, transpose_b=True)
        points = task.control.kriging_weights(difference)
        i_bars, j_bars = bars[0]._replace(points=points), bars[1]._replace(points=-points)
        return DataTerm(ell, likelihood_bar, moments(*seen), tuple(seen), (i_bars, j_bars))
