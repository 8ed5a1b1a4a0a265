"""A watchdog of training: it finds, from live completions and their rewards, how the reward is being earned.

A record is JSON lines with goal, history, completion and reward. A run folder holds `completions/step-NNNNN.jsonl`.
Elsewhere each line has a `step`, or its file is named so. `reward` is a number, null or NaN where it was not computed,
or an object with `total` and `gated`; `clipped` is optional.

Findings are changes against the first steps, and levels that are wrong at any time. A change counts when it is large (a
bound for each signal), certain (the medians of the first and of the latest steps lie far apart for the noise from step
to step) and lasting. The noise is estimated from the differences between neighbouring steps, so that a slow drift does
not hide itself. The earliest findings are levels: what the reward pays for among the plans of one prompt shows before
the policy has learnt it. docs/results/training.md says how early each finding comes, and how often it is false.
"""

import math
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from recipe.artifacts import JsonObject, read_jsonl, to_json
from recipe.errors import InputError
from recipe.plan_text import Completion
from recipe.report.numbers import format_number
from recipe.reward.scorer import Steps, plain_reward
from recipe.text import content_words, is_among
from recipe.types import Reward

_STEP = re.compile(r"step[-_](\d+)")

FIRST = 6
"""Steps at the start that later ones are compared with."""
LATEST = 4
"""Steps that the present state is taken from. Of 8 and 8 steps the first comparison comes after validity has fallen."""
LASTING = 3
"""Steps in a row for which a signal must hold before it is reported."""
CHANGE_ERRORS = 3.0
"""Standard errors that the medians of the first and the latest steps must lie apart."""
LEVEL_STEPS = 8
"""Latest steps over which levels are taken, and what words earn: levels show before anything is learnt, so that there
is time for more steps."""
LEVEL_ERRORS = 2.0
"""Standard errors that the median of these steps must lie above the usual level."""
# Standard error of a median in those of a mean, under Gaussian noise.
_MEDIAN = 1.2533  # sqrt(pi / 2)
# Standard deviation in medians of the absolute values, under Gaussian noise.
_NORMAL_SPREAD = 1.4826  # 1 / Phi^-1(3/4)
# Correlation between neighbouring steps that is assumed at most.
_MOST_CORRELATED = 0.9
GROWN = 0.4
"""Relative growth of length that is reported."""
WORD_GOALS = 5
"""Goals in which a word must be in some plans and not in others: a word of one goal is content and no phrase."""
WORD_PAY = 0.4
"""Correlation of the reward with a word that is reported."""
LEVELS = {
    "length_pay": (0.5, 0.3),
    "copied_pay": (0.3, 0.1),
    "goal_pay": (0.4, 0.2),
    "clipped": (0.25, 0.1),
    "still": (0.6, 0.3),
}
"""Statistics that are reported from a level on, whatever they were at first, and their usual level."""

SENTENCES = {
    "copied_pay": "Among completions of one prompt, reward and the share of steps copied from the history go together "
    "(correlation {now:+.2f}) since step {since}: the reward pays for steps that are done already; check the reward of "
    "the history as a plan.",
    "goal_pay": "Among completions of one prompt, reward and words of the goal go together (correlation {now:+.2f}) "
    "since step {since}: the reward pays for saying the goal again; check the reward of the goal as a plan.",
    "word_pay": "Among completions of one prompt, reward and the word {word!r} go together, whatever the goal "
    "(correlation {now:+.2f}), since step {since}: the reward may pay for a phrase; read completions that hold the "
    "word, and check their rewards without it.",
    "length_pay": "Among completions of one prompt, reward and length go together (correlation {now:+.2f}) since step "
    "{since}: longer plans get a higher reward, whatever they say, unless they are far too short; expect plans to "
    "grow, and watch whether they outgrow the true continuations.",
    "length": "Plans grew from {before:.1f} to {now:.1f} steps ({relative:+.0%}{pace}) since step {since}{reward}: the "
    "reward may favour length rather than content; read the newest completions, and stop earlier, raise beta, or "
    "take a verifier with a price for each step.",
    "clipped": "{now:.0%} of completions end at the token limit since step {since}: their last step is cut, and "
    "the limit keeps them short; raise max_completion_tokens, find out why they grow, or, where no completion ends, "
    "train on examples first: the policy may not know the token that ends a turn (`recipe train check` names it).",
    "still": "In {now:.0%} of the groups all completions get the same reward since step {since}: such groups "
    "teach nothing; sample at a higher temperature, take larger groups, or leave out such prompts.",
}
"""Signals, the earliest first: the figures, since when, what they may mean, and what to do."""
_REWARD = TypeAdapter(Reward)

