"""Critical failures (How2Score; Chang et al., 2026, arXiv 2602.08808): does a plan fail to reach its goal, and where?

The judge is shown a goal, a procedure that reaches it (L1) and a plan (L2), and lists each failure that makes the plan
useless. The score is the share of plans without one. The prompt belongs to the publisher, whose judge was trained on
it: it is read from a file, with the places `{goal}`, `{reference_steps}` and `{steps}`, and braces of its own doubled.

Procedures are compared whole. An example's history stands at the head of both lists, unless the prompt has a place
`{history}` for it. Steps are numbered from 1, a line each, and the prompt is filled in one pass.

*Answer.* The last JSON object that has `reasoning` and `critical_failures` counts, each failure with `failure`,
`L1_steps` and `L2_steps`. Anything else is no verdict, and asked for again: nothing is guessed and nothing is 0.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from string import Formatter
from typing import Any

from recipe.artifacts import (
    JsonObject,
    fingerprint,
    not_a_file,
    only_fields,
    optional_field,
    read_jsonl,
    text_field,
    write_jsonl,
)
from recipe.config import JudgeConfig
from recipe.errors import InputError, quoted
from recipe.evaluation.judge.llm import LanguageModelJudge
from recipe.evaluation.judge.plans import CONTROLS, Case
from recipe.evaluation.judge.rubric import ParsedVerdict, last_object
from recipe.evaluation.judge.verdicts import (
    Judgement,
    PlanId,
    by_plan,
    control_findings,
    counts_of,
    in_order,
    refused_sentence,
    texts_field,
)
from recipe.evaluation.scores import READINGS, CriticalScores, FailureScores, JudgeIdentity
from recipe.models.protocol import Answer, Chat, Engine, unanswered
from recipe.progress import SILENT, Progress
from recipe.prompting import visible
from recipe.stats import Interval, mean_interval, video_of
from recipe.text import final_answer
from recipe.types import CriticalFailure, CriticalFailures, Example, Unscored

RUBRIC = "critical-failures"
MAX_TOKENS = 4096
"""Longest answer that the publisher allows; its judge reasons before it lists."""
_SPECIAL = re.compile(
    r"[<\ufe64\uff1c]\u200d*(?=[|\uff5c])|[\[\ufe47\uff3b](?=[/\uff0f][I\uff29][N\uff2e][S\uff33][T\uff34][\]\ufe48\uff3d])"
)
"""Where a special token of a chat template would begin, also in the full-width forms that NFKC makes plain."""
_PLACES = ("goal", "reference_steps", "steps")
_CLOSE = "\n\nReturn only valid json."
"""The publisher's last line, which its prompt file does not hold."""
_STEPS: JsonObject = {"type": "array", "items": {"type": "integer"}}
SCHEMA: JsonObject = {
    "name": "critical_failures",
    "schema": {
        "type": "object",
        "properties": {
            "reasoning": {"type": "string"},
            "critical_failures": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"failure": {"type": "string"}, "L1_steps": _STEPS, "L2_steps": _STEPS},
                    "required": ["failure", "L1_steps", "L2_steps"],
                    "additionalProperties": False,
                },
            },
        },
        "required": ["reasoning", "critical_failures"],
        "additionalProperties": False,
    },
}
"""The form of an answer, for endpoints that take a schema."""
_NO_ACTION = CriticalFailure("the plan holds no actionable step", (), ())
WORST, NONE = CriticalFailures((_NO_ACTION,)), CriticalFailures(())
"""The judgement by rule, which is a failure, and the one without any."""


@dataclass(frozen=True, slots=True)
class FailurePrompt:
    """A prompt that asks for critical failures, as its file has it."""

    text: str
    parts: tuple[tuple[str, str], ...]
    """Literal texts, each with the name of the place after it, which is empty at the end."""

    @classmethod
    def read(cls, path: Path) -> "FailurePrompt":
        """The prompt in a file. Raises InputError where it is none: a place is missing, unknown or badly written."""
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise not_a_file(path) from None
        except UnicodeDecodeError:
            raise InputError.at(path, "the text is not UTF-8", "convert the file to UTF-8") from None
        remedy = "use prompts/judge.txt of github.com/lilakk/how2everything; write braces of the text itself twice"
        try:
            found = [(literal, name, spec or change) for literal, name, spec, change in Formatter().parse(text)]
        except ValueError as error:
            raise InputError.at(path, f"its braces do not match ({error})", remedy) from None
        names = {name for _, name, _ in found if name is not None}
        if bad := [name for _, name, more in found if name is not None and (more or name not in (*_PLACES, "history"))]:
            raise InputError.at(path, f"the place {{{bad[0]}}} is unknown", remedy)
        if lacking := [name for name in _PLACES if name not in names]:
            raise InputError.at(path, f"the place {{{lacking[0]}}} is missing", remedy)
        return cls(text, tuple((literal, name or "") for literal, name, _ in found))

    def chat(self, case: Case) -> Chat:
        """The chat that asks for the failures of a case."""
        example, own = case.example, "history" in (name for _, name in self.parts)
        before = () if own else example.history
        values = {
            "": "",
            "goal": _line(example.goal),
            "history": _numbered(example.history) or "nothing yet",
            "reference_steps": _numbered((*before, *example.continuation)),
            "steps": _numbered((*before, *case.steps)),
        }
        return [{"role": "user", "content": "".join(text + values[name] for text, name in self.parts) + _CLOSE}]


