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
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from statistics import fmean
from typing import Any, Literal, NamedTuple

from recipe.artifacts import to_json
from recipe.errors import ComputeError
from recipe.evaluation.diversity.judges import DiversityJudge, Question
from recipe.evaluation.diversity.plans import LEVELS, PromptSamples, hashed
from recipe.evaluation.measures import Measure, Values
from recipe.evaluation.metrics import regime_colours
from recipe.evaluation.published import DIVERSITY_JUDGE, published
from recipe.evaluation.scores import JudgeIdentity, PlanId, Row, Scores
from recipe.progress import SILENT, Progress
from recipe.report.elements import NONE, Cell, Figure, Section, Table, headings, row
from recipe.stats import Interval
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

    def row(self) -> Row:
        """The row of the pair, by the number of its first sample."""
        known = {name: value for name, value in asdict(self).items() if name not in ("example_id", "first", "score")}
        # Not by equality: a level of 0 equals False.
        details = {name: value for name, value in known.items() if not (value is None or value is False or value == "")}
        metrics = {} if self.score is None else {"diversity": self.score}
        unscored = "" if metrics else self.unscored or "no answer"
        return Row(self.example_id, metrics, self.first, unscored=unscored, details=details)


class _DrawnQuestion(NamedTuple):
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
    ratings = iter(judge.compare(questions(prompts, order_check, seed), progress))
    drawn = [_draw_questions(prompt, order_check, seed) for prompt in prompts]
    one_way = [{keys: next(ratings) for keys in of_prompt} for of_prompt in drawn]
    other_way = [{keys: next(ratings) for keys, question in own.items() if question.both_ways} for own in drawn]
    pairs: list[PlanPair] = []
    for prompt, drawn_questions, answers, turned in zip(prompts, drawn, one_way, other_way, strict=True):
        keys = prompt.keys
        for i, j in combinations(range(len(keys)), 2):
            example_id, numbers = prompt.example.example_id, (prompt.samples[i], prompt.samples[j])
            both = frozenset((keys[i], keys[j]))
            if both not in drawn_questions:
                pairs.append(PlanPair(example_id, *numbers, 0.0, BY_RULE))
                continue
            answer, other = answers[both], turned.get(both)
            levels = [answer.level] if order_check < 1 or other is None else [answer.level, other.level]
            read = [level for level in levels if level is not None]
            pairs.append(
                PlanPair(
                    example_id,
                    *numbers,
                    score=fmean(read) if read else None,
                    how=answer.how or (other.how if other is not None and read else ""),
                    level=answer.level,
                    other_way=None if other is None else other.level,
                    swapped=drawn_questions[both].leading == keys[j],
                    unscored="" if read else answer.reason,
                    text=answer.text,
                )
            )
    return pairs


def questions(prompts: Sequence[PromptSamples], order_check: float = 0.1, seed: int = 0) -> list[Question]:
    """All questions that `compare_plans` asks: as they are drawn, then those that are asked the other way round too."""
    drawn = [question for prompt in prompts for question in _draw_questions(prompt, order_check, seed).values()]
    turned = [one_way.question.turned() for one_way in drawn if one_way.both_ways]
    return [one_way.question for one_way in drawn] + turned


def _draw_questions(prompt: PromptSamples, order_check: float, seed: int) -> dict[frozenset[_Key], _DrawnQuestion]:
    """The questions about a prompt, by the words of the two plans."""
    shown: dict[_Key, tuple[str, ...]] = {}
    for key, plan in zip(prompt.keys, prompt.plans, strict=True):
        # Repeated steps are collapsed before the comparison (paper, same appendix).
        # Of several wordings of one plan the first in order, so that the question does not depend on the samples.
        shown[key] = min(shown.get(key, plan), plan)
    drawn = {}
    for keys in combinations(sorted(key for key in shown if key), 2):
        code = hashed(seed, prompt.example.example_id, keys)
        leading, following = keys if int(code[0], 16) % 2 else keys[::-1]
        # 52 bits, so that the share is exact; a larger share checks all that a smaller one does.
        both_ways = int(code[1:14], 16) / 16**13 < order_check
        question = Question(prompt.example, shown[leading], shown[following])
        drawn[frozenset(keys)] = _DrawnQuestion(question, leading, both_ways)
    return drawn


def prompt_diversity(pairs: Iterable[PlanPair], missing: Literal[0, 1] | None = None) -> dict[str, float]:
    """D(x) of each prompt by example id.

    An answer that is missing counts as `missing`; without that, a prompt of whose questions none was answered is left
    out.
    """
    values = DiversityMeasure.plan_values((pair.row() for pair in pairs), missing)
    return {plan.example_id: metrics["diversity"] for plan, metrics in values.items()}