Series = NDArray[np.float64]
Payments = dict[tuple[str, str], tuple[float, float]]
"""By word and goal: the sums, within groups, of its covariance with the reward and of the variance of its presence. Two
empty texts name the reward itself: 0 and its variance."""


@dataclass(slots=True, kw_only=True)
class CompletionRecord:
    """A completion of a training step and what it earned: a line of a record, and what the watchdog sees."""

    step: int
    example_id: str = ""
    """Empty in the records of other trainers."""
    goal: str
    history: Steps
    completion: Completion
    clipped: bool = False
    """Whether the completion was cut at the token limit."""
    reward: Reward | None = None
    """None where it could not be computed, and before it is."""

    @property
    def row(self) -> JsonObject:
        """The line of a record: every field, the completion as its text, and whether it is malformed."""
        row: JsonObject = to_json(self)
        return row | {"completion": self.completion.text, "malformed": self.completion.malformed}

    @classmethod
    def of_row(cls, path: Path, line: int, row: JsonObject, step: int | None = None, **further: Any) -> Self:
        """The record of a line; `step` counts where the line has none. Raises InputError with file, line and field."""
        refuse = partial(InputError.at, path, line=line)
        if type(number := row.get("step", step)) is not int:
            remedy = "give the number of the training step, or name the file step-00001.jsonl"
            raise refuse("no step is given", remedy, field="step")
        if not isinstance(row.get("goal"), str) or not row["goal"].strip():
            raise refuse("the text is empty or no text", "give the goal", field="goal")
        history, reward, clipped = row.get("history"), row.get("reward", ""), bool(row.get("clipped", False))
        if not isinstance(row.get("completion"), str):
            raise refuse("no text", "give the completion as a string", field="completion")
        if not isinstance(history, list) or any(not isinstance(done, str) for done in history):
            remedy = "give the steps done as a list of strings, which may be empty"
            raise refuse("no list of steps", remedy, field="history")
        parts = reward if isinstance(reward, dict) else {"total": reward}
        total = parts.get("total", "")
        too_large = type(total) is int and total.bit_length() > 1023  # more than a float holds
        if too_large or (total is not None and type(total) not in (int, float)):
            raise refuse("no reward", "give a number, null, or an object with 'total'", field="reward")
        completion = Completion.of(row["completion"], cut=clipped)
        earned = None
        # A reward that is no finite number was not computed; in a mean it would take all others with it.
        if total is not None and math.isfinite(total):
            try:
                # Other trainers know few parts, or none.
                earned = _REWARD.validate_python(to_json(plain_reward(0.0, len(completion.steps))) | parts)
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                name = ".".join(map(str, ("reward", *first["loc"])))
                problem = f"{first['msg'][0].lower()}{first['msg'][1:]}"
                raise refuse(problem, "write it as in a run's records", field=name) from None
        return cls(
            step=number,
            example_id=str(row.get("example_id", "")),
            goal=row["goal"],
            history=tuple(history),
            completion=completion,
            clipped=clipped,
            reward=earned,
            **further,
        )


