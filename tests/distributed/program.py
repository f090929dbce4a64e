"""Program of the tests on processes, run on every rank.

``mpiexec -n 2 python -m mpi4py program.py SCENARIO [FOLDER]``
"""

import errno
import hashlib
import json
import logging
import os
import sys

import numpy as np

import fastsvgp as fs
from fastsvgp.distributed.protocol import TrainingGroup
from fastsvgp.train import checkpoints

N, D, M = 53, 2, 6
Adam = type(fs.adam())
OPTIONS = {"batch_size": 17, "rng": 3, "natural_step_size": 0.1}


def problem():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (N, D))
    Y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(N)
    q = fs.Whitened(np.zeros(M), np.eye(M))
    return fs.SVGP(fs.RBF(1.0, np.ones(D)), X[:M].copy(), q, fs.Gaussian(0.1)), X, Y


def distance(one, other):
    pairs = zip(fs.records.leaves(one), fs.records.leaves(other), strict=True)
    return max(
        float(np.max(np.abs(np.subtract(a, b)))) for (_, _, a), (_, _, b) in pairs if a is not None
    )


def digest(model):
    return hashlib.md5(
        b"".join(
            np.ascontiguousarray(a).tobytes()
            for _, _, a in fs.records.leaves(model)
            if a is not None
        )
    ).hexdigest()


def tell(group, **said):
    """Print one line per rank, as a whole."""
    os.write(1, (json.dumps({"rank": group.rank} | said) + "\n").encode())


