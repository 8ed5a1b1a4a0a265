"""Files of scores with their rows, of judgements made by hand."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recipe.artifacts import to_json
from recipe.evaluation import measure_named
from recipe.evaluation.judge.verdicts import Judgement, verdict_rows, write_verdicts
from recipe.evaluation.measures import summarise
from recipe.evaluation.scores import Counts, Group, JudgeIdentity, Row, Scores, rows_path, write_rows, write_scores
from recipe.types import Example


def judge_scores(
    system: str,
    judge: JudgeIdentity,
    examples: Sequence[Example],
    judged: Sequence[Judgement],
    seed: int = 0,
    ledger: Mapping[str, float | None] | None = None,
    left_out: Mapping[str, int] | None = None,
) -> Scores:
    """By the six criteria."""
    kind: Any = measure_named("judge")
    return summarise(kind(judge), system, verdict_rows(judged), examples, seed, ledger, left_out)


def plain_file(path: Path, measure: str, identity: dict[str, Any], rows: Sequence[Row] = ()) -> Path:
    """Scores without a figure, and rows: what is compared row by row."""
    write_scores(path, Scores(measure, path.stem, identity, (Group("", "all", {}, Counts(0)),)))
    write_rows(rows_path(path), rows)
    return path


def judge_file(path: Path, judge: JudgeIdentity, judged: Sequence[Judgement]) -> Path:
    """The same of a judge, whose rows are verdicts."""
    plain_file(path, "judge", {"judge": to_json(judge)})
    write_verdicts(rows_path(path), judged)
    return path