class StepStatistics(NamedTuple):
    """The numbers of one step; None where the step has no completions to take a number from."""

    step: int
    length: float
    """Mean steps of a plan."""
    copied: float | None
    """Share of all steps planned that the history holds already."""
    repeated: float | None
    """Share of all steps planned that the same plan holds already."""
    reward: float | None
    """Mean over the completions that were scored."""
    gated: float | None
    """Share of those that fell below the gate."""
    still: float | None
    """Share of groups whose completions all earn the same, so that nothing is learnt from them."""
    clipped: float
    """Share of completions that were cut at the token limit."""
    length_pay: float | None
    """Correlation of reward and length among the completions of a prompt, all groups pooled."""
    copied_pay: float | None = None
    """The same of reward and the share of steps that the history holds."""
    goal_pay: float | None = None
    """The same of reward and the mean share of the goal's words that a step has."""

    @classmethod
    def of(cls, step: int, records: Sequence[CompletionRecord]) -> Self:
        """The statistics of a step's completions, at least one; a prompt's completions are a group."""
        planned = copied = repeated = 0
        groups: dict[tuple[str, Steps], list[tuple[float, float, float, float]]] = {}
        for record in records:
            lines = [content_words(line) for line in record.completion.steps]
            done = [content_words(line) for line in record.history]
            goal = content_words(record.goal)
            of_history = sum(is_among(line, done) for line in lines)
            planned += len(lines)
            copied += of_history
            repeated += sum(is_among(line, lines[:index]) for index, line in enumerate(lines))
            if record.reward is not None:
                count = max(len(lines), 1)
                restated = sum(len(goal & line) for line in lines) / max(len(goal), 1)
                group = groups.setdefault((record.goal, record.history), [])
                group.append((record.reward.total, float(len(lines)), of_history / count, restated / count))

        # Within groups of two or more: sum cov / sqrt(sum var * sum var), None where one of the two never differs.
        tables = [np.array(group) for group in groups.values() if len(group) > 1]
        moved = [tuple(column - column.mean() for column in table.T) for table in tables]
        pays = list[float | None]()
        for column in (1, 2, 3):
            spread = sum(float(own[0] @ own[0]) for own in moved) * sum(
                float(own[column] @ own[column]) for own in moved
            )
            covariance = sum(float(own[0] @ own[column]) for own in moved)
            pays.append(covariance / float(np.sqrt(spread)) if spread >= 1e-18 else None)  # below, it is rounding
        rewards = [record.reward for record in records if record.reward is not None]
        return cls(
            step=step,
            length=planned / len(records),
            copied=copied / planned if planned else None,
            repeated=repeated / planned if planned else None,
            reward=sum(reward.total for reward in rewards) / len(rewards) if rewards else None,
            gated=sum(float(reward.gated) for reward in rewards) / len(rewards) if rewards else None,
            still=sum(float(np.ptp(table[:, 0]) < 1e-9) for table in tables) / len(tables) if tables else None,
            clipped=sum(record.clipped for record in records) / len(records),
            length_pay=pays[0],
            copied_pay=pays[1],
            goal_pay=pays[2],
        )


def word_payments(records: Sequence[CompletionRecord]) -> Payments:
    """What each word earns among the completions of a prompt: a group in which some plans hold it and others do not."""
    groups: dict[tuple[str, Steps], list[CompletionRecord]] = {}
    for record in records:
        if record.reward is not None:
            groups.setdefault((record.goal, record.history), []).append(record)
    earned: Payments = {("", ""): (0.0, 0.0)}
    for (goal, _), group in groups.items():
        totals = np.array([record.reward.total for record in group if record.reward is not None], float)
        totals -= totals.mean()
        spoken = [frozenset().union(*map(content_words, record.completion.steps)) for record in group]
        rows = [(("", ""), 0.0, float(totals @ totals))]
        for word in frozenset().union(*spoken) - frozenset.intersection(*spoken):
            holds = np.array([word in words for words in spoken])
            # Totals are centred already, so that their sum over the plans with the word is the covariance.
            rows.append(((word, goal), float(totals[holds].sum()), len(group) * float(holds.var())))
        for key, covariance, variance in rows:
            before = earned.get(key, (0.0, 0.0))
            earned[key] = before[0] + covariance, before[1] + variance
    return earned


