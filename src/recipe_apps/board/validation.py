"""One validator of submissions for the command line and the server: all problems at once, each with line and field.

A submission is JSON lines of `example_id`, `steps` and, where a track asks for several plans, `sample`, as
`recipe plan` writes them; its other fields are allowed and dropped. What is kept is canonical: the
plans in the order of the questions, so that neither order, nor spacing, nor dropped fields make another submission.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from hashlib import sha256
from itertools import islice
from typing import Annotated, Any

from pydantic import AfterValidator, ValidationError, ValidationInfo

from recipe.artifacts import JsonObject, half_character
from recipe.planning.predictions import Prediction
from recipe.rows import Count, faults_of, quoted_value, validated
from recipe.types import Example

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
"""What a step may not hold; white space of any kind becomes one blank."""
_SHOWN = 60
"""Characters of a field's name that a problem has."""
_MAGIC = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
"""Beginnings of archives."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a submission may be."""

    bytes: int = 20_000_000
    line: int = 200_000
    """Bytes of one line."""
    steps: int = 100
    characters: int = 2_000
    """Of one step."""
    problems: int = 100
    """Problems that are told one by one; the others are counted."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of a submission."""

    line: int | None
    """From 1; None where it is of the whole file."""
    field: str
    problem: str
    remedy: str

    def sentence(self) -> str:
        """The fault in one sentence."""
        place = ", ".join(part for part in (f"line {self.line}" if self.line else "", self.field) if part)
        return f"{place}: {self.problem}; {self.remedy}." if place else f"{self.problem}; {self.remedy}."


@dataclass(frozen=True, slots=True)
class Checked:
    """What the validator says."""

    plans: int
    examples: int
    """Questions of the track."""
    problems: tuple[Problem, ...]
    more: int
    """Further problems, counted only."""
    content: bytes = b""
    """The canonical plans; empty where there is a problem."""
    sha: str = ""

    @property
    def ok(self) -> bool:
        """Whether it can be submitted."""
        return not self.problems


_LIMITS = Limits()


def check_submission(
    data: bytes,
    questions: Mapping[str, Example],
    plans: int,
    limits: Limits = _LIMITS,
    elsewhere: Collection[str] = (),
) -> Checked:
    """Check a submission's bytes against the questions of a track, of which each needs `plans` plans.

    `elsewhere` are ids of other tracks, which are told apart from ids that nobody knows. Never raises for bad data.
    """
    found = _Found(limits)
    rows: dict[tuple[str, int], tuple[int, list[str]]] = {}
    archive = next((name for magic, name in _MAGIC.items() if data.startswith(magic)), None)
    if len(data) > limits.bytes:
        found.add("", f"the file is larger than {limits.bytes:,} bytes", "send less")
    elif archive is not None:
        found.add("", f"the file is an archive ({archive})", "send the JSON lines themselves")
    else:
        # Line feeds alone end a line, as in JSON lines.
        for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
            if line := line.strip():
                found.line = number
                _read(line, questions, plans, limits, elsewhere, rows, found)
        found.line = None
        if not rows and not found.problems:
            found.add("", "the file holds no plans", "give one JSON object a line")
        elif rows:
            _missing(questions, plans, rows, found)
    if found.problems:
        return Checked(len(rows), len(questions), tuple(found.problems), found.more)
    content = "".join(
        json.dumps({"example_id": name, "sample": sample, "steps": rows[name, sample][1]}, ensure_ascii=False) + "\n"
        for name in questions
        for sample in range(plans)
    ).encode()
    return Checked(len(rows), len(questions), (), 0, content, sha256(content).hexdigest())


@dataclass(slots=True)
class _Found:
    """The problems so far."""

    limits: Limits
    problems: list[Problem] = field(default_factory=list)
    more: int = 0
    line: int | None = None

    def add(self, field: str, problem: str, remedy: str) -> None:
        if len(self.problems) < self.limits.problems:
            # A name in the file may be long, and hold what a terminal obeys.
            self.problems.append(Problem(self.line, repr(field[:_SHOWN])[1:-1], problem, remedy))
        else:
            self.more += 1


def _step(text: str, info: ValidationInfo[Limits]) -> str:
    """A step with one blank for each white space."""
    text = " ".join(text.split())
    if not text:
        raise ValueError("the step is empty; remove it, since a plan without steps is an empty list")
    if len(text) > info.context.characters:
        raise ValueError(f"{len(text):,} characters are too many; give {info.context.characters:,} at most")
    if not text.isprintable() and _CONTROL.search(text):
        raise ValueError("the step holds a control character; remove it")
    return text


