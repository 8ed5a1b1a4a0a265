"""One validator of submissions for the command line and the server: all problems at once, each with line and field.

A submission is JSON lines of `example_id`, `steps` and, where a track asks for several plans, `sample`, as
`recipe plan` writes them; its other fields are allowed and dropped. What is kept is canonical: the
plans in the order of the questions, so that neither order, nor spacing, nor dropped fields make another submission.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from recipe.artifacts import JsonObject
from recipe.errors import HALVES
from recipe.planning.predictions import OPTIONAL
from recipe.types import Example

_KNOWN = ("example_id", "steps", "sample")
_DROPPED = OPTIONAL
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
"""What a step may not hold; white space of any kind becomes one blank."""
_SHOWN = 60
"""Characters of a value that a problem quotes."""
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
    if not found.about_file(data):
        for line in _lines(data):
            found.line = line.number
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


class _Line(NamedTuple):
    number: int
    text: bytes


def _lines(data: bytes) -> Iterator[_Line]:
    """The lines that hold something; line feeds alone end a line, as in JSON lines."""
    start, number = 3 if data.startswith(b"\xef\xbb\xbf") else 0, 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        number += 1
        if text := data[start:end].strip():
            yield _Line(number, text)
        start = end + 1


@dataclass(slots=True)
class _Found:
    """The problems so far."""

    limits: Limits
    problems: list[Problem] = field(default_factory=list)
    more: int = 0
    line: int | None = None

    def add(self, field: str, problem: str, remedy: str) -> None:
        if len(self.problems) < self.limits.problems:
            self.problems.append(Problem(self.line, field, problem, remedy))
        else:
            self.more += 1

    def about_file(self, data: bytes) -> bool:
        """Whether the file as a whole cannot be read."""
        if len(data) > self.limits.bytes:
            self.add("", f"the file is larger than {self.limits.bytes:,} bytes", "send less")
            return True
        for magic, name in _MAGIC.items():
            if data.startswith(magic):
                self.add("", f"the file is an archive ({name})", "send the JSON lines themselves")
                return True
        return False


class _Twice(Exception):
    """A key stands twice in one object."""


def _pairs(pairs: list[tuple[str, Any]]) -> JsonObject:
    row = dict(pairs)
    if len(row) < len(pairs):
        times = Counter(name for name, _ in pairs)
        raise _Twice(next(name for name, found in times.items() if found > 1))
    return row


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _parsed(line: _Line, limits: Limits, found: _Found) -> JsonObject | None:
    """The object of a line; None where there is none, which is told."""
    remedy = "give one JSON object a line"
    if len(line.text) > limits.line:
        found.add("", f"the line is longer than {limits.line:,} bytes", "shorten its steps")
        return None
    try:
        value = json.loads(line.text.decode("utf-8"), object_pairs_hook=_pairs, parse_constant=_no_number)
    except UnicodeDecodeError as error:
        found.add("", f"the text is not UTF-8 at byte {error.start} of the line", "save the file as UTF-8")
    except _Twice as error:
        found.add(_quoted(str(error)), "the key stands twice in the object", "keep one")
    except json.JSONDecodeError as error:
        found.add("", f"not valid JSON ({error.msg} at column {error.colno})", remedy)
    except (RecursionError, ValueError):
        found.add("", "nested too deeply, or a number that is none or has too many digits", remedy)
    else:
        if isinstance(value, dict):
            return value
        found.add("", "not a JSON object", remedy)
    return None


def _read(
    line: _Line,
    questions: Mapping[str, Example],
    plans: int,
    limits: Limits,
    elsewhere: Collection[str],
    rows: dict[tuple[str, int], tuple[int, list[str]]],
    found: _Found,
) -> None:
    """Read one line into `rows`, which also takes a plan with faults, so that it is not told as missing too."""
    row = _parsed(line, limits, found)
    if row is None:
        return
    for name in row:
        if name not in _KNOWN and name not in _DROPPED:
            found.add(_quoted(name), "the field is unknown", f"known fields are {', '.join(_KNOWN)}; remove it")
    example, sample = row.get("example_id"), row.get("sample", 0)
    known = isinstance(example, str) and example in questions
    if not isinstance(example, str):
        found.add("example_id", "the field is missing or no string", "give the id of a question")
    elif not known and example in elsewhere:
        found.add("example_id", f"{_quoted(example)} is a question of another track", "choose the right track")
    elif not known:
        found.add("example_id", f"{_quoted(example)} is no question of this track", "give ids of the questions only")
    right = type(sample) is int and 0 <= sample < plans
    if not right:
        wanted = "leave it out, or give 0" if plans == 1 else f"number the plans of a question 0 to {plans - 1}"
        found.add("sample", f"{_quoted(str(sample))} is no number of a plan here", wanted)
    steps = _steps(row.get("steps"), limits, found)
    if known and right:
        first = rows.setdefault((str(example), int(sample)), (line.number, steps))
        if first[0] != line.number:
            problem = f"plan {sample} of {_quoted(str(example))} was already given in line {first[0]}"
            found.add("sample", problem, "keep one, or number them")


def _steps(value: object, limits: Limits, found: _Found) -> list[str]:
    """The steps of a plan, stripped; an empty list is a plan without steps."""
    if not isinstance(value, list) or not all(isinstance(step, str) for step in value):
        found.add("steps", "the field is missing or no list of strings", "give the steps as a list of strings")
        return []
    if len(value) > limits.steps:
        found.add("steps", f"{len(value):,} steps are too many", f"give {limits.steps} at most")
        return []
    kept = []
    for number, step in enumerate(value):
        place, text = f"steps[{number}]", " ".join(step.split())
        if not text:
            found.add(place, "the step is empty", "remove it; a plan without steps is an empty list")
        elif len(text) > limits.characters:
            found.add(place, f"{len(text):,} characters are too many", f"give {limits.characters:,} at most")
        elif HALVES.search(text):
            found.add(place, "the step holds half a character", "repair the text")
        elif _CONTROL.search(text):
            found.add(place, "the step holds a control character", "remove it")
        kept.append(text)
    return kept


def _missing(questions: Mapping[str, Example], plans: int, rows: Mapping[tuple[str, int], Any], found: _Found) -> None:
    """Tell the questions that lack a plan, in one problem."""
    lost = [(name, sample) for name in questions for sample in range(plans) if (name, sample) not in rows]
    if lost:
        shown = ", ".join(f"{name} (plan {sample})" if plans > 1 else name for name, sample in lost[:5])
        more = f" and {len(lost) - 5:,} more" if len(lost) > 5 else ""
        problem = f"{len(lost):,} of {len(questions) * plans:,} plans are missing: {shown}{more}"
        found.add("example_id", problem, "give a plan for each question; one without steps is an empty list")


def _quoted(text: str) -> str:
    """A value of the file, short and in visible characters."""
    shown = "".join(char if char.isprintable() else "?" for char in text[:_SHOWN])
    return f"'{shown}{'…' if len(text) > _SHOWN else ''}'"