def read_records(path: Path) -> Iterator[tuple[int, list[CompletionRecord]]]:
    """The steps recorded in a run folder, in a folder of JSON-lines files or in one such file, in order of step.

    Raises InputError where there are none, and with file, line and field for a line that cannot be read.
    """
    if path.is_dir() and (path / "completions").is_dir():
        path = path / "completions"
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise InputError.at(path, "no completions are recorded here", "give a run folder or a JSON-lines file")
    steps: dict[int, list[CompletionRecord]] = {}
    for file in files:
        named = _STEP.search(file.stem)
        for line, row in read_jsonl(file):
            if isinstance(row.get("reward"), dict):
                row["reward"]["pool"] = []  # of no use here, and larger than the rest of a record
            record = CompletionRecord.of_row(file, line, row, None if named is None else int(named[1]))
            steps.setdefault(record.step, []).append(record)
    yield from sorted(steps.items())


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


class _Evidence(NamedTuple):
    """The figures of a signal that holds."""

    before: float
    """Over the first steps; the same as `now` where only the level counts."""
    now: float
    """Over the latest steps."""
    errors: float = 0.0
    """Distance of the two medians in standard errors."""
    slope: float = 0.0
    """Change a step, over the latest steps."""
    word: str = ""
    """The word that is paid for."""

    @property
    def relative(self) -> float:
        """Change from first to latest steps, as a share of the first."""
        return self.now / self.before - 1 if self.before else 0.0


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

    def hold(self, step: int) -> bool:
        """Count a step at which the signal holds; whether it has lasted long enough to be reported."""
        if self.streak == 0:
            self.began = step
        self.streak += 1
        if self.since is None and self.streak >= LASTING:
            self.since = self.began
        self.last = step
        return self.since is not None


@dataclass(slots=True)
class Watchdog:
    """Takes every step's completions, in order; keeps their statistics only, so that it can run for weeks."""

    steps: list[StepStatistics] = field(default_factory=list)
    _payments: deque[Payments] = field(default_factory=partial(deque, maxlen=LEVEL_STEPS))
    """Of the latest steps."""
    _states: dict[str, _SignalState] = field(default_factory=dict)

    @classmethod
    def after(cls, steps: Iterable[tuple[int, Sequence[CompletionRecord]]]) -> Self:
        """A watchdog that has seen these steps."""
        watchdog = cls()
        for step, records in steps:
            watchdog.observe(step, records)
        return watchdog

    def observe(self, step: int, records: Sequence[CompletionRecord]) -> list[Finding]:
        """Add a step; returns the findings that are new. A step without completions is left out."""
        return self.take(StepStatistics.of(step, records), word_payments(records)) if records else []

    def take(self, statistics: StepStatistics, payments: Payments | None = None) -> list[Finding]:
        """As `observe`, from the statistics of a step and what words earn in it."""
        self.steps.append(statistics)
        if payments is not None:
            self._payments.append(payments)
        evidence, rise, reported = self._evidence(), "", {finding.signal for finding in self.findings}
        earned = _change(self._series("reward"))
        if earned is not None and earned.errors >= CHANGE_ERRORS:
            before, now = (format_number(value, 3) for value in (earned.before, earned.now))
            rise = f", while the reward rose from {before} to {now}"
        for signal, sentence in SENTENCES.items():
            state, known = self._states.setdefault(signal, _SignalState()), evidence.get(signal)
            if known is None:
                state.streak = 0
            elif state.hold(statistics.step):
                state.sentence = sentence.format(
                    since=state.since,
                    before=known.before,
                    now=known.now,
                    relative=known.relative,
                    pace=f", lately by {known.slope:+.2f} a step" if known.slope > 0 else "",
                    word=known.word,
                    reward=rise,
                )
        return [finding for finding in self.findings if finding.signal not in reported]

    @property
    def findings(self) -> list[Finding]:
        """All findings in order of step, with the figures of the last step at which each held."""
        now = self.steps[-1].step if self.steps else 0
        findings = [
            Finding(signal, state.since, None if state.last == now else state.last, state.sentence)
            for signal, state in self._states.items()
            if state.since is not None
        ]
        return sorted(findings, key=lambda finding: finding.since)

    def metrics(self) -> dict[str, float]:
        """Statistics of the latest step for a trainer's log; those that are None are left out."""
        if not self.steps:
            return {}
        last = self.steps[-1]
        length = _change(self._series("length"))
        figures = {"copied": last.copied, "repeated": last.repeated, "length_pay": last.length_pay}
        figures["length_growth"] = None if length is None else length.relative
        return {name: value for name, value in figures.items() if value is not None}

    def _series(self, name: str) -> Series:
        """A statistic of all steps that have it."""
        values = (getattr(step, name) for step in self.steps)
        return np.array([value for value in values if value is not None], dtype=np.float64)

    def _evidence(self) -> dict[str, _Evidence]:
        """The signals that hold now, with their figures."""
        length = _change(self._series("length"))
        held: dict[str, _Evidence] = {}
        # The median slope over all pairs of the latest steps (Theil and Sen), which a few odd steps do not move.
        latest = self._series("length")[-2 * LATEST :]
        first, second = np.triu_indices(len(latest), k=1)
        slope = float(np.median((latest[second] - latest[first]) / (second - first))) if len(first) else 0.0
        if length is not None and length.errors >= CHANGE_ERRORS and length.relative >= GROWN:
            held["length"] = length._replace(slope=slope)
        for name, (level, usual) in LEVELS.items():
            values = self._series(name)
            now = float(np.median(values[-LEVEL_STEPS:])) if len(values) >= LEVEL_STEPS else -np.inf
            if now >= level and now - usual >= LEVEL_ERRORS * standard_error(values, LEVEL_STEPS):
                held[name] = _Evidence(now, now)
        # A policy that never ends its turn is certain at once, whatever the steps before it were.
        if self.steps[-1].clipped == 1:
            held["clipped"] = _Evidence(1.0, 1.0)
        paid = self._paid_word()
        if paid is not None and paid.now >= WORD_PAY:
            held["word_pay"] = paid
        return held

    def _paid_word(self) -> _Evidence | None:
        """The word whose presence goes with the reward most closely, whatever the goal; None while steps are few."""
        if len(self._payments) < LEVEL_STEPS:
            return None
        sums: dict[str, NDArray[np.float64]] = {}
        for table in self._payments:
            for (word, _), row in table.items():
                sums[word] = sums.get(word, np.zeros(2)) + row
        spread = float(sums.pop("")[1])
        goals = Counter(word for word, goal in frozenset().union(*self._payments) if goal)
        known = [
            (float(covariance / np.sqrt(variance * spread)), word)
            for word, (covariance, variance) in sums.items()
            if goals[word] >= WORD_GOALS and variance * spread > 0
        ]
        best, word = max(known, default=(0.0, ""))
        return _Evidence(best, best, word=word)