def equal(group, folder):
    """Compare with one process, for buffers of one number and more."""
    model, X, Y = problem()
    sgpr = fs.SGPR(model.covariance, model.inducing, 0.3)
    two = fs.bounds.OrthogonalSGPR(
        model.covariance, fs.posteriors.InducingPair(X[:4].copy(), X[4:6].copy()), 0.3
    )
    q = fs.Whitened(np.zeros((D, M)), 0.3 * np.stack([np.eye(M)] * D))
    hidden = fs.layers.Layer(model.covariance, model.inducing, q, fs.means.IdentityMean())
    deep = fs.DeepGP(
        (hidden, fs.layers.Layer(model.covariance, model.inducing, model.posterior)),
        model.likelihood,
    )
    own = fs.distributed.mpi(rows="own")
    cut = (
        slice(0, 1)
        if own.rank == 0
        else slice(*(1 + (N - 1) * (own.rank + i - 1) // (own.size - 1) for i in range(2)))
    )
    cut = slice(None) if own.size == 1 else cut
    pairs = {
        "fit": lambda **g: fs.fit(
            model, X, Y, steps=200 if group.size == 2 else 40, **OPTIONS, **g
        )[0],
        "bound": lambda **g: fs.elbo_and_grad(model, X, Y, num_data=99, **g)[1],
        "step": lambda **g: fs.natural_step(model, X, Y, **g)[0],
        "collapsed": lambda **g: fs.collapsed_bound_and_grad(sgpr, X, Y, **g)[1],
        "sgpr": lambda **g: fs.fit(sgpr, X, Y, steps=3, **g)[0],
        "two sets": lambda **g: fs.collapsed_bound_and_grad(two, X, Y, **g)[1],
        "deep": lambda **g: fs.fit(deep, X, Y, steps=10, **OPTIONS, **g)[0],
    }
    for name, function in pairs.items():
        found = function(group=group)
        tell(group, name=name, off=distance(found, function()), digest=digest(found))
    found = fs.fit(model, X[cut], Y[cut], steps=20, batch_size=N, group=own)[0]
    tell(
        group,
        name="own",
        off=distance(found, fs.fit(model, X, Y, steps=20, batch_size=N)[0]),
        digest=digest(found),
    )


def broken(*_):
    raise ZeroDivisionError("of our own")


def broken_call(ranks):
    """Return a ``TrainingGroup.call`` whose third call raises on these ranks."""
    plain, count = TrainingGroup.call, [0]

    def call(self, compute):
        count[0] += 1

        def other():
            raise fs.NotPositiveDefinite((), 3, 1e-6, M, float)

        return plain(self, other if count[0] == 3 and self.group.rank in ranks else compute)

    return call


def hungry(plain):
    count = [0]

    def expected_log_prob(self, *arguments, **options):
        count[0] += 1
        if count[0] == 5:
            raise MemoryError("8 GiB")
        return plain(self, *arguments, **options)

    return expected_log_prob


def breaking(plain, at):
    """Return a step of an optimiser that fails at this count."""
    count = [0]

    def step(self, *arguments, **options):
        count[0] += 1
        return broken() if count[0] == at else plain(self, *arguments, **options)

    return step


def failures(group, folder):
    """Failures one after the other: each ends on all ranks, and the group stays usable."""
    model, X, Y = problem()
    rank, second = group.rank, group.rank == 1
    hole = X.copy()
    hole[30] = np.nan
    call, step, expected, write = (
        TrainingGroup.call,
        Adam.step,
        fs.Gaussian.expected_log_prob,
        checkpoints.files.write_atomically,
    )

    def fit(model=model, X=X, Y=Y, **options):
        return fs.fit(model, X, Y, group=group, **{"steps": 10} | OPTIONS | options)[1]

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    def with_full_disk():
        checkpoints.files.write_atomically = full
        return fit(checkpoint=os.path.join(folder, "full.npz"))

    def with_broken(ranks):
        TrainingGroup.call = broken_call(ranks)
        return fit()

    def with_little_memory():
        if second:
            fs.Gaussian.expected_log_prob = hungry(expected)
        return fit()

    def with_broken_steps(at, **options):
        """One rank fails after all sums of a step: others are in the next step, or at the end."""
        if second:
            Adam.step = breaking(step, at)
        return fit(**options)

    table = {
        "nan": lambda: fit(X=hole),
        "callback": lambda: fit(callback=lambda step, *_: step == 4 and broken()),
        "callback at the end": lambda: fit(callback=lambda step, *_: step == 10 and broken()),
        "validate": lambda: fit(validate=broken, validate_every=3),
        "disk": with_full_disk,
        "indefinite on all": lambda: with_broken({0, 1}),
        "indefinite on one": lambda: with_broken({1}),
        "memory": with_little_memory,
        "shapes": lambda: fit(X=X[:, :1] if second else X),
        "steps": lambda: fit(steps=10 + rank),
        "model": lambda: fit(
            model=fs.SGPR(model.covariance, model.inducing, 0.1) if second else model
        ),
        "bound of other data": lambda: fs.elbo(model, X[:, :1] if second else X, Y, group=group),
        "another call": lambda: (fs.elbo if second else fs.natural_step)(model, X, Y, group=group),
        "a call during the start": lambda: fs.elbo(model, X, Y, group=group) if second else fit(),
        "a start during a call": lambda: (
            fs.inducing.kmeans(X, M, 0, group=group)
            if second
            else fs.elbo(model, X, Y, group=group)
        ),
        "group in a callback": lambda: fit(
            callback=lambda step, *_: fs.elbo(model, X, Y, group=group)
        ),
        "first step": lambda: with_broken_steps(1),
        "middle step": lambda: with_broken_steps(5),
        "last step": lambda: with_broken_steps(10),
        "in a round": lambda: with_broken_steps(5, e_steps=2, m_steps=2),
        "numbers": lambda: fs.elbo(model, X, Y, group=group, jitter=1e-6 * (1 + rank)),
        "fine": fit,
    }
    for name, function in table.items():
        try:
            info = function()
            tell(
                group,
                name=name,
                end=getattr(info, "reason", "value"),
                retries=getattr(info, "retries", 0),
            )
        except Exception as error:
            tell(group, name=name, end=type(error).__name__, message=str(error))
        (
            TrainingGroup.call,
            Adam.step,
            fs.Gaussian.expected_log_prob,
            checkpoints.files.write_atomically,
        ) = (
            call,
            step,
            expected,
            write,
        )


def escape(group, folder):
    """An uncaught error in a program, between two calls."""
    model, X, Y = problem()
    fs.fit(model, X, Y, steps=3, group=group)
    if group.rank == 1:
        broken()
    fs.fit(model, X, Y, steps=3, group=group)


def long(group, folder):
    """Train until a signal, with a checkpoint every few steps, and resume from it."""
    model, X, Y = problem()
    path = os.path.join(folder, "state.npz")
    tell(group, pid=os.getpid())
    resume = {"resume": path} if os.path.exists(path) else {}

    def mark_training(step, *_):
        if step % 60 == 0 and not os.path.exists(os.path.join(folder, "training")):
            open(os.path.join(folder, "training"), "w").close()

    steps, every = int(os.environ.get("STEPS", 10**6)), int(os.environ.get("EVERY", 20))
    model, info = fs.fit(
        model,
        X,
        Y,
        steps=steps,
        group=group,
        checkpoint=path,
        checkpoint_every=every,
        callback=mark_training,
        **OPTIONS,
        **resume,
    )
    tell(group, end=info.reason, steps=info.steps, digest=digest(model))
    sys.exit(130 if info.interrupted else 0)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    scenario, folder = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    {"equal": equal, "failures": failures, "escape": escape, "long": long}[scenario](
        fs.distributed.mpi(), folder
    )
