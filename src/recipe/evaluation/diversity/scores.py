"""Procedural diversity of a system: pairs of plans compared by a judge, their means, and the pairs as JSON lines.

Equal questions are one question: plans that are the same but for case, punctuation and repeated steps are shown as one,
and each two different ones of a prompt are asked about once, whatever samples they are. Which of the two is shown first
is drawn by a hash of their words, so that a judge that favours a place favours no sample. Some questions, drawn by a
hash too, are also asked the other way round: how often the answer changes tells how far the judge can be trusted.

Two cases are decided in code: plans that are the same differ by 0, and so does a plan without words from any other,
because a degenerate plan must not be paid for.

A pair without an answer counts as the mean of the prompt's pairs that the judge answered, and not as those decided in
code, which are all 0; a prompt with none is in no mean. Then the mean is over prompts. The interval draws whole goals,
because prompts of one goal are alike. Where answers are missing, the mean is also given with each as 0 and as 1.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from recipe.artifacts import JsonObject, only_fields, optional_field, read_jsonl, text_field, write_jsonl
from recipe.errors import ComputeError, InputError
from recipe.evaluation.diversity.judges import DiversityJudge, DiversityRating, Question
from recipe.evaluation.diversity.plans import LEVELS, PromptSamples, hashed, plan_key
from recipe.evaluation.scores import READINGS, DiversityScores, JudgeIdentity
from recipe.progress import SILENT, Progress
from recipe.stats import Interval, mean_interval
from recipe.types import Example

BY_RULE = "rule"
"""`PlanPair.how` of a pair that is decided in code: its score is 0."""
_Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanPair:
    """Two samples of a prompt and how different they are."""

    example_id: str
    first: int
    """The smaller number of the two samples."""
    second: int
    score: float | None
    """None where there is no answer; the mean of both orders where all questions are asked both ways."""
    how: str = ""
    """`json`, `regex`, `proxy`, or `rule` for what is decided in code."""
    level: float | None = None
    """The answer to the question as it was drawn."""
    other_way: float | None = None
    """The answer with the plans shown the other way round; None where it was not asked for or cannot be read."""
    swapped: bool = False
    """Whether the second sample was shown first."""
    unscored: str = ""
    """Why there is no answer."""
    text: str = ""
    """The judge's raw answer."""


_FIELDS = tuple(field.name for field in fields(PlanPair))


class _Question(NamedTuple):
    """A question about two plans and how it is asked."""

    question: Question
    leading: _Key
    """Key of the plan that is shown first."""
    both_ways: bool


def compare_plans(
    judge: DiversityJudge,
    prompts: Sequence[PromptSamples],
    order_check: float = 0.1,
    seed: int = 0,
    progress: Progress = SILENT,
) -> list[PlanPair]:
    """Every pair of every prompt, in order; `order_check` is the share of questions that are asked both ways.

    With a share of 1 the score of a pair is the mean of both answers, or the one that can be read. With less it is the
    first answer: a pair counts the same whether it was checked or not.
    """
    questions = [_questions(prompt, order_check, seed) for prompt in prompts]
    one_way, other_way = _in_order(questions)
    compared = judge.compare([*one_way, *other_way], progress)
    first, others = iter(compared[: len(one_way)]), iter(compared[len(one_way) :])
    pairs: list[PlanPair] = []
    for prompt, drawn in zip(prompts, questions, strict=True):
        answers = {keys: (next(first), next(others) if one.both_ways else None) for keys, one in drawn.items()}
        pairs += _pairs(prompt, drawn, answers, averaged=order_check >= 1)
    return pairs


def questions(prompts: Sequence[PromptSamples], order_check: float = 0.1, seed: int = 0) -> list[Question]:
    """All questions that `compare_plans` asks a judge."""
    one_way, other_way = _in_order([_questions(prompt, order_check, seed) for prompt in prompts])
    return one_way + other_way


def _in_order(questions: Sequence[dict[frozenset[_Key], _Question]]) -> tuple[list[Question], list[Question]]:
    """The questions as they are drawn, then those that are asked the other way round, too."""
    drawn = [one for of_prompt in questions for one in of_prompt.values()]
    checked = [one.question for one in drawn if one.both_ways]
    turned = [question._replace(first=question.second, second=question.first) for question in checked]
    return [one.question for one in drawn], turned


def _questions(prompt: PromptSamples, order_check: float, seed: int) -> dict[frozenset[_Key], _Question]:
    """The questions about a prompt, by the words of the two plans."""
    shown: dict[_Key, tuple[str, ...]] = {}
    for plan in prompt.plans:
        key = plan_key(plan)
        shown[key] = min(shown.get(key, plan), plan)
    worded = sorted(key for key in shown if key)
    return {frozenset(keys): _question(prompt, shown, keys, order_check, seed) for keys in combinations(worded, 2)}


def _question(
    prompt: PromptSamples, shown: dict[_Key, tuple[str, ...]], keys: tuple[_Key, _Key], order_check: float, seed: int
) -> _Question:
    drawn = hashed(seed, prompt.example.example_id, keys)
    leading, following = keys if int(drawn[0], 16) % 2 else keys[::-1]
    # 52 bits, so that the share is exact; a larger share checks all that a smaller one does.
    both_ways = int(drawn[1:14], 16) / 16**13 < order_check
    return _Question(Question(prompt.example, shown[leading], shown[following]), leading, both_ways)


