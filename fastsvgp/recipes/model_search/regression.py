"""The search for real-valued targets: its candidates, and the collapsed posterior at the end."""

import numpy as np

from ...bounds.model_mixture import Mixture
from ...bounds.svgp import SVGP
from ...covariances import OnFeatures
from ...errors import NotPositiveDefinite
from ...inducing import unique_rows
from ...likelihoods import Gaussian
from ...near.model import VIF
from ...runtime import tuning
from ..scaling import constant
from .candidates import DEEP, RELU, WIDE, WIDER, Deep
from .collapsed_posterior import (
    ROWS,
    M,
    are_rows,
    density_of,
    make_svgp,
    posterior_of,
    score_posterior,
)
from .held_out_density import (
    BETTER,
    better_by,
    gains,
    mix,
    stack,
    steps_of,
    student_noise,
    train_with_tails,
)  # fmt: skip
from .near_rows import FEWEST, OF_ROW, Detailed, Near, best_noise, score_near
from .plain_processes import Exact, Plain, Relevant, Scarce, smooth_on
from .race import FAILURES, FIRST, Race, reason
from .rows import scale_rows
from .structures import leave_one_out, structures

STRUCTURE = 0.1  # of the time, for an exact process of another structure
# of a mixture: the smallest share, other candidates, nats by which they can be behind
LEAST_SHARE, OTHERS, NEAR = 0.1, 3, 0.5
SLIGHTLY = 1.0  # standard errors by which a structure replaces a simpler one
EXACT_PART = 0.3  # of the time, for an exact process that would take more than half of the rest
BY_BOUND = 0.35  # of the time, for each of two exact processes on few rows
HIGHER = 3.0  # nats by which a linear part has to raise the bound
LINE = 1e3  # variance of a smooth function that approaches a line
QUIET = 0.5  # noise variance below which a linear function explains standardised targets
SCARCE = 0.25  # part of the time for minibatches if L-BFGS found nothing
LONG = 150  # seconds from which one network is larger
LATER, LAST_ROWS = 6000, 15_000  # rows for L-BFGS of a plain process: in the race, at the end
RELEVANT = "minibatches from relevant lengthscales"
LEAST_RELEVANCE, IRRELEVANT, SHARE = 0.01, 0.3, 0.2
MOST = 1024  # inducing inputs of the last posterior
SLOW = 3e10  # its operations per second


