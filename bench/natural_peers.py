"""Problem of ``peers.py --step natural``: one natural-gradient step of q.

The step goes from (m, W) to (m, W), or from sites to sites. JAX computes it by autodiff, as other
programs do: the gradient of the bound in the expectation parameters (m, S + m m') of each q is that
in the natural ones, so with W = chol(S) inside, ``value_and_grad`` gives the step of (S^-1 m, -S^-1
/ 2) (Hensman et al. 2013; Salimbeni et al. 2018). Gaussian noise, P outputs of one covariance; the
whole step is jitted. The comparison is of the new q, whitened.
"""

import os

import numpy as np

JITTER, SCALE, SIZE = 1e-6, 10.0, 0.1


def outputs(p, P):
    """Return targets and q for P outputs: ``(y (B, P), mean (P, M), scale_tril (P, M, M))``."""
    shifts = np.linspace(0.5, 1.5, P)
    return (
        p["y"][:, None] * shifts,
        p["mean"] * shifts[:, None],
        np.repeat(p["scale_tril"][None], P, axis=0),
    )


def ours(kind, steps, P):
    """Return the step of fastsvgp, with q as a ``kind``.

    Several steps, on one batch each, share a factor of Kuu: the time is that of all of them.
    """

    def build(p, device):
        import fastsvgp as fs

        y, mean, tril = outputs(p, P)
        model = fs.SVGP(
            fs.RBF(p["variance"], p["lengthscales"]),
            p["Z"],
            fs.Whitened(mean, tril),
            fs.Gaussian(variance=p["noise"]),
        )
        model, X = fs.posteriors.convert(model, getattr(fs.posteriors, kind), jitter=JITTER), p["X"]
        if device == "cuda":
            import cupy

            model, X, y = fs.to_device(model), cupy.asarray(X), cupy.asarray(y)
        options = {"step_size": SIZE, "num_data": SCALE * len(y), "jitter": JITTER}

        def step():
            if steps == 1:
                return fs.natural_step(model, X, y, **options)
            stepped, infos = fs.sites.natural_steps(
                model, X, y, rows=[np.arange(len(y))] * steps, **options
            )
            return stepped, infos[0]

        def answer(result):
            stepped, info = result
            if steps > 1:
                stepped, info = fs.natural_step(model, X, y, **options)
            q = fs.to_host(fs.posteriors.convert(stepped, fs.Whitened, jitter=JITTER)).posterior
            return info.value, {"mean": q.mean, "scale_tril": q.scale_tril}

        step.answer, step.count = answer, steps
        return step

    return build


def jax_step(P):
    def build(p, device):
        # by default JAX reserves most of the GPU's memory, which the other programs need
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        os.environ.setdefault("JAX_PLATFORMS", device)
        import jax
        import jax.numpy as jnp
        from jax.scipy.linalg import cho_solve, solve_triangular

        jax.config.update("jax_enable_x64", True)
        lengthscales, variance, noise = (
            jnp.asarray(p[name]) for name in ("lengthscales", "variance", "noise")
        )
        X, Z, (y, mean, tril) = (
            jnp.asarray(p["X"]),
            jnp.asarray(p["Z"]),
            map(jnp.asarray, outputs(p, P)),
        )
        M = len(Z)

        def covariance(A, B):
            A, B = A / lengthscales, B / lengthscales
            r2 = (A**2).sum(1)[:, None] + (B**2).sum(1)[None, :] - 2 * A @ B.T
            return variance * jnp.exp(-0.5 * jnp.maximum(r2, 0.0))

        def bound(expectations, Lam, explained, y):
            m, second = expectations
            W = jnp.linalg.cholesky(second - jnp.outer(m, m))
            var = variance - explained + ((W.T @ Lam) ** 2).sum(0)
            data = -0.5 * jnp.log(2 * jnp.pi * noise) - ((y - Lam.T @ m) ** 2 + var) / (2 * noise)
            kl = 0.5 * ((W**2).sum() + m @ m - M) - jnp.log(jnp.diag(W)).sum()
            return SCALE * data.sum() - kl

        def one(m, W, y, Lam, explained):
            S = W @ W.T
            value, (first, second) = jax.value_and_grad(bound)(
                (m, S + jnp.outer(m, m)), Lam, explained, y
            )
            precision = cho_solve((W, True), jnp.eye(M))
            natural = (
                precision @ m + SIZE * first,
                -0.5 * precision + SIZE * 0.5 * (second + second.T),
            )
            C = jnp.linalg.cholesky(-2 * natural[1])
            S = cho_solve((C, True), jnp.eye(M))
            return value, S @ natural[0], jnp.linalg.cholesky(S)

        @jax.jit
        def compiled(mean, tril, X, y):
            L = jnp.linalg.cholesky(covariance(Z, Z) + JITTER * jnp.eye(M))
            Lam = solve_triangular(L, covariance(Z, X), lower=True)
            explained = (Lam**2).sum(0)
            values, means, trils = jax.lax.map(
                lambda each: one(*each, Lam, explained), (mean, tril, y.T)
            )
            return values.sum(), {"mean": means, "scale_tril": trils}

        def step():
            value, q = jax.block_until_ready(compiled(mean, tril, X, y))
            return float(value), q

        return step

    return build


def peers(P):
    """Return the name and builder of each peer."""
    return {
        "fastsvgp": ours("AbsorbedDualSites", 1, P),
        "fastsvgp, each of 10": ours("AbsorbedDualSites", 10, P),
        "fastsvgp, Whitened": ours("Whitened", 1, P),
        "JAX, jit, autodiff": jax_step(P),
    }