def _change(values: Series) -> _Evidence | None:
    """First against latest values; None where there are too few."""
    if len(values) < FIRST + LATEST:
        return None
    before, now = float(np.median(values[:FIRST])), float(np.median(values[-LATEST:]))
    error = np.hypot(standard_error(values, FIRST), standard_error(values, LATEST))
    return _Evidence(before, now, float((now - before) / max(error, 1e-12)))


def standard_error(values: Series, count: int) -> float:
    """Standard error of the median of `count` neighbouring values [n], n >= 3, that waver about a slow drift.

    For noise of variance v with correlation p between neighbours, differences d have variance 2 v (1 - p) and
    correlation -(1 - p) / 2, which a slow drift leaves alone; a mean of n neighbours has variance
    v (1 + p) / (1 - p) / n.
    """
    d = np.diff(values)
    # A jump is a change and no noise: differences beyond three standard deviations of most are left out.
    most = 3 * _NORMAL_SPREAD * float(np.median(np.abs(d)))
    kept = np.abs(d) <= most if most else np.ones(len(d), dtype=bool)
    spread = float(d[kept] @ d[kept]) / int(kept.sum())
    if spread == 0:
        return 0.0
    pairs = kept[1:] & kept[:-1]
    between = float(d[1:][pairs] @ d[:-1][pairs]) / max(int(pairs.sum()), 1) / spread
    # From the correlation -(1 - p) / 2 of the differences; pulled to 0 where few of them tell it.
    p = min(max(1 + 2 * between, 0.0), _MOST_CORRELATED) * len(d) / (len(d) + 10)
    variance = spread / (2 * (1 - p)) * (1 + p) / (1 - p)
    return _MEDIAN * float(np.sqrt(variance / count))