def _pairs(
    prompt: PromptSamples,
    drawn: dict[frozenset[_Key], _Question],
    answers: dict[frozenset[_Key], tuple[DiversityRating, DiversityRating | None]],
    averaged: bool,
) -> list[PlanPair]:
    example_id, keys = prompt.example.example_id, [plan_key(plan) for plan in prompt.plans]
    pairs = []
    for i, j in combinations(range(len(keys)), 2):
        numbers = (prompt.samples[i], prompt.samples[j])
        both = frozenset((keys[i], keys[j]))
        if both not in drawn:
            pairs.append(PlanPair(example_id, *numbers, 0.0, BY_RULE))
            continue
        one, other = answers[both]
        levels = [one.level] if not averaged or other is None else [one.level, other.level]
        read = [level for level in levels if level is not None]
        pairs.append(
            PlanPair(
                example_id,
                *numbers,
                score=fmean(read) if read else None,
                how=one.how or (other.how if other is not None and read else ""),
                level=one.level,
                other_way=None if other is None else other.level,
                swapped=drawn[both].leading == keys[j],
                unscored="" if read else one.reason,
                text=one.text,
            )
        )
    return pairs


def prompt_diversity(pairs: Iterable[PlanPair], missing: float | None = None) -> dict[str, float]:
    """D(x) of each prompt by example id.

    An answer that is missing counts as `missing`; without that, a prompt of whose questions none was answered is left
    out.
    """
    by_prompt: dict[str, list[PlanPair]] = {}
    for pair in pairs:
        by_prompt.setdefault(pair.example_id, []).append(pair)
    found = {example_id: _mean(of_prompt, missing) for example_id, of_prompt in by_prompt.items()}
    return {example_id: value for example_id, value in found.items() if value is not None}


def _mean(pairs: Sequence[PlanPair], missing: float | None) -> float | None:
    """D of one prompt; None where it has questions and no answer."""
    judged = [pair for pair in pairs if pair.how != BY_RULE]
    scores = [missing if pair.score is None else pair.score for pair in judged]
    answered = [score for score in scores if score is not None]
    if not judged:
        return 0.0
    return len(judged) / len(pairs) * fmean(answered) if answered else None


def summarise_diversity(
    system: str,
    judge: JudgeIdentity,
    examples: Sequence[Example],
    pairs: Sequence[PlanPair],
    samples: int,
    seed: int = 0,
    ledger: Mapping[str, float | None] | None = None,
) -> DiversityScores:
    """The mean of D over prompts with its interval. Raises ComputeError where no pair is scored."""
    goals = {example.example_id: f"{example.source}/{example.goal}" for example in examples}
    read = {name: prompt_diversity(pairs, missing) for name, missing in zip(READINGS, (0.0, None, 1.0), strict=True)}
    found = read["missing_left_out"]
    if not found:
        raise ComputeError(f"no prompt has a pair that was answered: {_first_reason(pairs)}")
    checked = [pair for pair in pairs if pair.level is not None and pair.other_way is not None]
    counted = Counter(pair.score for pair in pairs if pair.score is not None)
    unscored = sum(pair.score is None for pair in pairs)

    def interval(values: Mapping[str, float]) -> Interval:
        return mean_interval(list(values.values()), [goals[example_id] for example_id in values], seed)

    return DiversityScores(
        system=system,
        judge=judge,
        diversity=interval(found),
        prompts=len(found),
        samples=samples,
        pairs=len(pairs),
        unscored=unscored,
        levels={f"{level:g}": counted[level] for level in sorted({*LEVELS, *counted})},
        order_pairs=len(checked),
        order_disagreements=sum(pair.level != pair.other_way for pair in checked),
        ledger=dict(ledger or {}),
        readings={name: interval(values) for name, values in read.items()} if unscored else {},
    )


def write_pairs(path: Path, pairs: Iterable[PlanPair]) -> int:
    """Write pairs as JSON lines, all or nothing; returns their number."""
    return write_jsonl(path, map(_row, pairs))


def read_pairs(path: Path) -> list[PlanPair]:
    """The pairs of a file, in file order. Raises InputError with file, line and field for a row that is no pair."""
    pairs = []
    for line, row in read_jsonl(path):
        only_fields(path, line, row, _FIELDS)
        pairs.append(
            PlanPair(
                example_id=text_field(path, line, row, "example_id"),
                first=_sample(path, line, row, "first"),
                second=_sample(path, line, row, "second"),
                score=_level(path, line, row, "score"),
                how=optional_field(path, line, row, "how", ""),
                level=_level(path, line, row, "level"),
                other_way=_level(path, line, row, "other_way"),
                swapped=row.get("swapped") is True,
                unscored=optional_field(path, line, row, "unscored", ""),
                text=optional_field(path, line, row, "text", ""),
            )
        )
    return pairs


def _row(pair: PlanPair) -> JsonObject:
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


def _first_reason(pairs: Sequence[PlanPair]) -> str:
    return next((pair.unscored for pair in pairs if pair.unscored), "there are none") + "."
