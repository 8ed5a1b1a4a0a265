"""The files that a report is made from: scores with the rows beside them, and the examples that the rows are about.

Contradictions between files are errors here, before anything is drawn: two files of one system and one
judge, rows of another judge than the scores say, rows for examples that are not in the examples given.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TypeVar

from recipe.artifacts import JsonObject, file_sha256, fingerprint, optional_field, read_jsonl, text_field, to_json
from recipe.data.examples import read_examples
from recipe.errors import InputError, listed
from recipe.evaluation.judge.verdicts import Judgement, read_verdicts
from recipe.evaluation.scores import JudgeIdentity, JudgeScores, SystemScores, read_scores, rows_path
from recipe.types import Example

Kind = TypeVar("Kind", bound=SystemScores)
_NAMES = {"validity": "example_id", "match": "example_id", "critical-failures": "example_id", "vpa": "sample_id"}
"""The field that names the example in the rows of each kind that has pages of examples."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file of scores, and its rows: verdicts of a judge, or plain rows; None where the rows are not there."""

    path: Path
    scores: SystemScores
    sha256: str
    judgements: tuple[Judgement, ...] | None = None
    rows: tuple[JsonObject, ...] | None = None

    @property
    def has_rows(self) -> bool:
        """Whether the rows are there."""
        return self.judgements is not None or self.rows is not None


@dataclass(frozen=True, slots=True)
class Board:
    """The measurements and examples of a report."""

    sources: tuple[Source, ...]
    examples: dict[str, Example]
    """By id, in file order; empty where no examples were given."""

    @property
    def systems(self) -> tuple[str, ...]:
        """Every system, in order of first appearance."""
        return tuple(dict.fromkeys(source.scores.system for source in self.sources))

    def of(self, kind: type[Kind]) -> list[tuple[Source, Kind]]:
        """The sources that measured one kind of thing with their scores, systems in one order everywhere."""
        found = [(source, source.scores) for source in self.sources if isinstance(source.scores, kind)]
        return sorted(found, key=lambda one: self.systems.index(one[1].system))


def gather(paths: Sequence[Path], examples: Sequence[Path] = ()) -> Board:
    """Read files of scores with their rows, and examples. Raises InputError (see above)."""
    sources = [_source(path) for path in paths]
    _require_distinct(sources)
    known = _examples(examples)
    if known:
        for source in sources:
            _require_known(source, known)
    return Board(tuple(sources), known)


def judgements_of(source: Source) -> tuple[Judgement, ...]:
    """The verdicts beside a judge's scores. Raises InputError for other scores, and without verdicts."""
    if source.scores.kind != "judge":
        raise InputError.at(source.path, f"these are {source.scores.kind} scores", "give scores of a judge")
    if source.judgements is None:
        raise InputError.at(rows_path(source.path), "the file does not exist", "keep the rows beside their scores")
    return source.judgements


def judge_key(judge: JudgeIdentity) -> str:
    """Equal for judges whose verdicts can be compared."""
    return fingerprint(to_json(judge))


def _source(path: Path) -> Source:
    scores, beside = read_scores(path), rows_path(path)
    digest = file_sha256(path)
    if not beside.exists():
        return Source(path, scores, digest)
    if isinstance(scores, JudgeScores):
        judgements = tuple(read_verdicts(beside))
        _require_judge(beside, judgements, scores.judge.name)
        return Source(path, scores, digest, judgements=judgements)
    name = _NAMES.get(scores.kind)
    return Source(path, scores, digest, rows=tuple(_row(beside, line, row, name) for line, row in read_jsonl(beside)))


def _row(path: Path, line: int, row: JsonObject, name: str | None) -> JsonObject:
    """A row with a valid id and sample; further fields are shown where they are there."""
    optional_field(path, line, row, "sample", 0)
    return row if name is None else row | {name: text_field(path, line, row, name)}


def _require_judge(path: Path, judgements: Iterable[Judgement], name: str) -> None:
    others = sorted({one.judge for one in judgements} - {"", name})
    if others:
        problem = f"the rows are of {listed(others)}, and the scores beside them of {name}"
        raise InputError.at(path, problem, "keep the rows of each judge beside its own scores", field="judge")


def _require_distinct(sources: Iterable[Source]) -> None:
    """One file for one system, judge and kind of measurement: a second would be a second answer to one question."""
    first: dict[str, Path] = {}
    for source in sources:
        key = fingerprint([source.scores.kind, source.scores.system, _setting(source.scores)])
        if (other := first.setdefault(key, source.path)) is not source.path:
            problem = f"{other} already holds {source.scores.kind} scores of {source.scores.system!r} by the same means"
            raise InputError.at(
                source.path,
                problem,
                "give one of them, or score one again under another name (--system of `recipe evaluate`)",
            )


def _setting(scores: SystemScores) -> object:
    """The judge or the protocol, in which two measurements of one kind and system may differ."""
    named = ("judge", "protocol", "taxonomy", "history", "graphs", "settings")
    present = [field.name for field in fields(scores) if is_dataclass(scores) and field.name in named]
    return {name: to_json(getattr(scores, name)) for name in present}


def _examples(paths: Sequence[Path]) -> dict[str, Example]:
    known: dict[str, Example] = {}
    for path in paths:
        for example in read_examples(path):
            if known.setdefault(example.example_id, example) != example:
                problem = f"{example.example_id!r} is another example in a file before"
                raise InputError.at(path, problem, "make ids unique over the files of --examples", field="example_id")
    return known


def _require_known(source: Source, known: dict[str, Example]) -> None:
    """Judgements and checked plans belong to examples; samples of VPA are cut by a protocol of their own."""
    if source.scores.kind not in ("judge", "validity", "match", "critical-failures"):
        return
    unknown = [name for name in dict.fromkeys(_ids(source)) if name not in known]
    if unknown:
        problem = f"{len(unknown)} of its examples are not in --examples: {listed([repr(one) for one in unknown])}"
        raise InputError.at(rows_path(source.path), problem, "give the examples that were planned for")


def _ids(source: Source) -> Iterable[str]:
    if source.judgements is not None:
        return (one.example_id for one in source.judgements)
    return (row["example_id"] for row in source.rows or ())