class Regression(Race):
    """A search for real-valued targets, which are standardised."""

    def __init__(self, *given):
        super().__init__(*given)
        self._exact_looks = {}  # of exact processes, with leave-one-out densities
        self.constant = bool(constant(np.ptp(self.rows.y), self.rows.y))

    def rehearsal_candidates(self):
        data, rng = ("", *self._data("raw")), self._rng()
        networks = [Deep(*data, rng, one, M=8) for one in (WIDE, RELU)]
        plain = Plain(*data, rng)
        return [Exact(*data), plain, *networks, Near("", plain, self._plan, 8)]

    def _score_at(self, candidate):
        if isinstance(candidate, Near):
            found = score_near(candidate.model, candidate.scale, self.held_out)
            self._plan.did(OF_ROW * len(self.held_out))
            return found.score, found.rmse, found.factors
        rows = candidate.rows.draw(ROWS, np.random.default_rng(1))
        found = score_posterior(candidate.model, candidate.scale, rows, self.held_out, M)
        self._plan.did(3 * M**2 * len(rows) + 20 * M**3 + 4 * M**2 * len(self.held_out), 10)
        return found.score, found.rmse, found.factors

    @property
    def _few(self):
        return len(self.rows) <= tuning.current.exact_rows

    def _candidates(self):
        T = self._plan.seconds
        plain, inputs = self._inputs(T)
        if self._few:
            self._exact(T, inputs)
        networks = [*self._networks(plain, inputs, T)] if self._takes_networks else []
        near = self._near(plain, inputs, T)
        return [plain, *networks, *near, *([] if self._few else self._relevant(T))]

    def _near(self, plain, inputs, T):
        """Return a process with near rows, if rows are many and in memory."""
        if len(self.rows) < FEWEST or not isinstance(self.rows.X, np.ndarray):
            return []
        count = Plain.M if T >= LONG else Plain.M // 2
        return [Near(f"near rows, {inputs} inputs", plain, self._plan, count)]

    def _first(self, candidates):
        # an exact process has run before
        return self._last(candidates[-1]) if candidates[-1].name == RELEVANT else self.first

    def _run_without_race(self):
        T = self._plan.seconds
        why = "few distinct rows" if self.held_out is None else self._too_brief
        why = "all targets are equal, which says nothing about noise" if self.constant else why
        raw = self._data("raw")
        exact = self._few and self.held_out is None
        name = "exact" if exact else "plain, raw inputs"
        self.say(f"{name}, without a race: {why}")
        if exact and not self.constant:
            candidate = self._exact_by_bound(name, raw, T)
        else:
            candidate = Exact(name, *raw) if exact else Plain(name, *raw, self._rng())
            if not self.constant:
                candidate.take(self._plan, 0.7 * T)
        self.best = self._look_of(candidate, self._plan.spent, np.nan, np.nan, (1.0, 1.0))

    def _exact_by_bound(self, name, raw, T):
        """Train an exact process with a linear part, and one without unless that is all there is.

        Few rows do not tell a linear part from a smooth function: it has to raise the bound by
        ``HIGHER``, unless the smooth function alone approaches a line.
        """
        linear = Exact(f"{name}, with a linear part", *raw)
        linear.take(self._plan, BY_BOUND * T)
        found = linear.model
        if found.covariance.parts[1].variance <= found.noise < QUIET:
            self.say("a linear function explains everything but noise")
            return linear
        smooth = Exact(name, *raw, smooth_on(raw[1].X))
        smooth.take(self._plan, BY_BOUND * T)
        self.say(f"log evidence {smooth.bound:.1f}, with a linear part {linear.bound:.1f}")
        line = smooth.model.covariance.variance > LINE
        return linear if line or linear.bound > smooth.bound + HIGHER else smooth

    def _inputs(self, T):
        """Return a plain process on the better inputs, raw or rank, and the name of these."""

        def plain(name, inputs):
            return Plain(name, *self._data(inputs), self._rng())

        chosen, inputs = self._better_inputs(plain)
        chosen.rows_at_once = LATER
        if self._score(chosen) < tuning.current.useless_density:
            scarce = Scarce(f"minibatches, {inputs} inputs", *self._data(inputs), self._rng())
            self.say("L-BFGS found nothing, so minibatches get a quarter of the time")
            self._go(scarce, SCARCE * T)
            if self._score(scarce) > self._score(chosen):
                chosen = scarce
        return chosen, inputs

    def _train_on(self, winner, seconds):
        if isinstance(winner, Plain):
            winner.rows_at_once = LAST_ROWS
        return super()._train_on(winner, seconds)

    def _exact(self, T, inputs):
        """Train exact processes on raw inputs, and on ranks if these are better."""
        for name in dict.fromkeys(("raw", inputs)):
            exact = Exact(f"exact, {name} inputs", *self._data(name))
            self._go(exact, EXACT_PART * T)
            look = self._last(exact)
            if look is not None and (self.first is None or self._replaces(look)):
                self.first, best = look, exact
        if self.first is not None:
            self._structures(T, best)

    def _structures(self, T, plain):
        """Train exact processes of other structures, from the plain one.

        The first candidate is the one with the best leave-one-out density, if it is better than
        that of the plain one by a standard error.
        """
        hyper, rows = plain.model, plain.rows
        best = leave_one_out(hyper, rows, self._plan)
        self._exact_looks[plain.name] = self.first, best
        for label, covariance in structures(hyper.covariance, rows.X):
            exact = Exact(
                f"{plain.name}, {label}", plain.scale, rows, covariance, noise=hyper.noise
            )
            look = self._go(exact, STRUCTURE * T)
            if look is None:
                continue
            densities = leave_one_out(exact.model, rows, self._plan)
            self._exact_looks[exact.name] = look, densities
            better = better_by(densities, best, rows.weights)
            self.say(
                f"{look.candidate}: {better:+.1f} standard errors of leave-one-out densities over"
                f" {self.first.candidate}"
            )
            if better > SLIGHTLY:
                self.first, best = look, densities

    def _replaces(self, look):
        """Whether a look is better than the first candidate by two standard errors.

        All held-out rows count, because neither candidate was selected on any of them.
        """
        held_out, densities = self.held_out.and_more(self.last), []
        for one in (look, self.first):
            _, rows = self._data("raw" if one is self.first else "rank")
            found = score_posterior(one.model, one.scale, rows, self.held_out, M)
            densities.append(density_of(found, one.scale, held_out))
        better = better_by(*densities, held_out.weights)
        self.say(
            f"{look.candidate} against {self.first.candidate}: {better:+.1f} standard errors on"
            f" {len(held_out)} held-out rows"
        )
        return better > BETTER

    def _networks(self, plain, inputs, T):
        """Yield networks on these inputs."""
        found = self._score(plain) > tuning.current.useless_density
        lengthscales = plain.lengthscales()
        relevance = np.clip(3 * lengthscales.min() / lengthscales, LEAST_RELEVANCE, 1.0)
        sparse = found and np.mean(relevance < IRRELEVANT) > SHARE
        if sparse:
            self.say(
                f"{int(np.sum(relevance >= IRRELEVANT))} of {len(relevance)} inputs matter, so a"
                " network starts with the others small"
            )
        large = T >= LONG
        first = WIDER if large else WIDE
        chosen = [(first, None, ""), (RELU, None, "")]
        chosen.append((WIDE, relevance, ", by relevance") if sparse else (DEEP, None, ""))
        for architecture, by, note in chosen:
            sizes = {"M": 256, "batch": 512} if large and architecture is first else {}
            yield Deep(
                f"network {architecture.name}{note}, {inputs} inputs",
                *self._data(inputs),
                self._rng(),
                architecture,
                weighting=by,
                **sizes,
            )

    def _relevant(self, T):
        """Return ``[Relevant]`` if its start takes a small part of the time, else an empty list."""
        candidate = Relevant(RELEVANT, *self._data("raw"), self._rng())
        cost = candidate.cost(self._plan)
        possible = self._plan.count(f"{RELEVANT}: can begin", cost < FIRST * T)
        if not possible:
            self.say(f"{RELEVANT}: left out, because its start takes too large a part of the time")
        return [candidate] * possible

    # --- from the best look to a model of all rows ---

    def answer(self, interrupted):
        if self.held_out is None or not self.looks:
            rows = scale_rows(self.rows, self.best.scale)
            collapsed = posterior_of(self.best.model, rows, M, tune=not self.constant)
            svgp, _ = self._train_on_all(self.best, collapsed, (1.0, 1.0))
            return svgp, self.best
        look, found = self._best(interrupted)
        if not interrupted:
            look, found = self._final(look, found)
        svgp, factors = self._train_on_all(look, found.collapsed, found.factors)
        unusual = tuning.current.unusual_factor
        for name, factor in zip(("variance of f", "noise"), factors, strict=True):
            if not 1 / unusual <= factor <= unusual:
                self.say(f"held-out rows multiply the {name} by {factor:.2g}")
        if not interrupted and isinstance(svgp, SVGP):
            svgp = self._try_tails(svgp, look, found)
        self.say(f"model: {look.candidate}, {len(svgp.inducing)} inducing inputs, all rows")
        if not interrupted and isinstance(svgp.likelihood, Gaussian):
            svgp = self._mixture(svgp, look, found)
        return svgp, look

    def _mixture(self, model, look, found):
        """Return a ``Mixture`` of the model and other candidates, if it predicts better; or model.

        Leave-one-out densities choose the shares of exact processes, held-out rows those of others.
        """
        exact = look.candidate in self._exact_looks
        others = self._others(look, exact)
        if not others:
            return model
        rows, test = scale_rows(self.rows, look.scale), self.held_out
        every, posteriors = [look, *others], [found]
        for one in others:
            posteriors.append(score_posterior(one.model, one.scale, rows, self.held_out, M))
        if exact:
            test = rows
            chosen = np.stack([self._exact_looks[one.candidate][1] for one in every])
            tested = chosen
        else:
            chosen = np.stack([one.density for one in posteriors])
            tested = np.stack([density_of(one, look.scale, self.last) for one in posteriors])
            test = self.last
        shares, at = stack(chosen, self.rows.weights if exact else self.held_out.weights), None
        at = [int(k) for k in np.argsort(-shares) if shares[k] > LEAST_SHARE]
        if len(at) < 2:
            return model
        shares = stack(chosen[at], self.rows.weights if exact else self.held_out.weights)
        better = better_by(mix(tested[at], shares), tested[0], test.weights)
        names = " and ".join(
            f"{100 * w:.0f} % {every[k].candidate}" for k, w in zip(at, shares, strict=True)
        )
        self.say(f"mixture of {names}: {better:+.1f} standard errors over {look.candidate}")
        if better <= BETTER:
            return model
        models = []
        for k in at:
            own = posteriors[k]
            one = model if k == 0 else self._train_on_all(every[k], own.collapsed, own.factors)[0]
            models.append(one)
        self.say(f"model: the mixture of {len(models)} models")
        return Mixture(tuple(models), shares=tuple((shares / shares.sum()).tolist()))

    def _others(self, look, exact):
        """Return the best looks at other candidates in the same units, the best first."""
        best = {}
        for one in sorted(self.looks, key=lambda one: -one.score):
            if one.scale is look.scale and one.candidate != look.candidate:
                best.setdefault(one.candidate, one)
        if exact:
            return [one for name, one in best.items() if name in self._exact_looks]
        return [one for one in best.values() if one.score > look.score - NEAR][:OTHERS]

    def _best(self, interrupted):
        """Return the best look and its ``ScoredPosterior``; M inducing inputs, or more by time."""
        for look in sorted(self.looks, key=lambda look: -look.score):
            rows = scale_rows(self.rows, look.scale)
            given = look.model, look.scale, rows, self.held_out
            if isinstance(look.model, VIF):
                found = best_noise(look.model, look.scale, self.held_out)
                self.say(
                    f"{look.candidate}, noise {found.collapsed.noise:.3g}: held-out log density"
                    f" {found.score:.3f}, RMSE {found.rmse:.4g}"
                )
                return look, found
            counts = {M} if interrupted or self._learnt(look) else {M, self._largest(rows, look)}
            found = []
            for count in sorted(counts):
                try:
                    found.append(score_posterior(*given, count))
                except NotPositiveDefinite as error:
                    failed = error
                    continue
                one = found[-1]
                self.say(
                    f"{look.candidate} with {len(one.collapsed.Z)} inducing inputs: held-out log"
                    f" density {one.score:.3f}, RMSE {one.rmse:.4g}"
                )
            if found:
                return look, max(found, key=lambda one: one.score)
        raise failed

    def _learnt(self, look):
        """Whether a look has learnt more than M inducing inputs."""
        return look.model.inducing is not None and len(look.model.inducing) > M

    def _largest(self, rows, look):
        """Return the number of inducing inputs that the remaining time allows."""
        network = isinstance(look.model.covariance, OnFeatures)

        def decide():
            flops = max(self._plan.left - 0.5, 0.3) / 3 * SLOW
            most = max(M, len(rows) // 8) if network else MOST
            return np.clip(np.sqrt(flops / (2 * len(rows) + 3000)), 128, min(MOST, most))

        return self._plan.count("inducing inputs", decide)

    def _final(self, look, found):
        """Choose between the winner, with the posterior ``found``, and the first candidate."""
        both = {look.candidate: found}

        def densities(one):
            if one is not look:
                rows = scale_rows(self.rows, one.scale)
                both[one.candidate] = score_posterior(one.model, one.scale, rows, self.held_out, M)
            return density_of(both[one.candidate], one.scale, self.last)

        look = self._last_word(look, densities)
        return look, both[look.candidate]

    def _train_on_all(self, look, collapsed, factors):
        """Return ``make_svgp`` of all rows."""
        rows = scale_rows(self.whole, look.scale)
        if isinstance(collapsed, Detailed):
            return collapsed.of_all(factors, rows, self._plan), factors
        Z = collapsed.Z
        if are_rows(Z, scale_rows(self.rows, look.scale)):
            Z = unique_rows.distinct(rows.X)[0]
        return make_svgp(collapsed, Z, factors, rows)

    def _try_tails(self, svgp, look, found):
        """Try Student-t noise if the tails of residuals are heavy.

        It replaces Gaussian noise if held-out rows prefer it by two standard errors.
        """
        held_out = self.held_out
        X, rows = look.scale.X(held_out.X), scale_rows(self.rows, look.scale)
        mean, var_f = found.collapsed.predict(X)
        noise = student_noise(held_out.y - mean, found.factors[0] * var_f, held_out.weights)
        if noise is None:
            return svgp
        Z = found.collapsed.Z
        try:
            gaussian, _ = make_svgp(found.collapsed, Z, found.factors, rows)
            start, _ = make_svgp(found.collapsed, Z, (1.0, 1.0), rows)
            steps = steps_of(start, noise, rows, self._plan)
            if steps is None:
                return svgp
            heavy = train_with_tails(start, noise, rows, steps, self._plan)
            better, by_moments = gains(heavy, gaussian, X, held_out.y, held_out.weights)
            taken = better > BETTER
            if taken:
                start, _ = self._train_on_all(look, found.collapsed, (1.0, 1.0))
                svgp = train_with_tails(
                    start, noise, scale_rows(self.whole, look.scale), steps, self._plan
                )
        except FAILURES as error:
            self.say(f"Student-t noise: failed ({reason(error)})")
            return svgp
        self.say(
            f"Student-t noise with {noise.df:.1f} degrees of freedom:"
            f" {'taken' if taken else 'not taken'}, {better:+.1f} standard errors on held-out rows,"
            f" {by_moments:+.1f} by mean and variance"
        )
        return svgp
