"""A user-defined posterior: independent values u; probes can estimate the trace in the KL."""

from typing import Any

import numpy as np
import pytest
from support.trials import (
    assert_bound,
    assert_fits,
    assert_joint_predictions,
    assert_single_precision,
    assert_trains_and_is_kept,
)

import fastsvgp as fs
from fastsvgp.extending import Bars, Joint, Projection, check, kernels, matches, raise_to_floor
from fastsvgp.testing import assert_gradient


@fs.records.record
class Independent(fs.posteriors.Posterior):
    """q(u) = N(mean, diag(variance)). mean, variance : (..., M).

    With J = (Kuu + jitter I)^-1, Q = J Kuf, and a, b, kappa the cotangents of means, variances and
    KL:

        mean = Q' m,    var = kff - colsum(Kuf Q) + colsum(s Q^2)
        KL   = (tr(J diag(s)) + m' J m - M + log det J^-1 - sum log s) / 2

        H       = J (m a' + 2 s Q b),    Kuf_bar = H - 2 Q b,    Kuu_bar = Q diag(b) Q' - sym(H Q')
        m_bar   = Q a + kappa J m,       s_bar   = Q^2 b + kappa (diag J - 1 / s) / 2
        Kuu_bar += kappa (J - J (m m' + diag s) J) / 2

    With probes Z (M, K) of +-1 the trace is sum((J Z) (s Z)) / K: diag(J) becomes the mean of (J Z)
    Z over the probes, and J diag(s) J that of sym((J Z) (J s Z)').
    """

    mean: Any = fs.records.leaf()
    variance: Any = fs.records.leaf("positive")

    no_natural_step = "none has been derived for it"
    random_quantities = ("probes",)

    def check_size(self, M):
        mean, variance = np.shape(self.mean), np.shape(self.variance)
        if len(mean) not in (1, 2) or mean[-1] != M or mean[0] == 0 or variance != mean:
            raise ValueError(
                f"`posterior` has mean {mean} and variance {variance}; {M} inducing inputs need"
                f" (..., {M}) for both"
            )
        return mean[:-1]

    def draw(self, name, value, M, dtype, rng):
        if np.ndim(value) == 0:
            return (
                2 * check.generator(rng).integers(0, 2, (M, check.whole(name, value))) - 1
            ).astype(dtype)
        value = check.as_array(name, value)
        if value.ndim != 2 or len(value) != M:
            raise ValueError(f"`{name}` must have shape ({M}, K), got {value.shape}")
        return value.astype(dtype)

    def start_from(self, prior, columns=0, need=(), probes=None):
        return IndependentPass(self, prior, need, probes)


class IndependentPass(fs.posteriors.Pass):
    """J, the parameters as (P, M), and the sums that ``pull`` collects."""

    def __init__(self, q, prior, need, probes):
        self.q, self.need, self.probes = q, need, probes
        self.J, self.log_det = (
            kernels.cholesky_inverse(prior.L),
            2 * np.log(prior.L.diagonal()).sum(dtype=float),
        )
        self.m, self.s = (field.reshape(-1, field.shape[-1]) for field in (q.mean, q.variance))
        self.Jm = kernels.matmul(self.m, self.J)
        self.m_bar, self.s_bar, self.Kuu_bar = (np.zeros_like(a) for a in (self.m, self.s, self.J))

    def _shape(self, N):
        return (*self.q.mean.shape[:-1], N)

    def project(self, Kuf, kff):
        Q = kernels.matmul(self.J, Kuf)
        var = kff - (Kuf * Q).sum(0) + kernels.matmul(self.s, np.square(Q))
        self.clamped += raise_to_floor(var, kff)
        shape = self._shape(len(kff))
        return Projection(
            fs.records.Marginals(kernels.matmul(self.m, Q).reshape(shape), var.reshape(shape)), Q
        )

    def joint(self, Kuf, Kff):
        Q, shape = kernels.matmul(self.J, Kuf), self._shape(len(Kff))
        prior = Kff - kernels.matmul(Kuf, Q, transpose_a=True)
        covs = [prior + kernels.matmul(Q, s[:, None] * Q, transpose_a=True) for s in self.s]
        return Joint(
            kernels.matmul(self.m, Q).reshape(shape), np.stack(covs).reshape(*shape, len(Kff))
        )

    def pull(self, rows, f_bar):
        Q, shape = rows, (len(self.m), rows.shape[1])
        a, b = f_bar.mean.reshape(shape), f_bar.var.reshape(shape)
        self.m_bar += kernels.matmul(a, Q, transpose_b=True)
        self.s_bar += kernels.matmul(b, np.square(Q), transpose_b=True)
        if not any(matches(f"blocks.{block}", self.need) for block in ("Kuf", "Kuu")):
            return None
        inner = kernels.matmul(self.m, a, transpose_a=True) + 2 * Q * kernels.matmul(
            self.s, b, transpose_a=True
        )
        H, Qb = kernels.matmul(self.J, inner), Q * b.sum(0)
        self.Kuu_bar += kernels.matmul(Qb - H, Q, transpose_b=True)
        return H - 2 * Qb

    def _diagonal(self):
        """The diagonal of J, or its estimate."""
        if self.probes is None:
            return self.J.diagonal()
        return (kernels.matmul(self.J, self.probes) * self.probes).mean(1)

    def _trace_bar(self):
        """The cotangent of Kuu through tr(J diag(s)), except for its sign, summed over outputs."""
        s = self.s.sum(0)[:, None]
        if self.probes is None:
            return kernels.matmul(self.J, s * self.J)
        left, right = kernels.matmul(self.J, self.probes), kernels.matmul(self.J, s * self.probes)
        return kernels.matmul(left, right, transpose_b=True) / self.probes.shape[1]

    def kl(self):
        each = self.s * self._diagonal() + self.m * self.Jm - 1 - np.log(self.s)
        return 0.5 * (float(each.sum(dtype=float)) + len(self.m) * float(self.log_det))

    def finish(self, kl_bar):
        m_bar, s_bar = (
            self.m_bar + kl_bar * self.Jm,
            self.s_bar + 0.5 * kl_bar * (self._diagonal() - 1 / self.s),
        )
        Kuu_bar, shape = None, self.q.mean.shape
        if matches("blocks.Kuu", self.need):
            quadratic = kernels.matmul(self.Jm, self.Jm, transpose_a=True) + self._trace_bar()
            Kuu_bar = self.Kuu_bar + 0.5 * kl_bar * (len(self.m) * self.J - quadratic)
            Kuu_bar = 0.5 * (Kuu_bar + Kuu_bar.T)
        mean = m_bar.reshape(shape) if matches("posterior.mean", self.need) else None
        return Bars(
            Independent(
                mean, s_bar.reshape(shape) if matches("posterior.variance", self.need) else None
            ),
            Kuu_bar,
        )


