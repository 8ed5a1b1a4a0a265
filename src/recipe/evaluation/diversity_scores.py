"""From compared pairs to a system's diversity, and the pairs as JSON lines beside it.

A pair without an answer counts as the mean of the prompt's pairs that the judge answered, and not as those decided in
code, which are all 0; a prompt with none is in no mean. Then the mean is over prompts. The interval draws whole goals,
because prompts of one goal are alike.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from statistics import fmean

from recipe.artifacts import JsonObject, only_fields, read_jsonl, text_field, write_jsonl
from recipe.errors import ComputeError, InputError
from recipe.evaluation.diversity import LEVELS
from recipe.evaluation.diversity_pairs import BY_RULE, ComparedPair
from recipe.evaluation.scores import DiversityScores, JudgeIdentity
from recipe.evaluation.statistics import mean_interval
from recipe.types import Example

_FIELDS = tuple(field.name for field in fields(ComparedPair))


def prompt_diversity(pairs: Iterable[ComparedPair]) -> dict[str, float]:
    """D(x) of each prompt by example id; those of whose questions none was answered are left out."""
    by_prompt: dict[str, list[ComparedPair]] = {}
    for pair in pairs:
        by_prompt.setdefault(pair.example_id, []).append(pair)
    found = {example_id: _mean(of_prompt) for example_id, of_prompt in by_prompt.items()}
    return {example_id: value for example_id, value in found.items() if value is not None}


def _mean(pairs: Sequence[ComparedPair]) -> float | None:
    """D of one prompt, None where it was asked about and nothing was answered."""
    asked = [pair for pair in pairs if pair.how != BY_RULE]
    answered = [pair.score for pair in asked if pair.score is not None]
    if not asked:
        return 0.0
    return len(asked) / len(pairs) * fmean(answered) if answered else None


def summarise_diversity(
    system: str,
    judge: JudgeIdentity,
    examples: Sequence[Example],
    pairs: Sequence[ComparedPair],
    samples: int,
    seed: int = 0,
    ledger: Mapping[str, float | None] | None = None,
) -> DiversityScores:
    """The mean of D over prompts with its interval. Raises ComputeError where no pair is scored."""
    goals = {example.example_id: f"{example.source}/{example.goal}" for example in examples}
    found = prompt_diversity(pairs)
    if not found:
        raise ComputeError(f"no prompt has a pair that was answered: {_first_reason(pairs)}")
    checked = [pair for pair in pairs if pair.level is not None and pair.other_way is not None]
    counted = Counter(pair.score for pair in pairs if pair.score is not None)
    return DiversityScores(
        system=system,
        judge=judge,
        diversity=mean_interval(list(found.values()), [goals[example_id] for example_id in found], seed),
        prompts=len(found),
        samples=samples,
        pairs=len(pairs),
        unscored=sum(pair.score is None for pair in pairs),
        levels={f"{level:g}": counted[level] for level in sorted({*LEVELS, *counted})},
        order_pairs=len(checked),
        order_disagreements=sum(pair.level != pair.other_way for pair in checked),
        ledger=dict(ledger or {}),
    )


def write_pairs(path: Path, pairs: Iterable[ComparedPair]) -> int:
    """Write pairs as JSON lines, all or nothing; returns their number."""
    return write_jsonl(path, map(_row, pairs))


def read_pairs(path: Path) -> list[ComparedPair]:
    """The pairs of a file, in file order. Raises InputError with file, line and field for a row that is no pair."""
    pairs = []
    for line, row in read_jsonl(path):
        only_fields(path, line, row, _FIELDS)
        pairs.append(
            ComparedPair(
                example_id=text_field(path, line, row, "example_id"),
                first=_sample(path, line, row, "first"),
                second=_sample(path, line, row, "second"),
                score=_level(path, line, row, "score"),
                how=_text(path, line, row, "how"),
                level=_level(path, line, row, "level"),
                other_way=_level(path, line, row, "other_way"),
                swapped=row.get("swapped") is True,
                unscored=_text(path, line, row, "unscored"),
                text=_text(path, line, row, "text"),
            )
        )
    return pairs


def _row(pair: ComparedPair) -> JsonObject:
    needed = ("example_id", "first", "second", "score")
    # Not by equality: a level of 0 equals False.
    absent = [name for name, value in asdict(pair).items() if value is None or value is False or value == ""]
    return {name: value for name, value in asdict(pair).items() if name in needed or name not in absent}


def _sample(path: Path, line: int, row: JsonObject, field: str) -> int:
    value = row.get(field)
    if type(value) is not int or value < 0:
        problem = f"{value!r} is no number of a sample"
        raise InputError.at(path, problem, "give a whole number from 0", line=line, field=field)
    return value


def _level(path: Path, line: int, row: JsonObject, field: str) -> float | None:
    value = row.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InputError.at(path, f"{value!r} is no level", "give a number from 0 to 1", line=line, field=field)
    return float(value)


def _text(path: Path, line: int, row: JsonObject, field: str) -> str:
    value = row.get(field, "")
    if not isinstance(value, str):
        raise InputError.at(path, f"{value!r} is no text", "give a string, or leave it out", line=line, field=field)
    return value


def _first_reason(pairs: Sequence[ComparedPair]) -> str:
    return next((pair.unscored for pair in pairs if pair.unscored), "there are none") + "."
