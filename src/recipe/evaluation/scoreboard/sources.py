"""The files that a report is made from: scores with the rows beside them, and the examples that the rows are about.

Contradictions between files are errors here, before anything is drawn: two files of one system and one
judge, rows of another judge than the scores say, rows for examples that are not in the examples given.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from recipe.artifacts import file_sha256, fingerprint
from recipe.data.examples import read_examples
from recipe.errors import InputError, listed
from recipe.evaluation.judge.verdicts import Judgement, read_verdicts
from recipe.evaluation.measures import Values, measure_named
from recipe.evaluation.scores import Row, Scores, read_scores, rows_path
from recipe.types import Example


@dataclass(frozen=True)
class Source:
    """One file of scores, and its rows; None where the rows are not there."""

    path: Path
    scores: Scores
    sha256: str
    rows: tuple[Row, ...] | None = None

    @cached_property
    def values(self) -> dict[Literal[0, 1] | None, Values]:
        """The metrics of the system's own plans: with missing ones at the worst (0), at the best (1) and left out."""
        measure, own = measure_named(self.scores.measure), [one for one in self.rows or () if not one.control]
        values = measure.plan_values(own)
        if not any(one.unscored for one in own):
            return {0: values, 1: values, None: values}
        return {0: measure.plan_values(own, 0), 1: measure.plan_values(own, 1), None: values}


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

    def of(self, measure: str) -> list[Source]:
        """The sources of one measure, systems in one order everywhere."""
        return sorted(
            (source for source in self.sources if source.scores.measure == measure),
            key=lambda source: self.systems.index(source.scores.system),
        )


def gather(paths: Sequence[Path], examples: Sequence[Path] = ()) -> Board:
    """Read files of scores with their rows, and examples. Raises InputError (see above)."""
    sources = [_source(path) for path in paths]
    _require_distinct(sources)
    known = _examples(examples)
    if known:
        for source in sources:
            _require_known(source, known)
    return Board(tuple(sources), known)


def judgements_of(source: Source) -> list[Judgement]:
    """The verdicts beside a judge's scores. Raises InputError for other scores, and without verdicts."""
    if source.scores.measure != "judge":
        raise InputError.at(source.path, f"these are scores of {source.scores.measure!r}", "give scores of a judge")
    if source.rows is None:
        raise InputError.at(rows_path(source.path), "the file does not exist", "keep the rows beside their scores")
    return read_verdicts(rows_path(source.path))


def _source(path: Path) -> Source:
    scores, beside = read_scores(path), rows_path(path)
    digest = file_sha256(path)
    if not beside.exists():
        return Source(path, scores, digest)
    rows = tuple(measure_named(scores.measure).read_rows(beside))
    if scores.judge is not None:
        others = sorted({one.details.get("judge", "") for one in rows} - {"", scores.judge.name})
        if others:
            problem = f"the rows are of {listed(others)}, and the scores beside them of {scores.judge.name}"
            raise InputError.at(beside, problem, "keep the rows of each judge beside its own scores", field="judge")
    return Source(path, scores, digest, rows)


def _require_distinct(sources: Iterable[Source]) -> None:
    """One file for one system, judge and kind of measurement: a second would be a second answer to one question."""
    first: dict[str, Path] = {}
    for source in sources:
        scores = source.scores
        key = fingerprint([scores.measure, scores.system, scores.identity, scores.settings])
        if (other := first.setdefault(key, source.path)) is not source.path:
            problem = f"{other} already holds {scores.measure} scores of {scores.system!r} by the same means"
            raise InputError.at(
                source.path,
                problem,
                "give one of them, or score one again under another name (--system of `recipe evaluate`)",
            )


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
    if not measure_named(source.scores.measure).of_examples:
        return
    names = dict.fromkeys(one.example_id for one in source.rows or ())
    if unknown := [name for name in names if name not in known]:
        problem = f"{len(unknown)} of its examples are not in --examples: {listed([repr(one) for one in unknown])}"
        raise InputError.at(rows_path(source.path), problem, "give the examples that were planned for")