def problem(rng, P=None, likelihood=None):
    lead, M = () if P is None else (P,), 6
    X = rng.uniform(-2, 2, (40, 2))
    Z = np.stack(np.meshgrid([-1.5, 0.0, 1.5], [-1.0, 1.0]), -1).reshape(-1, 2) + rng.uniform(
        -0.2, 0.2, (M, 2)
    )
    q = Independent(rng.standard_normal((*lead, M)), rng.uniform(0.1, 0.6, (*lead, M)))
    Y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(40)
    Y = Y if P is None else np.stack([(-1) ** p * Y for p in range(P)], 1)
    mean = fs.means.LinearMean(rng.standard_normal((*lead, 2)), 0.3)
    return (
        fs.SVGP(fs.RBF(1.3, np.array([0.8, 1.1])), Z, q, likelihood or fs.Gaussian(0.2), mean),
        X,
        Y,
    )


def dense(model):
    """The same with ``Marginal``."""
    q = model.posterior
    trils = np.sqrt(q.variance)[..., None] * np.eye(q.mean.shape[-1])
    return fs.replace(model, posterior=fs.Marginal(q.mean, trils))


@pytest.mark.parametrize("P", [None, 1, 3])
def test_the_numbers_of_marginal(rng, P):
    model, X, Y = problem(rng, P)
    np.testing.assert_allclose(fs.elbo(model, X, Y), fs.elbo(dense(model), X, Y), rtol=1e-9)
    for full_cov in (False, True):
        found = zip(
            *(fs.predict_f(m, X, full_cov=full_cov) for m in (model, dense(model))), strict=True
        )
        for ours, theirs in found:
            np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)
    (_, ours, X_bar), (_, theirs, their_X_bar) = (
        fs.elbo_and_grad(m, X, Y, inputs=True) for m in (model, dense(model))
    )
    ours, theirs = (
        fs.replace(grad, posterior=fs.Whitened(grad.posterior.mean, None))
        for grad in (ours, theirs)
    )
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(ours), fs.records.leaves(theirs), strict=True
    ):
        if b is not None:
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * np.abs(b).max(), err_msg=path)
    np.testing.assert_allclose(X_bar, their_X_bar, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("P", [None, 1, 3])
def test_bound(rng, P):
    assert_bound(*problem(rng, P), rng)


def test_bound_of_counts(rng):
    model, X, Y = problem(rng, likelihood=fs.Poisson())
    assert_bound(model, X, np.round(np.exp(Y)), rng)


def test_probes(rng):
    model, X, Y = problem(rng, 2)
    assert_bound(model, X, Y, rng, probes=rng.choice([-1.0, 1.0], (6, 3)))
    # all 2^6 probes: the mean is exact
    everything = np.stack(np.meshgrid(*[[-1.0, 1.0]] * 6)).reshape(6, -1)
    np.testing.assert_allclose(
        fs.elbo(model, X, Y, probes=everything), fs.elbo(model, X, Y), rtol=1e-9
    )
    assert fs.elbo(model, X, Y, probes=2, rng=1) == fs.elbo(model, X, Y, probes=2, rng=1)
    with pytest.raises(ValueError, match=r"`probes` must have shape \(6, K\)"):
        fs.elbo(model, X, Y, probes=np.ones((5, 2)))
    with pytest.raises(
        TypeError, match="elbo has no option `subset` for SVGP; it takes .*`probes`"
    ):
        fs.elbo(model, X, Y, subset=3)


def test_terms_of_the_bound(rng):
    model, X, Y = problem(rng, 2)
    data, data_grad, data_X_bar = fs.bounds.data_term_and_grad(model, X, Y, inputs=True)
    kl, kl_grad = fs.bounds.kl_term_and_grad(model)
    value, grad, X_bar = fs.elbo_and_grad(model, X, Y, inputs=True)
    np.testing.assert_allclose(data - kl, value, rtol=1e-12)
    np.testing.assert_array_equal(data_X_bar, X_bar)
    for (path, _, a), (_, _, b), (_, _, c) in zip(
        *(fs.records.leaves(g) for g in (data_grad, kl_grad, grad)), strict=True
    ):
        np.testing.assert_allclose(a - b, c, rtol=1e-9, atol=1e-9 * np.abs(a).max(), err_msg=path)


def test_a_batch_in_parts_is_the_sum_of_its_rows(rng):
    model, X, Y = problem(rng)
    times = 100  # 4000 rows: several chunks
    value, grad, X_bar = fs.elbo_and_grad(
        model, np.tile(X, (times, 1)), np.tile(Y, times), num_data=len(X) * times, inputs=True
    )
    once, exact, once_X_bar = fs.elbo_and_grad(model, X, Y, num_data=len(X) * times, inputs=True)
    np.testing.assert_allclose(value, once, rtol=1e-9)
    np.testing.assert_allclose(
        grad.inducing, exact.inducing, rtol=1e-7, atol=1e-7 * np.abs(exact.inducing).max()
    )
    np.testing.assert_allclose(
        X_bar[-40:] * times, once_X_bar, rtol=1e-8, atol=1e-8 * np.abs(once_X_bar).max()
    )


def test_on_blocks(rng):
    model, X, Y = problem(rng)
    blocks = model.covariance.blocks(model.inducing, X, full_cov=True)
    q, moved = model.posterior, rng.standard_normal((6, 6))
    _, (bar, _, _) = fs.bounds.elbo_and_grad_from_blocks(
        blocks, q, model.likelihood, Y, jitter=1e-2
    )
    moved = moved + moved.T

    def value(step):
        return fs.bounds.elbo_and_grad_from_blocks(
            fs.replace(blocks, Kuu=blocks.Kuu + step), q, model.likelihood, Y, jitter=1e-2
        )[0]

    assert_gradient(lambda s: value(s * moved / 100), 0.0, np.vdot(bar.Kuu, moved / 100))
    np.testing.assert_array_equal(bar.Kuu, bar.Kuu.T)
    for full_cov in (False, True):
        exact = fs.predict_f(fs.replace(model, mean=None), X, full_cov=full_cov)
        for ours, theirs in zip(
            fs.bounds.predict_from_blocks(blocks, q, full_cov=full_cov), exact, strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def test_predictions_training_and_files(rng, tmp_path):
    for P in (None, 2):
        model, X, Y = problem(rng, P)
        assert_joint_predictions(model, X)
        assert_trains_and_is_kept(model, X, Y, tmp_path)
        assert_fits(model, X, Y)
        assert_fits(model, X, Y, probes=4)


def test_single_precision(rng):
    assert_single_precision(*problem(rng, 2))


def test_no_natural_step_and_wrong_sizes(rng):
    model, X, Y = problem(rng)
    with pytest.raises(
        TypeError, match="a Independent posterior cannot .* because none has been derived for it"
    ):
        fs.natural_step(model, X, Y)
    wrong = fs.replace(model, posterior=Independent(np.zeros(5), np.ones(5)))
    with pytest.raises(ValueError, match="6 inducing inputs need"):
        fs.elbo(wrong, X, Y)


def test_a_pass_without_the_cotangent_of_Kuf_is_named(rng, monkeypatch):
    model, X, Y = problem(rng)
    monkeypatch.setattr(IndependentPass, "pull", lambda self, rows, f_bar: None)
    for options in ({"wrt": ("covariance",)}, {"wrt": (), "inputs": True}):
        with pytest.raises(TypeError, match="IndependentPass.pull returned None, but its `need`"):
            fs.elbo_and_grad(model, X, Y, **options)
    fs.elbo_and_grad(model, X, Y, wrt="posterior")


def test_a_group_names_the_sums_of_a_natural_step_that_it_misses(rng, monkeypatch):
    model, X, Y = problem(rng)
    monkeypatch.setattr(Independent, "natural_fields", ("mean", "variance"))
    with pytest.raises(NotImplementedError, match="IndependentPass has no method `natural_sums`"):
        fs.distributed.threads(2).run(lambda group: fs.natural_step(model, X, Y, group=group))
