"""Findings from the statistics of a run: what changed against its first steps, and levels that are wrong at any time.

A change counts when it is large (a bound for each signal), certain (the medians of the first and of the latest steps
lie far apart for the noise from step to step) and lasting. The noise is estimated from the differences between
neighbouring steps, so that a slow drift does not hide itself. docs/comparison.md gives the rate of false alarms.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.reward.watchdog.rollouts import Rollout, StepRecord, StepStatistics, step_statistics

FIRST = 8
"""Steps at the start that later ones are compared with."""
LATEST = 8
"""Steps that the present state is taken from."""
LASTING = 3
"""Steps in a row for which a signal must hold before it is reported."""
CHANGE_ERRORS = 4.0
"""Standard errors that the medians of the first and the latest steps must lie apart."""
LEVEL_ERRORS = 3.0
"""Standard errors that the median of the latest steps must lie above the usual level."""
_MEDIAN = 1.2533
"""Standard error of a median in those of a mean, under Gaussian noise."""
_MOST_CORRELATED = 0.9
"""Correlation between neighbouring steps that is assumed at most."""
GROWN, SHRUNK = 0.4, -0.35
"""Relative changes of length that are reported."""
RISEN = 0.10
"""Rise of the share of copied or repeated steps that is reported."""
LEVELS = {"length_pay": (0.5, 0.3), "clipped": (0.25, 0.1), "gated": (0.9, 0.75), "still": (0.6, 0.3)}
"""Statistics that are reported from a level on, whatever they were at first, and their usual level."""

SENTENCES = {
    "bought": "The reward rose from {before:.3f} to {now:.3f} since step {since} while {beside}: the policy may "
    "learn the verifier and not planning; measure plans in another way before you continue, or stop at an earlier "
    "checkpoint.",
    "length": "Plans grew from {before:.1f} to {now:.1f} steps ({relative:+.0%}{pace}) since step {since}: the reward "
    "may favour length rather than content; read the newest completions, and stop earlier, raise beta, or "
    "take a verifier with a price for each step.",
    "shrunk": "Plans shrank from {before:.1f} to {now:.1f} steps ({relative:+.0%}) since step {since}: short plans "
    "may be safer than right ones; read the newest completions, and compare the rewards of the first half of a plan "
    "and of an empty one.",
    "copied": "{now:.0%} of all steps planned are copied from the history, {before:.0%} at first, since step {since}: "
    "the reward may favour steps that are done already; check the reward of the history as a plan.",
    "repeated": "{now:.0%} of all steps planned repeat an earlier step of their plan, {before:.0%} at first, since "
    "step {since}: the reward may favour repeated steps; check the reward of a plan with every step doubled.",
    "length_pay": "Among completions of one prompt, reward and length go together (correlation {now:+.2f}) since step "
    "{since}: longer plans get a higher reward, whatever they say, unless they are far too short; expect plans to "
    "grow, and watch whether they outgrow the true continuations.",
    "clipped": "{now:.0%} of completions end at the token limit since step {since}: their last step is cut, and "
    "the limit keeps them short; raise max_completion_tokens, find out why they grow, or, where no completion ends, "
    "train on examples first: the policy may not know the token that ends a turn (`recipe train check` names it).",
    "gated": "{now:.0%} of completions fall below the gate since step {since}: the policy learns "
    "mostly from penalties; check that the corpus covers these goals, or lower tau.",
    "still": "In {now:.0%} of the groups all completions get the same reward since step {since}: such groups "
    "teach nothing; sample at a higher temperature, take larger groups, or leave out such prompts.",
}
"""Signals, the most important first: the figures, since when, what they may mean, and what to do."""
_BESIDE = {
    "length": "plans grew by {relative:.0%}",
    "copied": "copies of the history rose to {now:.0%}",
    "repeated": "repeats rose to {now:.0%}",
}

Series = NDArray[np.float64]


class Finding(NamedTuple):
    """A signal that has lasted, in words."""

    signal: str
    since: int
    """The step from which on it held."""
    until: int | None
    """The last step at which it held; None where it still does."""
    sentence: str

    @property
    def headline(self) -> str:
        """The figures, without what they may mean."""
        return self.sentence.partition(":")[0]


class Evidence(NamedTuple):
    """The figures of a signal that holds."""

    before: float
    """Over the first steps; the same as `now` where only the level counts."""
    now: float
    """Over the latest steps."""
    slope: float = 0.0
    """Change a step, over the latest steps."""
    beside: Mapping[str, "Evidence"] = {}
    """Other signals that hold at the same time, by name."""

    @property
    def fields(self) -> dict[str, float | str]:
        """What a sentence names."""
        return {
            "before": self.before,
            "now": self.now,
            "relative": self.now / self.before - 1 if self.before else 0.0,
            "pace": f", lately by {self.slope:+.2f} a step" if self.slope > 0 else "",
            "beside": " and ".join(_BESIDE[name].format(**other.fields) for name, other in self.beside.items()),
        }


@dataclass(slots=True)
class _SignalState:
    """How long a signal has held."""

    streak: int = 0
    """Steps in a row for which it has held."""
    began: int = 0
    """The first of them."""
    since: int | None = None
    """Set once it is reported."""
    last: int = 0
    """The last step at which it held after that."""
    sentence: str = ""


class _Change(NamedTuple):
    """Medians of the first and of the latest steps, and their distance in standard errors."""

    before: float
    now: float
    errors: float

    @property
    def relative(self) -> float:
        return self.now / self.before - 1 if self.before else 0.0


@dataclass(slots=True)
class Watchdog:
    """Takes every step's completions, in order; keeps their statistics only, so that it can run for weeks."""

    steps: list[StepStatistics] = field(default_factory=list)
    _states: dict[str, _SignalState] = field(default_factory=dict)

    def observe(self, step: int, rollouts: Sequence[Rollout]) -> list[Finding]:
        """Add a step; returns the findings that are new. A step without completions is left out."""
        return self.take(step_statistics(step, rollouts)) if rollouts else []

    def take(self, statistics: StepStatistics) -> list[Finding]:
        """As `observe`, from the statistics of a step."""
        self.steps.append(statistics)
        evidence = self._evidence()
        new = {signal for signal in SENTENCES if self._update(signal, evidence.get(signal))}
        return [finding for finding in self.findings if finding.signal in new]

    @property
    def findings(self) -> list[Finding]:
        """All findings in order of step, with the figures of the last step at which each held."""
        now = self.steps[-1].step if self.steps else 0
        found = [
            Finding(signal, state.since, None if state.last == now else state.last, state.sentence)
            for signal, state in self._states.items()
            if state.since is not None
        ]
        return sorted(found, key=lambda finding: finding.since)

    def metrics(self) -> dict[str, float]:
        """Statistics of the latest step for a trainer's log; those that are None are left out."""
        if not self.steps:
            return {}
        last = self.steps[-1]
        length = _change(self._series("length"))
        found = {"copied": last.copied, "repeated": last.repeated, "length_pay": last.length_pay}
        found["length_growth"] = None if length is None else length.relative
        return {name: value for name, value in found.items() if value is not None}

    def _series(self, name: str) -> Series:
        """A statistic of all steps that have it."""
        values = (getattr(step, name) for step in self.steps)
        return np.array([value for value in values if value is not None], dtype=np.float64)

    def _update(self, signal: str, evidence: Evidence | None) -> bool:
        """Count the latest step; True where the signal is reported now for the first time."""
        state, step = self._states.setdefault(signal, _SignalState()), self.steps[-1].step
        if evidence is None:
            state.streak = 0
            return False
        if state.streak == 0:
            state.began = step
        state.streak += 1
        if state.since is None and state.streak < LASTING:
            return False
        new = state.since is None
        if state.since is None:
            state.since = state.began
        state.last, state.sentence = step, SENTENCES[signal].format(since=state.since, **evidence.fields)
        return new

    def _evidence(self) -> dict[str, Evidence]:
        """The signals that hold now, with their figures."""
        length, copied, repeated, reward = (
            _change(self._series(name)) for name in ("length", "copied", "repeated", "reward")
        )
        held: dict[str, Evidence] = {}
        slope = theil_sen(self._series("length")[-2 * LATEST :])
        if length is not None and length.errors >= CHANGE_ERRORS and length.relative >= GROWN:
            held["length"] = Evidence(length.before, length.now, slope=slope)
        if length is not None and length.errors <= -CHANGE_ERRORS and length.relative <= SHRUNK:
            held["shrunk"] = Evidence(length.before, length.now, slope=slope)
        for name, change in (("copied", copied), ("repeated", repeated)):
            if change is not None and change.errors >= CHANGE_ERRORS and change.now - change.before >= RISEN:
                held[name] = Evidence(change.before, change.now)
        rising = [name for name in ("length", "copied", "repeated") if name in held]
        if reward is not None and reward.errors >= CHANGE_ERRORS and rising:
            held["bought"] = Evidence(reward.before, reward.now, beside={name: held[name] for name in rising})
        for name, (level, usual) in LEVELS.items():
            values = self._series(name)
            now = float(np.median(values[-LATEST:])) if len(values) >= LATEST else -np.inf
            if now >= level and now - usual >= LEVEL_ERRORS * standard_error(values, LATEST):
                held[name] = Evidence(now, now)
        if self.steps[-1].clipped == 1:
            held["clipped"] = Evidence(1.0, 1.0)
        return held


