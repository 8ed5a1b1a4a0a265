"""The proxy judge: the six criteria from embeddings, without a language model. It is not the paper's judge.

Steps are compared by `likeness`. An assignment pairs the plan's n steps with the m of the reference; a_i is the
likeness of step i with its partner j(i), 0 without one. Each criterion is a share x, and its score the nearest integer
to 5 x:

    semantic      2 sum a_i / (n + m)                          the steps, in whatever order
    temporal      2 sum over an ordered pairing / (n + m)      the steps in the reference's order, nothing put in
    logical       2 sum a_i q_i / (n + m)                      q_i: share of what precedes j(i) that comes before i
    continuation  fresh * start                                fresh: 1 - sum c_i / min(n, m), at least 0
                                                               start: max of likeness(i, j) (1 - i/m) (1 - j/m), i < m
    clarity       brief * min(1, m / n) * min(1, distinct)     brief: mean of min(1, longest known step / words of i)
                                                               distinct: share of distinct steps over the reference's
    spatial       mean of max(words, likeness)                 words: share of content words that are known;
                                                               likeness: to the nearest known step

c_i is the likeness of step i to the nearest step of the history, where no step of the reference is as near, else 0.
Known is what the goal, the history and the reference say. Two rules come first (paper, appendix on the evaluation
protocol): a plan without a word is 0 on all six; one of whose words more than a quarter are excess, those beyond the
longest known step and those of steps that are foreign to it all, gets at most 2 for semantic alignment and clarity.

It is deterministic, reads no instruction, and judges a plan the same whatever else is judged with it. It knows only one
right continuation, so a valid plan in another order is marked down: `docs/results/judge.md` says by how much.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from recipe.artifacts import fingerprint, to_json
from recipe.config.models import MOST_SHOWN, JudgeConfig
from recipe.evaluation.judge.llm import by_rule
from recipe.evaluation.judge.measures import RubricMeasure
from recipe.evaluation.judge.plans import Case, actionable
from recipe.evaluation.judge.verdicts import HIGHEST, Judgement
from recipe.evaluation.matching import PERCENTILE, Embed, Likeness, calibrate, ordered_likeness
from recipe.evaluation.scores import JudgeIdentity
from recipe.progress import SILENT, Progress
from recipe.types import Example, Unscored, Verdict

EXCESS = 0.25
"""Share of a plan's words that may be excess before the fluff rule caps it."""
FLUFF_CAP = 2
HALF = 0.5
"""A step that is like nothing known is foreign where fewer of its content words are known."""
VERSION = 1
"""Of the formulas: another one is another judge."""
# Texts embedded in one call, about.
_AT_ONCE = 8_192
_WORD = re.compile(r"[^\W\d_]+")
_FUNCTION_WORDS = (
    "a an and any are as at be been before after by for from has have if in into is it its of off on onto or out over "
    "some so than that the their them then there these they this to until up using with you your"
)
_NO_CONTENT = frozenset(_FUNCTION_WORDS.split())
_ENDINGS = ("ing", "es", "ed", "s", "e")


class ProxyJudge:
    """A judge by embeddings; its name says so."""

    def __init__(
        self, embed: Embed, encoder: str = "minilm", history: Literal["annotated", "perceived"] = "annotated"
    ) -> None:
        """`encoder` is part of the judge's name. Raises ComputeError for an encoder that tells no steps apart."""
        self._embed, self.calibration = embed, calibrate(embed)
        settings = {
            "encoder": encoder,
            "chance": f"{self.calibration.chance:.3f}",
            "same": f"{self.calibration.same:.3f}",
        }
        self._limits = JudgeConfig(history=history)
        computed = {"version": VERSION, "percentile": PERCENTILE, "excess": EXCESS, **MOST_SHOWN, **settings}
        shown = settings | {"history": history}
        self.identity = JudgeIdentity(f"proxy ({encoder})", "proxy", encoder, fingerprint(computed), shown)

    def judge(self, cases: Sequence[Case], progress: Progress = SILENT) -> list[Judgement]:
        """One judgement of each case, in order."""
        judged: list[Judgement] = []
        batch, texts = list[Case](), list[str]()
        with progress.task("judging by embeddings", total=len(cases)) as advance:
            for number, case in enumerate(cases, start=1):
                batch.append(case.bounded(self._limits))
                texts += (*_known(batch[-1].example), *batch[-1].steps)
                if len(texts) < _AT_ONCE and number < len(cases):
                    continue
                likeness = Likeness(self._embed, self.calibration, texts)
                for shown in batch:
                    if not actionable(shown.steps):
                        judged.append(by_rule(shown, self.identity.name))
                        continue
                    outcome: Verdict | Unscored = Unscored("the example has no continuation to compare with")
                    if shown.example.continuation:
                        outcome = verdict_of(shown, likeness)
                    judged.append(
                        Judgement(
                            example_id=shown.example.example_id,
                            outcome=outcome,
                            sample=shown.sample,
                            control=shown.control,
                            judge=self.identity.name,
                            how="proxy",
                            steps=shown.steps,
                            flags=shown.flags,
                        )
                    )
                advance(len(batch))
                batch, texts = [], []
        return judged


