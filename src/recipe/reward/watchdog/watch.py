"""Findings from the readings of a run, in numbers and in words."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.reward.watchdog.readings import Reading, Rollout, read_step

# Findings in words: what is so, how much, since when, what it may mean, and what to do.


class Shown(NamedTuple):
    """The figures of a finding."""

    before: float
    """Over the first steps; the same as `now` where only the level counts."""
    now: float
    """Over the latest steps."""
    slope: float = 0.0
    """Change a step, lately."""
    beside: Mapping[str, "Shown"] = {}
    """What goes on at the same time."""


def _length(since: int, shown: Shown) -> str:
    pace = f", lately by {shown.slope:+.2f} a step" if shown.slope > 0 else ""
    return (
        f"Plans grew from {shown.before:.1f} to {shown.now:.1f} steps ({_relative(shown)}{pace}) since step {since}: "
        "the reward may pay for length rather than for what is said; read the newest completions, and stop earlier, "
        "raise beta, or take a verifier that charges for length."
    )


def _shrunk(since: int, shown: Shown) -> str:
    return (
        f"Plans shrank from {shown.before:.1f} to {shown.now:.1f} steps ({_relative(shown)}) since step {since}: "
        "saying little may be safer than being right; read the newest completions, and see what the first "
        "half of a plan and an empty one are paid."
    )


def _copied(since: int, shown: Shown) -> str:
    return (
        f"{_percent(shown.now)} of all steps planned are copied from the history, {_percent(shown.before)} at first, "
        f"since step {since}: the reward may pay for what is done already; see what the history is paid as a plan."
    )


def _repeated(since: int, shown: Shown) -> str:
    return (
        f"{_percent(shown.now)} of all steps planned repeat an earlier step of their plan, {_percent(shown.before)} at "
        f"first, since step {since}: the reward may pay for saying a step twice; see what a plan with every step "
        "doubled is paid."
    )


def _bought(since: int, shown: Shown) -> str:
    return (
        f"The reward rose from {shown.before:.3f} to {shown.now:.3f} since step {since} while "
        f"{' and '.join(_BESIDE[name](one) for name, one in shown.beside.items())}: it may be the verifier that is "
        "learnt and not planning; measure plans by something else before you go on, or stop at an earlier checkpoint."
    )


def _length_pay(since: int, shown: Shown) -> str:
    return (
        f"Among completions of one prompt, reward and length go together (correlation {shown.now:+.2f}) since step "
        f"{since}: more steps earn more, whatever they say, unless plans are far too short; expect plans to grow, and "
        "watch whether they outgrow the true continuations."
    )


def _clipped(since: int, shown: Shown) -> str:
    return (
        f"{_percent(shown.now)} of completions end at the token limit since step {since}: their last step is cut, and "
        "it is the limit that keeps them short; raise max_completion_tokens, or find out why they grow."
    )


def _gated(since: int, shown: Shown) -> str:
    return (
        f"{_percent(shown.now)} of completions fall below the gate since step {since}: nearly all that is learnt from "
        "are penalties; check that the corpus covers these goals, or lower tau."
    )


def _still(since: int, shown: Shown) -> str:
    return (
        f"In {_percent(shown.now)} of the groups all completions earn the same since step {since}: such groups teach "
        "nothing; sample at a higher temperature, take larger groups, or leave out prompts that are decided."
    )


SENTENCES: Mapping[str, Callable[[int, Shown], str]] = {
    "bought": _bought,
    "length": _length,
    "shrunk": _shrunk,
    "copied": _copied,
    "repeated": _repeated,
    "length_pay": _length_pay,
    "clipped": _clipped,
    "gated": _gated,
    "still": _still,
}
"""Signals, the most important first, with their sentences."""

_BESIDE: Mapping[str, Callable[[Shown], str]] = {
    "length": lambda shown: f"plans grew by {_relative(shown).lstrip('+')}",
    "copied": lambda shown: f"copies of the history rose to {_percent(shown.now)}",
    "repeated": lambda shown: f"repeats rose to {_percent(shown.now)}",
}


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _relative(shown: Shown) -> str:
    return f"{100 * (shown.now / shown.before - 1):+.0f}%"


# Findings from the readings of a run: what changed against its first steps, and what cannot be right at any time.
#
# A change counts when it is large (a bound for each signal) and certain (the medians of the first and of the latest
# steps lie far apart for the noise from step to step), and has lasted. The noise is estimated from the differences
# between neighbouring steps, so that a slow drift does not hide itself. Readings of a run that goes nowhere raise no
# finding; docs/comparison.md gives the rate measured.


FIRST = 8
"""Steps at the start that later ones are compared with."""
LATEST = 8
"""Steps that the present is told from."""
LASTING = 3
"""Steps in a row for which a finding must hold before it is told."""
CERTAIN = 4.0
"""Standard errors that two medians must lie apart."""
SURE = 3.0
"""The same for a level, which is looked at alone."""
_MEDIAN = 1.2533
"""Standard error of a median in those of a mean, under Gaussian noise."""
_TIED = 0.9
"""Correlation between neighbouring steps that is reckoned with at most."""
GROWN, SHRUNK = 0.4, -0.35
"""Relative changes of length from which on they are told."""
RISEN = 0.10
"""Rise of the share of copied or repeated steps."""
LEVELS = {"length_pay": (0.5, 0.3), "clipped": (0.25, 0.1), "gated": (0.9, 0.75), "still": (0.6, 0.3)}
"""Readings that are told from a level on, whatever they were at first, and a level that they must surely exceed."""

Series = NDArray[np.float64]


class Finding(NamedTuple):
    """Something that a reader of the run should know."""

    signal: str
    since: int
    """The step from which on it was so."""
    until: int | None
    """The last step at which it was so; None where it still is."""
    sentence: str

    @property
    def headline(self) -> str:
        """What is so and how much, without what it may mean."""
        return self.sentence.partition(":")[0]


@dataclass(slots=True)
class _State:
    """What is remembered of a signal."""

    streak: int = 0
    """Steps in a row for which it has held."""
    began: int = 0
    """The first of them."""
    since: int | None = None
    """Set once told."""
    last: int = 0
    """The last step at which it was told or still held."""
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class _Change:
    """Medians of the first and of the latest steps, and how certainly they differ, in standard errors."""

    before: float
    now: float
    errors: float

    @property
    def relative(self) -> float:
        return self.now / self.before - 1 if self.before else 0.0


@dataclass(slots=True)
class Watchdog:
    """Fed with every step's completions, in order; remembers numbers only, so that it may watch for weeks."""

    readings: list[Reading] = field(default_factory=list)
    _states: dict[str, _State] = field(default_factory=dict)

    def observe(self, step: int, rollouts: Sequence[Rollout]) -> list[Finding]:
        """Take in a step; returns what is found for the first time. A step without completions says nothing."""
        return self.take(read_step(step, rollouts)) if rollouts else []

    def take(self, reading: Reading) -> list[Finding]:
        """As `observe`, of a step that is in numbers already."""
        self.readings.append(reading)
        shown = self._shown()
        new = {signal for signal in SENTENCES if self._update(signal, shown.get(signal))}
        return [finding for finding in self.findings if finding.signal in new]

    @property
    def findings(self) -> list[Finding]:
        """All that was found, in order of step, with the figures of the last time that it was so."""
        now = self.readings[-1].step if self.readings else 0
        found = [
            Finding(signal, state.since, None if state.last == now else state.last, state.sentence)
            for signal, state in self._states.items()
            if state.since is not None
        ]
        return sorted(found, key=lambda finding: finding.since)

    def metrics(self) -> dict[str, float]:
        """The latest step in numbers, for a trainer's log; what it does not say is left out."""
        if not self.readings:
            return {}
        last = self.readings[-1]
        length = _change(self._series("length"))
        found = {"copied": last.copied, "repeated": last.repeated, "length_pay": last.length_pay}
        found["length_growth"] = None if length is None else length.relative
        return {name: value for name, value in found.items() if value is not None}

    def _series(self, name: str) -> Series:
        """A reading of all steps that have it."""
        values = (getattr(reading, name) for reading in self.readings)
        return np.array([value for value in values if value is not None], dtype=np.float64)

    def _update(self, signal: str, shown: Shown | None) -> bool:
        """Count the latest step; True where the signal is to be told of now, and was not before."""
        state, step = self._states.setdefault(signal, _State()), self.readings[-1].step
        if shown is None:
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
        state.last, state.sentence = step, SENTENCES[signal](state.since, shown)
        return new

    def _shown(self) -> dict[str, Shown]:
        """The signals that hold now, with their figures."""
        length, copied, repeated, reward = (
            _change(self._series(name)) for name in ("length", "copied", "repeated", "reward")
        )
        found: dict[str, Shown] = {}
        slope = theil_sen(self._series("length")[-2 * LATEST :])
        if length is not None and length.errors >= CERTAIN and length.relative >= GROWN:
            found["length"] = Shown(length.before, length.now, slope=slope)
        if length is not None and length.errors <= -CERTAIN and length.relative <= SHRUNK:
            found["shrunk"] = Shown(length.before, length.now, slope=slope)
        for name, change in (("copied", copied), ("repeated", repeated)):
            if change is not None and change.errors >= CERTAIN and change.now - change.before >= RISEN:
                found[name] = Shown(change.before, change.now)
        bought = [name for name in ("length", "copied", "repeated") if name in found]
        if reward is not None and reward.errors >= CERTAIN and bought:
            found["bought"] = Shown(reward.before, reward.now, beside={name: found[name] for name in bought})
        for name, (level, usual) in LEVELS.items():
            values = self._series(name)
            now = float(np.median(values[-LATEST:])) if len(values) >= LATEST else -np.inf
            if now >= level and now - usual >= SURE * standard_error(values, LATEST):
                found[name] = Shown(now, now)
        return found


def _change(values: Series) -> _Change | None:
    """First against latest values; None where there are too few to tell."""
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
    p = min(max(1 + 2 * between, 0.0), _TIED) * len(d) / (len(d) + 10)
    variance = spread / (2 * (1 - p)) * (1 + p) / (1 - p)
    return _MEDIAN * float(np.sqrt(variance / count))


def theil_sen(values: Series) -> float:
    """Median slope over all pairs of steps, 0 for fewer than two values.

    >>> theil_sen(np.array([1.0, 2.0, 3.0, 40.0, 5.0]))
    1.0
    """
    first, second = np.triu_indices(len(values), k=1)
    return float(np.median((values[second] - values[first]) / (second - first))) if len(first) else 0.0