def replay(records: Iterable[StepRecord]) -> Watchdog:
    """A watchdog after these steps."""
    watchdog = Watchdog()
    for record in records:
        watchdog.observe(record.step, record.rollouts)
    return watchdog


def _change(values: Series) -> _Change | None:
    """First against latest values; None where there are too few."""
    if len(values) < FIRST + LATEST:
        return None
    before, now = float(np.median(values[:FIRST])), float(np.median(values[-LATEST:]))
    error = np.hypot(standard_error(values, FIRST), standard_error(values, LATEST))
    return _Change(before, now, float((now - before) / max(error, 1e-12)))


def standard_error(values: Series, count: int) -> float:
    """Standard error of the median of `count` neighbouring values [n], n >= 3, that waver about a slow drift.

    For noise of variance v with correlation p between neighbours, differences d have variance 2 v (1 - p) and
    correlation -(1 - p) / 2, which a slow drift leaves alone; a mean of n neighbours has variance
    v (1 + p) / (1 - p) / n.
    """
    d = np.diff(values)
    spread = float(d @ d) / len(d)
    if spread == 0:
        return 0.0
    between = float(d[1:] @ d[:-1]) / (len(d) - 1) / spread
    p = min(max(1 + 2 * between, 0.0), _MOST_CORRELATED) * len(d) / (len(d) + 10)
    variance = spread / (2 * (1 - p)) * (1 + p) / (1 - p)
    return _MEDIAN * float(np.sqrt(variance / count))


def theil_sen(values: Series) -> float:
    """Median slope over all pairs of steps, 0 for fewer than two values.

    >>> theil_sen(np.array([1.0, 2.0, 3.0, 40.0, 5.0]))
    1.0
    """
    first, second = np.triu_indices(len(values), k=1)
    return float(np.median((values[second] - values[first]) / (second - first))) if len(first) else 0.0