def verdict_of(case: Case, likeness: Likeness) -> Verdict:
    """The six scores of a plan with words; `likeness` holds its texts and the example's.

    The symbols in comments are those of the module's docstring.
    """
    example, steps, reference = case.example, case.steps, case.example.continuation
    # n and m; steps of a long plan that are not shown count as steps that are like nothing.
    lines, wanted = len(steps) + case.left_out, len(reference)
    known = _known(example)
    between = likeness.between(steps, reference)  # [n, m]

    # a_i and j(i): each step's likeness to its partner in the reference, and the partner, -1 without one.
    matched, partner = np.zeros(len(steps)), np.full(len(steps), -1)
    for pair in likeness.pairs(steps, reference):
        matched[pair.first], partner[pair.first] = pair.likeness, pair.second

    # q_i: how much of what precedes the partner has been said before the step.
    said, supported = np.zeros(wanted), 0.0
    for alike, index in zip(matched, partner, strict=True):
        if index >= 0:
            supported += alike * (said[:index].mean() if index else 1.0)
            said[index] = alike

    # c_i: likeness to the history where no step of the reference is as near.
    done = likeness.cosines(steps, example.history).max(axis=1, initial=-1.0)
    copied = np.where(done > likeness.cosines(steps, reference).max(axis=1), likeness.scale.likeness(done), 0.0)
    fresh = max(0.0, 1 - copied.sum() / min(lines, wanted))
    late = np.minimum(1.0, np.arange(len(steps)) / wanted)
    # (1 - i/m) (1 - j/m), which is 0 from i = m on.
    early = np.outer(1 - late, 1 - np.arange(wanted) / wanted)

    # What is known of each step: its content words, or the step itself as another says it.
    words = {word for text in known for word in _content(text)}
    content = [_content(step) for step in steps]
    shares = np.array([sum(word in words for word in own) / len(own) if own else 0.0 for own in content])
    nearest = likeness.between(steps, known).max(axis=1)
    foreign = (nearest == 0) & (shares < HALF)

    # Words beyond the longest known step, and all words of a foreign step, are excess.
    lengths = np.array([max(1, len(step.split())) for step in steps], dtype=np.float64)
    # Text without spaces counts as one word, on either side.
    allowed = max(max(1, len(step.split())) for step in (*reference, *example.history))
    beyond = np.maximum(0.0, lengths - allowed)
    excess = float(np.where(foreign, lengths, beyond).sum() / lengths.sum())
    brief = sum(min(1.0, allowed / length) for length in lengths.tolist()) / lines
    distinct, distinct_reference = (
        len({" ".join(step.casefold().split()) for step in texts}) / len(texts) for texts in (steps, reference)
    )

    shares_of = {
        "logical_progression": float(2 * supported / (lines + wanted)),
        "temporal_alignment": 2 * ordered_likeness(between) / (lines + wanted),
        "spatial_grounding": float(np.maximum(nearest, shares).sum()) / lines,
        "continuation": float(fresh * (between * early).max(initial=0.0)),
        "clarity": brief * min(1.0, wanted / lines) * min(1.0, distinct / distinct_reference),
        "semantic_alignment": 2 * float(matched.sum()) / (lines + wanted),
    }
    # The nearest integer to five times the share, halves upwards.
    scores = {name: min(HIGHEST, math.floor(HIGHEST * share + 0.5 + 1e-9)) for name, share in shares_of.items()}
    if excess > EXCESS:
        scores |= {name: min(FLUFF_CAP, scores[name]) for name in ("clarity", "semantic_alignment")}
    return Verdict(**scores)


def _known(example: Example) -> tuple[str, ...]:
    """The goal, then the steps of the reference and of the history."""
    return (example.goal, *example.continuation, *example.history)


def _content(text: str) -> list[str]:
    """Content words in order, without their endings."""
    stems = []
    for word in _WORD.findall(text.casefold()):
        if word not in _NO_CONTENT:
            endings = (end for end in _ENDINGS if word.endswith(end) and len(word) - len(end) >= 3)
            stems.append(word.removesuffix(next(endings, "")))
    return stems


class ProxyMeasure(RubricMeasure):
    """Accuracy by embeddings, for boards and validation; its scores are those of a judge."""

    title = "proxy judge"

    @classmethod
    def open(cls, settings: Any, embed: Callable[[], Any], model: Any = None) -> "ProxyMeasure":
        judge = ProxyJudge(embed(), settings.encoder)
        opened = cls(judge.identity, judge)
        opened.identity = to_json(judge.identity)
        return opened