_Row = make_dataclass(
    "_Row",
    [
        ("example_id", str),
        ("steps", list[Annotated[str, AfterValidator(_step)]]),
        ("sample", Count, 0),
        # What `recipe plan` writes besides is dropped, whatever it is.
        *((one.name, Any, None) for one in fields(Prediction) if one.name not in ("example_id", "steps", "sample")),
    ],
)


def _distinct(pairs: list[tuple[str, Any]]) -> JsonObject:
    """A JSON object. Raises KeyError for a key that stands twice in it."""
    row = dict(pairs)
    if len(row) < len(pairs):
        raise KeyError(next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1))
    return row


def _read(
    line: bytes,
    questions: Mapping[str, Example],
    plans: int,
    limits: Limits,
    elsewhere: Collection[str],
    rows: dict[tuple[str, int], tuple[int, list[str]]],
    found: _Found,
) -> None:
    """Read one line into `rows`, which also takes a plan with faults, so that it is not told as missing too."""
    remedy = "give one JSON object a line"
    if len(line) > limits.line:
        return found.add("", f"the line is longer than {limits.line:,} bytes", "shorten its steps")
    try:
        text = line.decode("utf-8")
        values = json.loads(text, object_pairs_hook=_distinct)
    except UnicodeDecodeError as error:
        return found.add("", f"the text is not UTF-8 at byte {error.start} of the line", "save the file as UTF-8")
    except KeyError as error:
        return found.add(error.args[0], "the key stands twice in the object", "keep one")
    except json.JSONDecodeError as error:
        return found.add("", f"not valid JSON ({error.msg} at column {error.colno})", remedy)
    except (RecursionError, ValueError):
        return found.add("", "nested too deeply, or a number of too many digits", remedy)
    if not isinstance(values, dict):
        return found.add("", "not a JSON object", remedy)
    row: Any = None
    try:
        if isinstance(steps := values.get("steps"), list) and len(steps) > limits.steps:
            found.add("steps", f"{len(steps):,} steps are too many", f"give {limits.steps} at most")
        else:
            row = validated(text, _Row, context=limits)
    except ValidationError as error:
        if (half := half_character(values)) is not None:
            found.add(half, "the text holds half a character", "repair the text")
        else:
            # Those that are counted only are not put in words: a line may have thousands of unknown fields.
            told = list(islice(faults_of(error, _Row, depth=1), limits.problems - len(found.problems)))
            for fault in told:
                found.add(*fault)
            found.more += error.error_count() - len(told)
    example, sample = values.get("example_id"), values.get("sample", 0)
    if isinstance(example, str) and example not in questions:
        where, remedy = ("a question of another track", "choose the right track")
        if example not in elsewhere:
            where, remedy = ("no question of this track", "give ids of the questions only")
        found.add("example_id", f"{quoted_value(example)} is {where}", remedy)
    if type(sample) is int and sample >= plans:
        wanted = "leave it out, or give 0" if plans == 1 else f"number the plans of a question 0 to {plans - 1}"
        found.add("sample", f"{quoted_value(sample)} is no number of a plan here", wanted)
    if isinstance(example, str) and example in questions and type(sample) is int and 0 <= sample < plans:
        first, _ = rows.setdefault((example, sample), (found.line or 0, row.steps if row else []))
        if first != found.line:
            problem = f"plan {sample} of {quoted_value(example)} was already given in line {first}"
            found.add("sample", problem, "keep one, or number them")
    return None


def _missing(questions: Mapping[str, Example], plans: int, rows: Mapping[tuple[str, int], Any], found: _Found) -> None:
    """Tell the questions that lack a plan, in one problem."""
    lost = [(name, sample) for name in questions for sample in range(plans) if (name, sample) not in rows]
    if lost:
        shown = ", ".join(f"{name} (plan {sample})" if plans > 1 else name for name, sample in lost[:5])
        more = f" and {len(lost) - 5:,} more" if len(lost) > 5 else ""
        problem = f"{len(lost):,} of {len(questions) * plans:,} plans are missing: {shown}{more}"
        found.add("example_id", problem, "give a plan for each question; one without steps is an empty list")
