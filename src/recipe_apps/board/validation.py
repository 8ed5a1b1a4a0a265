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

from recipe.artifacts import JsonObject, half_character, json_line
from recipe.errors import listed
from recipe.planning.predictions import Prediction
from recipe.rows import Count, faults_of, quoted_value, validated
from recipe.types import Example

# What a step may not hold; white space of any kind becomes one blank.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
# Characters of a field's name that a problem has.
_SHOWN = 60
# Beginnings of archives.
_MAGIC = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
# Plans of twenty steps of thirty characters for ten thousand questions are 7 MB.
MOST_BYTES = 20_000_000
"""The largest submission. What the program submits itself is bounded by the number of problems alone."""
# Bytes of one line, steps of a plan, and characters of a step.
_LINE, _STEPS, _CHARACTERS = 200_000, 100, 2_000
# Problems that are listed; the others are counted.
_PROBLEMS = 100


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
        where = ", ".join(part for part in (f"line {self.line}" if self.line else "", self.field) if part)
        return f"{where}: {self.problem}; {self.remedy}." if where else f"{self.problem}; {self.remedy}."


@dataclass(slots=True)
class SubmissionCheck:
    """The outcome of a check."""

    examples: int
    """Questions of the track."""
    plans: int = 0
    problems: list[Problem] = field(default_factory=list)
    more: int = 0
    """Further problems, counted only."""
    content: bytes = b""
    """The canonical plans; empty where there is a problem."""
    sha: str = ""

    @property
    def ok(self) -> bool:
        """Whether it can be submitted."""
        return not self.problems

    def add(self, line: int | None, field: str, problem: str, remedy: str) -> None:
        """A further problem."""
        if len(self.problems) < _PROBLEMS:
            # A name in the file may be long, and hold what a terminal obeys.
            self.problems.append(Problem(line, repr(field[:_SHOWN])[1:-1], problem, remedy))
        else:
            self.more += 1


def check_submission(
    data: bytes, questions: Mapping[str, Example], plans: int, other_ids: Collection[str] = (), bounded: bool = True
) -> SubmissionCheck:
    """Check a submission's bytes against the questions of a track, of which each needs `plans` plans.

    `other_ids` are the ids of other tracks: for those the remedy is another track. Never raises for bad data.
    """
    checked = SubmissionCheck(len(questions))
    # By question and number of the plan: the line, and the steps; also of a plan with faults, which is not missing.
    rows: dict[tuple[str, int], tuple[int, list[str]]] = {}
    archive = next((name for magic, name in _MAGIC.items() if data.startswith(magic)), None)
    if bounded and len(data) > MOST_BYTES:
        checked.add(None, "", f"the file is larger than {MOST_BYTES:,} bytes", "send less")
    elif archive is not None:
        checked.add(None, "", f"the file is an archive ({archive})", "send the JSON lines themselves")
    else:
        # Line feeds alone end a line, as in JSON lines.
        for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
            line = line.strip()
            row = _read(line, number, bounded, checked) if line else None
            if row is None:
                continue
            example, sample, steps = row
            if isinstance(example, str) and example not in questions:
                where, remedy = "a question of another track", "choose the right track"
                if example not in other_ids:
                    ids = listed([quoted_value(name) for name in islice(questions, 3)])
                    where, remedy = "no question of this track", f"give ids of its questions, such as {ids}"
                checked.add(number, "example_id", f"{quoted_value(example)} is {where}", remedy)
            if type(sample) is int and sample >= plans:
                several = f"number the plans of a question 0 to {plans - 1}"
                remedy = several if plans > 1 else "leave it out, or give 0"
                checked.add(number, "sample", f"{quoted_value(sample)} is no number of a plan here", remedy)
            if isinstance(example, str) and example in questions and type(sample) is int and 0 <= sample < plans:
                first, _ = rows.setdefault((example, sample), (number, steps))
                if first != number:
                    problem = f"plan {sample} of {quoted_value(example)} was already given in line {first}"
                    checked.add(number, "sample", problem, "keep one, or number them")
        if not rows and checked.ok:
            checked.add(None, "", "the file holds no plans", "give one JSON object a line")
        missing = [(name, sample) for name in questions for sample in range(plans) if (name, sample) not in rows]
        if rows and missing:
            shown = ", ".join(f"{name} (plan {sample})" if plans > 1 else name for name, sample in missing[:5])
            more = f" and {len(missing) - 5:,} more" if len(missing) > 5 else ""
            problem = f"{len(missing):,} of {len(questions) * plans:,} plans are missing: {shown}{more}"
            remedy = "give a plan for each question; one without steps is an empty list"
            checked.add(None, "example_id", problem, remedy)
    checked.plans = len(rows)
    if checked.ok:
        canonical = (
            {"example_id": name, "sample": sample, "steps": rows[name, sample][1]}
            for name in questions
            for sample in range(plans)
        )
        checked.content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in canonical).encode()
        checked.sha = sha256(checked.content).hexdigest()
    return checked