def _numbered(steps: Sequence[str]) -> str:
    return "\n".join(f"{number}. {_line(step)}" for number, step in enumerate(steps, start=1))


def _line(text: str) -> str:
    """A text as one line that can be seen and holds no special token of a chat template."""
    return _SPECIAL.sub(r"\g<0> ", " ".join(visible(text).split()))


def parse_failures(text: str) -> ParsedVerdict:
    """The failures in a judge's answer.

    >>> parse_failures('{"reasoning": "Same.", "critical_failures": []}').outcome
    CriticalFailures(failures=(), reasoning='Same.')
    >>> parse_failures("I see no failure.").outcome
    Unscored(reason="the answer holds no list of failures: 'I see no failure.'")
    """
    if reason := unanswered(Answer(text)):
        return ParsedVerdict(Unscored(reason))
    found = last_object(final_answer(text) or "", ("reasoning", "critical_failures"))
    if found is None:
        return ParsedVerdict(Unscored(f"the answer holds no list of failures: {quoted(text)}"))
    outcome = _failures(found)
    return ParsedVerdict(outcome, "json" if isinstance(outcome, CriticalFailures) else "")


def _failures(found: Mapping[str, Any]) -> CriticalFailures | Unscored:
    reasoning, items = found["reasoning"], found["critical_failures"]
    if not isinstance(reasoning, str):
        return Unscored(f"the reasoning is no text: {quoted(str(reasoning))}")
    if not isinstance(items, list):
        return Unscored(f"critical_failures is no list: {quoted(str(items))}")
    failures = [_failure(item) for item in items]
    bad = [item for item, failure in zip(items, failures, strict=True) if failure is None]
    if bad:
        return Unscored(f"a failure is not a text with L1_steps and L2_steps, numbers from 1: {quoted(str(bad[0]))}")
    return CriticalFailures(tuple(filter(None, failures)), reasoning)


def _failure(item: object) -> CriticalFailure | None:
    if not isinstance(item, dict) or not isinstance(item.get("failure"), str) or not item["failure"].strip():
        return None
    numbers = item.get("l1_steps"), item.get("l2_steps")
    if not all(isinstance(some, list) and all(type(one) is int and one > 0 for one in some) for some in numbers):
        return None
    first, second = numbers
    return CriticalFailure(item["failure"].strip(), tuple(first or ()), tuple(second or ()))


class CriticalFailureJudge(LanguageModelJudge):
    """A language model that is shown goal, reference and plan, and lists what makes the plan useless."""

    def __init__(self, engine: Engine, model: str, prompt: FailurePrompt, config: JudgeConfig | None = None) -> None:
        """`model` is its name at the endpoint, a hub id or a folder."""
        super().__init__(engine, model, config)
        self._prompt = prompt

    @property
    def identity(self) -> JudgeIdentity:
        """Name, model, prompt and settings."""
        return self._identity(fingerprint([self._prompt.text, _CLOSE, SCHEMA]), {"batch_size"}, rubric=RUBRIC)

    def judge(self, cases: Sequence[Case], progress: Progress = SILENT) -> list[Judgement]:
        """The failures of each case, in order; a plan without an actionable step has one by rule.

        Raises ComputeError or InputError where the engine fails altogether; its answers are kept in its cache.
        """
        return self._judged(cases, self._prompt.chat, SCHEMA, parse_failures, WORST, progress)


_DEFAULTS: dict[str, Any] = {"sample": 0, "repeat": 0, "control": "", "judge": "", "how": "", "text": ""}


def write_failures(path: Path, judged: Iterable[Judgement]) -> int:
    """Write judgements as JSON lines, all or nothing; returns their number."""
    return write_jsonl(path, map(_row, judged))


def _row(judged: Judgement) -> JsonObject:
    outcome = judged.outcome
    row: JsonObject = {"example_id": judged.example_id, "sample": judged.sample, "repeat": judged.repeat}
    if isinstance(outcome, CriticalFailures):
        row["critical_failures"] = [
            {"failure": one.failure, "L1_steps": list(one.reference_steps), "L2_steps": list(one.plan_steps)}
            for one in outcome.failures
        ]
        row["reasoning"] = outcome.reasoning
    else:
        row["unscored"] = outcome.reason if isinstance(outcome, Unscored) else "judged by another rubric"
    more = {name: getattr(judged, name) for name in ("control", "judge", "how", "text")}
    lists = {"steps": list(judged.steps), "flags": list(judged.flags)}
    return row | {name: value for name, value in (more | lists).items() if value}


