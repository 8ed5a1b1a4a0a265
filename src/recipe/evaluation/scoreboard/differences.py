"""Systems against each other: the same judge on the same examples, example by example."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import NamedTuple

from recipe.evaluation.judge.verdicts import FULL, Judged
from recipe.evaluation.scoreboard.accuracy import Bench, benches, normal, split_name
from recipe.evaluation.scoreboard.sources import Board, judge_key
from recipe.evaluation.scores import JudgeScores
from recipe.report.elements import Cell, Figure, Heading, Row, Section, Table, count, difference, plain
from recipe.stats import Comparison, adjusted, compare, video_of
from recipe.types import Verdict

PAIRS = 28
"""Pairs of systems that are compared at most: all of eight."""
_LEAST = 0.001


class Compared(NamedTuple):
    """Two systems on one split, by one judge."""

    judge: str
    split: str
    first: str
    second: str
    examples: int
    left_out: int
    """Examples that only one of the two has a verdict on."""
    result: Comparison


def plan_accuracy(judged: Iterable[Judged]) -> dict[str, float]:
    """Accuracy of each example in percent: the mean over its samples of the mean over their repeats; no controls."""
    samples: dict[tuple[str, int], list[float]] = defaultdict(list)
    for one in judged:
        if not one.control and isinstance(one.outcome, Verdict):
            samples[one.example_id, one.sample].append(100 * one.outcome.total / FULL)
    examples: dict[str, list[float]] = defaultdict(list)
    for (example, _), values in samples.items():
        examples[example].append(fmean(values))
    return {example: fmean(values) for example, values in examples.items()}


def compared(board: Board) -> list[Compared]:
    """Every pair of systems with rows by one judge, on each split and on all; needs no examples to be given."""
    found = []
    for bench in benches(board):
        values = _values(board, bench)
        splits = _splits(board, bench)
        # The later system first: files usually come in the order of what was tried, so that a gain is positive.
        for second, first in list(combinations(values, 2))[:PAIRS]:
            for split, names in splits.items():
                found += _pair(board, bench.name, (split, names), (first, values[first]), (second, values[second]))
    return found


def _values(board: Board, bench: Bench) -> dict[str, dict[str, float]]:
    """Accuracy by system and example."""
    key = judge_key(bench.judge)
    return {
        scores.system: plan_accuracy(source.judged)
        for source, scores in board.of(JudgeScores)
        if source.judged is not None and judge_key(scores.judge) == key
    }


def _splits(board: Board, bench: Bench) -> dict[str, frozenset[str] | None]:
    """The datasets of each split, by normal names; all of them where no example says which one it is of."""
    splits: dict[str, set[str]] = defaultdict(set)
    for name, split in bench.datasets:
        splits[split].add(normal(name))
    if not board.examples or len(splits) < 2:
        return {"": None}
    return {split: frozenset(names) for split, names in splits.items()}


def _pair(
    board: Board,
    judge: str,
    split: tuple[str, frozenset[str] | None],
    first: tuple[str, Mapping[str, float]],
    second: tuple[str, Mapping[str, float]],
) -> list[Compared]:
    name, datasets = split
    either = {one for one in (*first[1], *second[1]) if datasets is None or _dataset(board, one) in datasets}
    both = sorted(one for one in either if one in first[1] and one in second[1])
    if not both:
        return []
    result = compare(
        [first[1][one] for one in both],
        [second[1][one] for one in both],
        [_video(board, one) for one in both],
        [_dataset(board, one) for one in both],
    )
    return [Compared(judge, name, first[0], second[0], len(both), len(either) - len(both), result)]


def _video(board: Board, example: str) -> str:
    known = board.examples.get(example)
    return video_of(known) if known else example


def _dataset(board: Board, example: str) -> str:
    known = board.examples.get(example)
    return normal(known.source) if known else ""


def differences_section(board: Board, found: Sequence[Compared], figures: Sequence[Figure]) -> Section | None:
    """Tables of paired differences, one for each judge; None where no two systems share a judge and examples."""
    if not found:
        return None
    judges = dict.fromkeys(one.judge for one in found)
    clusters = "by video" if board.examples else "by example, because no --examples say which video each is of"
    return Section(
        name="differences",
        title="Systems against each other",
        short="Differences",
        paragraphs=(
            "First minus second on the examples that the judge scored for both, in points of accuracy; every dataset "
            f"weighs the same. Intervals and p-values are clustered {clusters}. The p-value is of a sign-flip "
            "permutation test; beside it stands the one adjusted by Holm for all comparisons of the table. The "
            "effect is Cohen's d of pairs. Bold where the interval excludes 0.",
        ),
        blocks=(*figures, *(_table(judge, [one for one in found if one.judge == judge]) for judge in judges)),
    )


def _table(judge: str, found: Sequence[Compared]) -> Table:
    corrected = adjusted([one.result.p_value for one in found])
    split = any(one.split for one in found)
    names = (
        *(("split",) if split else ()),
        "difference",
        "p",
        "p, Holm",
        "effect d",
        "better",
        "equal",
        "worse",
        "examples",
        "left out",
    )
    return Table(
        caption=f"Paired differences · judge: {judge}",
        about="points of accuracy, 95% interval below",
        first="first against second",
        headings=tuple(Heading(name) for name in names),
        rows=tuple(_row(one, p_value, split) for one, p_value in zip(found, corrected, strict=True)),
        notes=("Left out: examples that the judge scored for one of the two only.",),
    )


def _row(one: Compared, corrected: float, split: bool) -> Row:
    result = one.result
    cells = (
        *((Cell(split_name(one.split)),) if split else ()),
        difference(result.difference),
        Cell(_p(result.p_value)),
        Cell(_p(corrected)),
        plain(result.effect, 2),
        *(Cell(f"{100 * share:.0f} %") for share in (result.better, result.equal, result.worse)),
        count(one.examples),
        count(one.left_out),
    )
    return Row(f"{one.first} − {one.second}", cells)


def _p(value: float) -> str:
    return f"< {_LEAST}" if value < _LEAST else f"{value:.3f}"