def read_content(content: bytes) -> list[Prediction]:
    """The plans of a submission's canonical content."""
    # Not `splitlines`: an id may hold characters that end a line elsewhere, such as U+2028.
    lines = content.decode().split("\n")[:-1]
    rows = [json_line("submission", number, line) for number, line in enumerate(lines, start=1)]
    return [Prediction(row["example_id"], tuple(row["steps"]), row["sample"]) for row in rows]


def _step(text: str, info: ValidationInfo[bool]) -> str:
    """A step with one blank for each white space."""
    text = " ".join(text.split())
    if not text:
        raise ValueError("the step is empty; remove it, since a plan without steps is an empty list")
    if info.context and len(text) > _CHARACTERS:
        raise ValueError(f"{len(text):,} characters are too many; give {_CHARACTERS:,} at most")
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
        *(
            (field.name, Any, None)
            for field in fields(Prediction)
            if field.name not in ("example_id", "steps", "sample")
        ),
    ],
)


def _distinct(pairs: list[tuple[str, Any]]) -> JsonObject:
    """A JSON object. Raises KeyError for a key that occurs twice."""
    row = dict(pairs)
    if len(row) < len(pairs):
        raise KeyError(next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1))
    return row


def _read(line: bytes, number: int, bounded: bool, checked: SubmissionCheck) -> tuple[object, object, list[str]] | None:
    """Id, number of the plan and steps of one line, whose problems are added; None where it is no JSON object."""
    remedy, field, problem = "give one JSON object a line", "", ""
    values: Any = None
    too_long = bounded and len(line) > _LINE
    try:
        text = line.decode("utf-8")
        values = None if too_long else json.loads(text, object_pairs_hook=_distinct)
    except UnicodeDecodeError as error:
        problem, remedy = f"the text is not UTF-8 at byte {error.start} of the line", "save the file as UTF-8"
    except KeyError as error:
        field, problem, remedy = error.args[0], "the key occurs twice in the object", "keep one"
    except json.JSONDecodeError as error:
        problem = f"not valid JSON ({error.msg} at column {error.colno})"
    except (RecursionError, ValueError):
        problem = "nested too deeply, or a number of too many digits"
    if too_long:
        problem, remedy = f"the line is longer than {_LINE:,} bytes", "shorten its steps"
    if not isinstance(values, dict):
        checked.add(number, field, problem or "not a JSON object", remedy)
        return None
    steps: list[str] = []
    try:
        if bounded and isinstance(raw := values.get("steps"), list) and len(raw) > _STEPS:
            checked.add(number, "steps", f"{len(raw):,} steps are too many", f"give {_STEPS} at most")
        else:
            row: Any = validated(text, _Row, context=bounded)
            steps = row.steps
    except ValidationError as error:
        if (half := half_character(values)) is not None:
            checked.add(number, half, "the text holds half a character", "repair the text")
        else:
            # Those that are counted only are not put in words: a line may have thousands of unknown fields.
            faults = list(islice(faults_of(error, _Row, depth=1), _PROBLEMS - len(checked.problems)))
            for fault in faults:
                checked.add(number, *fault)
            checked.more += error.error_count() - len(faults)
    return values.get("example_id"), values.get("sample", 0), steps