def read_failures(path: Path) -> list[Judgement]:
    """The judgements of a file, in file order.

    Raises InputError with file, line, field and remedy for a field that is missing, unknown or of the wrong kind.
    """
    found = []
    remedy = "give critical_failures with their reasoning, or the reason that there are none as unscored"
    known = ("example_id", "critical_failures", "reasoning", "unscored", *_DEFAULTS, "steps", "flags")
    for line, row in read_jsonl(path):
        only_fields(path, line, row, known)
        if ("critical_failures" in row) == ("unscored" in row):
            raise InputError.at(path, "neither failures nor the reason that there are none", remedy, line=line)
        outcome: CriticalFailures | Unscored
        if "unscored" in row:
            outcome = Unscored(text_field(path, line, row, "unscored"))
        else:
            items = row["critical_failures"] if isinstance(row["critical_failures"], list) else [None]
            plain = [{key.lower(): value for key, value in one.items()} for one in items if isinstance(one, dict)]
            outcome = _failures({"reasoning": row.get("reasoning", ""), "critical_failures": plain})
            if isinstance(outcome, Unscored) or len(plain) != len(items):
                raise InputError.at(path, "no list of failures", remedy, line=line, field="critical_failures")
        more = {name: optional_field(path, line, row, name, default) for name, default in _DEFAULTS.items()}
        more |= {name: texts_field(path, line, row, name) for name in ("steps", "flags")}
        found.append(Judgement(text_field(path, line, row, "example_id"), outcome, **more))
    return found


def failure_means(
    judged: Iterable[Judgement], control: str = "", missing: CriticalFailures | None = None
) -> dict[PlanId, tuple[float, float]]:
    """Of each plan the share of verdicts without a failure, in percent, and the mean number of failures.

    Only the system's own plans, or those of a control. A verdict that is missing counts as `missing`; without that it
    is left out, and so is a plan without any.
    """
    means = {}
    for plan, rows in by_plan(row for row in judged if row.control == control).items():
        outcomes = [row.outcome if isinstance(row.outcome, CriticalFailures) else missing for row in rows]
        counts = [len(outcome.failures) for outcome in outcomes if outcome is not None]
        if counts:
            means[plan] = (100 * fmean(count == 0 for count in counts), fmean(counts))
    return means


def critical_scores(
    system: str,
    judge: JudgeIdentity,
    examples: Sequence[Example],
    judged: Sequence[Judgement],
    seed: int = 0,
    ledger: Mapping[str, float | None] | None = None,
    left_out: Mapping[str, int] | None = None,
) -> CriticalScores:
    """The scores that judgements make; `examples` hold those that were judged, and `seed` draws the intervals."""
    by_id = {example.example_id: example for example in examples}
    own = [row for row in judged if not row.control]
    controls = {name: rows for name in CONTROLS if (rows := [row for row in judged if row.control == name])}
    names = in_order({by_id[row.example_id].source for row in own})
    by_example = {name: _example_means(rows, name) for name, rows in controls.items() if name != "verbose"}
    shares = {name: {one: {"accuracy": mean[0]} for one, mean in means.items()} for name, means in by_example.items()}
    return CriticalScores(
        system=system,
        judge=judge,
        overall=_scores("", by_id, own, seed),
        datasets=tuple(
            _scores(name, by_id, [row for row in own if by_id[row.example_id].source == name], seed) for name in names
        ),
        controls=tuple(_scores(name, by_id, rows, seed) for name, rows in controls.items()),
        repeats=1 + max((row.repeat for row in judged), default=0),
        ledger=dict(ledger or {}),
        findings=(*control_findings(by_id, shares, seed), *refused_sentence(controls)),
        how=dict(sorted(Counter(row.how for row in own if row.how).items())),
        left_out={name: count for name, count in (left_out or {}).items() if count},
    )


def _example_means(
    rows: Sequence[Judgement], control: str, missing: CriticalFailures | None = None
) -> dict[str, tuple[float, float]]:
    """Means of each example over its samples; `missing` as in `failure_means`."""
    samples: dict[str, list[tuple[float, float]]] = {}
    for plan, means in failure_means(rows, control, missing).items():
        samples.setdefault(plan.example_id, []).append(means)
    return {name: (fmean(one[0] for one in some), fmean(one[1] for one in some)) for name, some in samples.items()}


def _scores(name: str, by_id: Mapping[str, Example], rows: Sequence[Judgement], seed: int) -> FailureScores:
    control = rows[0].control if rows else ""

    def interval(place: int, missing: CriticalFailures | None = None) -> Interval | None:
        means = _example_means(rows, control, missing)
        videos = [video_of(by_id[example]) for example in means]
        return mean_interval([one[place] for one in means.values()], videos, seed) if means else None

    lost = any(isinstance(row.outcome, Unscored) for row in rows)
    read = zip(READINGS, (interval(0, missing) for missing in (WORST, None, NONE)), strict=True) if lost else ()
    readings = {reading: value for reading, value in read if value is not None}
    return FailureScores(name, interval(0), interval(1), counts_of(by_id, rows, CriticalFailures), readings)