class DiversityMeasure(Measure):
    """How different the plans are that a system writes for one prompt: a row for each pair of samples."""

    name = "diversity"
    title = "procedural diversity"
    about = (
        "The mean over prompts of the mean over pairs of samples of how different two plans are as procedures, "
        "from 0 (the same) to 1; a plan that does not serve the goal earns nothing by being different."
    )
    main = "diversity"
    digits = 3
    scale = (0.0, 1.0)
    cluster = "goal"
    bounds = {"diversity": (0.0, 1.0)}  # noqa: RUF012
    of_examples = False

    def __init__(self, identity: JudgeIdentity, samples: int) -> None:
        """`samples` of each prompt are compared."""
        super().__init__()
        self.identity = {"judge": to_json(identity), "samples": samples}

    @classmethod
    def cluster_of(cls, example: Example) -> str:
        return f"{example.source}/{example.goal}"

    @classmethod
    def plan_values(cls, rows: Iterable[Row], missing: Literal[0, 1] | None = None) -> Values:
        """D(x) of each prompt, as the value of its first sample."""
        by_prompt: dict[str, list[Row]] = {}
        for measured in rows:
            by_prompt.setdefault(measured.example_id, []).append(measured)
        values = {}
        for name, own in by_prompt.items():
            judged = [pair for pair in own if pair.details.get("how") != BY_RULE]
            scores = [missing if pair.unscored else pair.metrics[cls.main] for pair in judged]
            answered = [score for score in scores if score is not None]
            if answered or not judged:
                # D(x) = 2 / (N (N - 1)) * sum over i < j of d(i, j) (paper, appendix on procedural diversity).
                # Those decided in code are all 0; one without an answer counts as the mean of the others.
                share = len(judged) / len(own) * fmean(answered) if answered else 0.0
                values[PlanId(name, 0)] = {cls.main: share}
        return values

    def extras(self, rows: Sequence[Row], seed: int) -> dict[str, Any]:
        """Pairs, those at each of the five levels, and those that got another level when shown the other way round."""
        if not self.plan_values(rows):
            reason = next((row.unscored for row in rows if row.unscored), "there are none")
            raise ComputeError(f"no prompt has a pair that was answered: {reason}.")
        checked = [row.details for row in rows if {"level", "other_way"} <= row.details.keys()]
        counted = Counter(row.metrics[self.main] for row in rows if not row.unscored)
        return {
            "samples": self.identity["samples"],
            "pairs": len(rows),
            "unscored_pairs": sum(bool(row.unscored) for row in rows),
            "levels": {f"{level:g}": counted[level] for level in sorted({*LEVELS, *counted})},
            "order_pairs": len(checked),
            "order_disagreements": sum(details["level"] != details["other_way"] for details in checked),
        }

    @classmethod
    def sections(cls, scores: Sequence[Scores], every: Sequence[Scores]) -> list[Section]:
        """Adds diversity against accuracy, with the paper's three points, and the pairs at each level."""
        # The report's own libraries, which no other command needs.
        from recipe.evaluation.scoreboard.accuracy import (  # noqa: PLC0415
            accuracy_by_system,
            comparability,
            judge_results,
            published_table,
        )
        from recipe.report.plots import Point, inline_svg, scatter  # noqa: PLC0415

        [section] = super().sections(scores, every)
        judges = {scored.judge.name: scored.judge for scored in scores if scored.judge}
        columns = ("judge", "samples", "pairs", "unscored", "order checked", "order changed it")
        levels = sorted({level for scored in scores for level in scored.extras["levels"]}, key=float)
        rows = []
        for scored in scores:
            counts, extras = scored.extras["levels"], scored.extras
            total, judge = sum(counts.values()), scored.judge.name if scored.judge else NONE
            changed = (
                f"{extras['order_disagreements']:,} of {extras['order_pairs']:,}" if extras["order_pairs"] else NONE
            )
            numbers = (extras["samples"], extras["pairs"], extras["unscored_pairs"], extras["order_pairs"], changed)
            shares = (Cell(counts.get(level, 0) / total if total else None, 0, percent=True) for level in levels)
            rows.append(row(scored.system, judge, *numbers, *shares))
        pairs = Table(
            caption="Pairs, and their shares at each level",
            first="system",
            headings=headings(*columns, *levels),
            rows=tuple(rows),
            about="share of scored pairs",
        )
        table = published_table(published("diversity"), "Published diversity and accuracy on COIN")
        # The judge of accuracy is the one of most of the systems; on COIN, where it is known, as in the paper.
        names, figures = {scored.system for scored in scores}, list[Figure]()
        known = [(results.name, accuracy_by_system(results, "coin")) for results in judge_results(every)]
        judge_name, accuracy = max(
            known, key=lambda pair: len(names & pair[1].keys()), default=("", dict[str, float]())
        )
        if names & accuracy.keys():
            points = []
            for line in published("diversity").rows:
                x, y = line.values[:2]
                if x is not None and y is not None:
                    points.append(Point(f"{line.name}, published", Interval(x), Interval(y), hollow=True))
            points += [
                Point(scored.system, scored.overall.values["diversity"], Interval(accuracy[scored.system]))
                for scored in scores
                if scored.system in accuracy
            ]
            drawn = scatter(
                points,
                colours=regime_colours(scored.system for scored in every),
                xlabel="procedural diversity",
                ylabel="accuracy, percent",
                xlim=(0, 1),
                ylim=(0, 100),
            )
            caption = (
                f"Diversity, with its 95% interval, against accuracy by {judge_name}. Diamonds: the paper's three "
                "points on COIN, published, by other judges of both: not comparable in either direction."
            )
            figures = [Figure(inline_svg(drawn, "diversity-accuracy", caption), caption)]
        blocks = (*section.blocks, *figures, pairs, table)
        warnings = tuple(comparability(judge, DIVERSITY_JUDGE) for judge in judges.values())
        return [replace(section, blocks=blocks, warnings=warnings)]
