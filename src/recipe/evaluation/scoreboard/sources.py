"""The files that a report is made from: scores, their rows, and the examples that the rows are about.

Contradictions between files are errors here, before anything is drawn: two files of one system and one
judge, rows of a judge that the scores do not name, rows for examples that are not in the examples given.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from recipe.artifacts import file_sha256, fingerprint
from recipe.data.examples import read_examples
from recipe.errors import InputError, listed
from recipe.evaluation import measure_named
from recipe.evaluation.judge.verdicts import Judgement, read_verdicts
from recipe.evaluation.measures import Values
from recipe.evaluation.scores import Row, Scores, read_scores, rows_path
from recipe.types import Example


@dataclass(frozen=True)
class ScoredFile:
    """One file of scores, and its rows; None where the rows are not there."""

    path: Path
    scores: Scores
    sha256: str
    rows: tuple[Row, ...] | None = None

    @cached_property
    def values(self) -> dict[Literal[0, 1] | None, Values]:
        """The metrics of the system's own plans: with missing ones at the worst (0), at the best (1) and left out."""
        measure, own = measure_named(self.scores.measure), [row for row in self.rows or () if not row.control]
        values = measure.plan_values(own)
        if not any(row.unscored for row in own):
            return {0: values, 1: values, None: values}
        return {0: measure.plan_values(own, 0), 1: measure.plan_values(own, 1), None: values}


@dataclass(frozen=True, slots=True)
class ReportSources:
    """The measurements and examples of a report."""

    sources: tuple[ScoredFile, ...]
    examples: dict[str, Example]
    """By id, in file order; empty where no examples were given."""

    @property
    def systems(self) -> tuple[str, ...]:
        """Every system, in order of first appearance."""
        return tuple(dict.fromkeys(source.scores.system for source in self.sources))

    def of(self, measure: str) -> list[ScoredFile]:
        """The sources of one measure, systems in one order everywhere."""
        return sorted(
            (source for source in self.sources if source.scores.measure == measure),
            key=lambda source: self.systems.index(source.scores.system),
        )


def gather(paths: Sequence[Path], examples: Sequence[Path] = ()) -> ReportSources:
    """Read files of scores with their rows, and examples. Raises InputError (see above)."""
    sources: list[ScoredFile] = []
    first: dict[str, Path] = {}
    for path in paths:
        scores, beside, rows = read_scores(path), rows_path(path), None
        if beside.exists():
            rows = tuple(measure_named(scores.measure).read_rows(beside))
            judges = {row.details.get("judge", "") for row in rows} - {"", scores.judge.name} if scores.judge else set()
            if scores.judge and judges:
                problem = (
                    f"the rows are of {listed(sorted(judges))}, and the scores next to them of {scores.judge.name}"
                )
                raise InputError.at(
                    beside, problem, "keep the rows of each judge next to its own scores", field="judge"
                )
        sources.append(ScoredFile(path, scores, file_sha256(path), rows))

    # One file for one system, judge and kind of measurement: a second would be a second answer to one question.
    for source in sources:
        scores = source.scores
        key = fingerprint([scores.measure, scores.system, scores.identity, scores.settings])
        if (other := first.setdefault(key, source.path)) is not source.path:
            problem = f"{other} already holds {scores.measure} scores of {scores.system!r} by the same means"
            remedy = "give one of them, or score one again under another name (--system of `recipe evaluate`)"
            raise InputError.at(source.path, problem, remedy)

    known: dict[str, Example] = {}
    for path in examples:
        for example in read_examples(path):
            if known.setdefault(example.example_id, example) != example:
                problem = f"{example.example_id!r} is another example in a file before"
                raise InputError.at(path, problem, "make ids unique over the files of --examples", field="example_id")
    # Judgements and checked plans belong to examples; samples of VPA are cut by a protocol of their own.
    for source in sources if known else ():
        if measure_named(source.scores.measure).of_examples:
            names = dict.fromkeys(row.example_id for row in source.rows or ())
            if unknown := [repr(name) for name in names if name not in known]:
                problem = f"{len(unknown)} of its examples are not in --examples: {listed(unknown)}"
                raise InputError.at(rows_path(source.path), problem, "give the examples that were planned for")
    return ReportSources(tuple(sources), known)


def judgements_of(source: ScoredFile) -> list[Judgement]:
    """The verdicts that a judge's scores are means of. Raises InputError for other scores, and without verdicts."""
    if source.scores.measure != "judge":
        raise InputError.at(source.path, f"these are scores of {source.scores.measure!r}", "give scores of a judge")
    if source.rows is None:
        raise InputError.at(rows_path(source.path), "the file does not exist", "keep the rows next to their scores")
    return read_verdicts(rows_path(source.path))
