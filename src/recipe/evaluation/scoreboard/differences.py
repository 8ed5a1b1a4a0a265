"""Systems against each other: the same judge on the same examples, example by example."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from recipe.evaluation.judge.verdicts import BEST, NOTHING, example_means
from recipe.evaluation.metrics import readings_table
from recipe.evaluation.scoreboard.accuracy import judge_results, normal, split_name
from recipe.evaluation.scoreboard.sources import Board, judge_key
from recipe.evaluation.scores import READINGS, JudgeScores
from recipe.report.elements import Cell, Figure, Row, Section, Table, headings, row
from recipe.stats import Comparison, Interval, adjusted, compare, video_of

PAIRS = 28
"""Pairs of systems that are compared at most: all of eight."""
P_DIGITS, P_LEAST = 3, 0.001
"""Digits of a p-value, and the smallest that is shown."""


@dataclass(frozen=True, slots=True)
class SystemDifference:
    """Two systems on one split, by one judge."""

    judge: str
    split: str
    first: str
    second: str
    examples: int
    left_out: int
    """Examples that only one of the two has a verdict on."""
    result: Comparison
    readings: dict[str, Interval] = field(default_factory=dict)
    """The difference where verdicts are missing (see `paired.ComparisonRow`)."""


def system_differences(board: Board) -> list[SystemDifference]:
    """Every pair of systems with rows by one judge, on each split and on all; needs no examples to be given."""
    found = []
    for results in judge_results(board):
        key = judge_key(results.judge)
        accuracy = {
            scores.system: {
                reading: {name: means["accuracy"] for name, means in example_means(rows, missing=missing).items()}
                for reading, missing in zip(READINGS, (NOTHING, None, BEST), strict=True)
            }
            for source, scores in board.of(JudgeScores)
            if (rows := source.judgements) is not None and judge_key(scores.judge) == key
        }
        # The later system first: files usually come in the order of what was tried, so that a gain is positive.
        for second, first in list(combinations(accuracy, 2))[:PAIRS]:
            for split, datasets in _splits(board, results.datasets).items():
                sides = [
                    {reading: _of_datasets(board, values, datasets) for reading, values in accuracy[name].items()}
                    for name in (first, second)
                ]
                ours, theirs = (side["missing_left_out"] for side in sides)
                if both := sorted(ours.keys() & theirs.keys()):
                    left_out = len(ours.keys() ^ theirs.keys())
                    result = _compared(board, ours, theirs, both)
                    read = _readings(board, sides[0], sides[1], result)
                    found.append(
                        SystemDifference(results.name, split, first, second, len(both), left_out, result, read)
                    )
    return found


def _splits(board: Board, datasets: Iterable[tuple[str, str]]) -> dict[str, set[str] | None]:
    """The datasets of each split, by normal names; all of them where no example says which one it is of."""
    splits: dict[str, set[str]] = defaultdict(set)
    for name, split in datasets:
        splits[split].add(normal(name))
    return dict(splits) if board.examples and len(splits) > 1 else {"": None}


def _of_datasets(board: Board, accuracy: Mapping[str, float], datasets: set[str] | None) -> dict[str, float]:
    return {name: value for name, value in accuracy.items() if datasets is None or _dataset(board, name) in datasets}


def _compared(board: Board, ours: Mapping[str, float], theirs: Mapping[str, float], both: Sequence[str]) -> Comparison:
    return compare(
        [ours[name] for name in both],
        [theirs[name] for name in both],
        [video_of(board.examples[name]) if name in board.examples else name for name in both],
        [_dataset(board, name) for name in both],
    )


def _readings(
    board: Board, ours: Mapping[str, dict[str, float]], theirs: Mapping[str, dict[str, float]], result: Comparison
) -> dict[str, Interval]:
    """The difference by reading over the examples of both; nothing where no verdict is missing."""
    least, most = READINGS[0], READINGS[2]
    both = sorted(ours[least].keys() & theirs[least].keys())
    if all(side[least][name] == side[most][name] for side in (ours, theirs) for name in both):
        return {}
    pairs = {"lowest": (least, most), "missing_as_0": (least, least), "highest": (most, least)}
    return {
        name: _compared(board, ours[first], theirs[second], both).difference for name, (first, second) in pairs.items()
    } | {"missing_left_out": result.difference}


def _dataset(board: Board, example: str) -> str:
    known = board.examples.get(example)
    return normal(known.source) if known else ""


def differences_section(
    board: Board, differences: Sequence[SystemDifference], figures: Sequence[Figure]
) -> Section | None:
    """Tables of paired differences, one for each judge; None where no two systems share a judge and examples."""
    if not differences:
        return None
    judges = dict.fromkeys(one.judge for one in differences)
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
        blocks=(
            *figures,
            *(_table(judge, [one for one in differences if one.judge == judge]) for judge in judges),
            *readings_table(
                "Paired differences, points of accuracy",
                (
                    (f"{one.first} − {one.second}, {split_name(one.split)}, {one.judge}", one.readings)
                    for one in differences
                ),
                signed=True,
            ),
        ),
    )


def _table(judge: str, differences: Sequence[SystemDifference]) -> Table:
    corrected = adjusted([one.result.p_value for one in differences])
    split = ("split",) if any(one.split for one in differences) else ()
    names = ("difference", "p", "p, Holm", "effect d", "better", "equal", "worse", "examples", "left out")
    return Table(
        caption=f"Paired differences · judge: {judge}",
        first="first against second",
        headings=headings(*split, *names),
        rows=tuple(_row(one, p_value, bool(split)) for one, p_value in zip(differences, corrected, strict=True)),
        about="points of accuracy, 95% interval below",
        notes=("Left out: examples that the judge scored for one of the two only.",),
    )


def _row(one: SystemDifference, corrected: float, split: bool) -> Row:
    result = one.result
    return row(
        f"{one.first} − {one.second}",
        *((split_name(one.split),) if split else ()),
        Cell(result.difference, signed=True),
        *(Cell(value, P_DIGITS, least=P_LEAST) for value in (result.p_value, corrected)),
        Cell(result.effect, 2),
        *(Cell(share, 0, percent=True) for share in (result.better, result.equal, result.worse)),
        one.examples,
        one.left_out,
    )
