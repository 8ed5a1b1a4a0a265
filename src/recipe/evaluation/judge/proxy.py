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

It is deterministic, reads no instruction, and judges a plan the same whatever else is judged beside it. It knows of one
right continuation only, so a valid plan in another order is marked down: `docs/proxy.md` says by how much.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.artifacts import fingerprint
from recipe.config import JudgeConfig
from recipe.evaluation.judge.llm import by_rule, fatal
from recipe.evaluation.judge.plans import Case, bounded
from recipe.evaluation.judge.verdicts import HIGHEST, Judgement
from recipe.evaluation.matching import PERCENTILE, Embed, Likeness, calibrate, ordered_likeness
from recipe.evaluation.scores import JudgeIdentity
from recipe.progress import SILENT, Progress
from recipe.types import Example, Unscored, Verdict

Array = NDArray[np.float64]

EXCESS = 0.25
"""Share of a plan's words that may be excess before the fluff rule caps it."""
FLUFF_CAP = 2
HALF = 0.5
"""A step that is like nothing known is foreign where fewer of its content words are known."""
VERSION = 1
"""Of the formulas: another one is another judge."""
_AT_ONCE = 8_192
"""Texts embedded in one call, about."""
_WORD = re.compile(r"[^\W\d_]+")
_FUNCTION_WORDS = (
    "a an and any are as at be been before after by for from has have if in into is it its of off on onto or out over "
    "some so than that the their them then there these they this to until up using with you your"
)
_NO_CONTENT = frozenset(_FUNCTION_WORDS.split())
_ENDINGS = ("ing", "es", "ed", "s", "e")


class _Features(NamedTuple):
    """A plan compared with its example."""

    lines: int
    """n; steps of a long plan that are not shown count as steps that are like nothing."""
    wanted: int
    """m."""
    matched: Array
    """a_i [steps]."""
    partner: NDArray[np.int64]
    """j(i) [steps], -1 without one."""
    likeness: Array
    """[steps, reference]."""
    copied: Array
    """c_i [steps]."""
    grounded: Array
    """Share of the step's content that is known [steps]."""
    foreign: NDArray[np.bool_]
    """Steps like nothing known, by chance at most and in fewer than half of their words [steps]."""

    @property
    def both(self) -> int:
        return self.lines + self.wanted


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
        bounds = {name: getattr(self._limits, name) for name in ("max_steps", "max_step_characters", "max_characters")}
        computed = {"version": VERSION, "percentile": PERCENTILE, "excess": EXCESS, **bounds, **settings}
        shown = settings | {"history": history}
        self.identity = JudgeIdentity(f"proxy ({encoder})", "proxy", encoder, fingerprint(computed), shown)

    def judge(self, cases: Sequence[Case], progress: Progress = SILENT) -> list[Judgement]:
        """One judgement of each case, in order."""
        judged = []
        with progress.task("judging by embeddings", total=len(cases)) as advance:
            for batch in _batches(bounded(case, self._limits) for case in cases):
                texts = [text for case in batch for text in (*_known(case.example), *case.steps)]
                likeness = Likeness(self._embed, self.calibration, texts)
                judged += [self._judged(case, likeness) for case in batch]
                advance(len(batch))
        return judged

    def _judged(self, case: Case, likeness: Likeness) -> Judgement:
        if fatal(case):
            return by_rule(case, self.identity.name)
        outcome = verdict_of(case, likeness) if case.example.continuation else Unscored(_NO_REFERENCE)
        return Judgement(
            example_id=case.example.example_id,
            outcome=outcome,
            sample=case.sample,
            control=case.control,
            judge=self.identity.name,
            how="proxy",
            steps=case.steps,
            flags=case.flags,
        )


_NO_REFERENCE = "the example has no continuation to compare with"


def verdict_of(case: Case, likeness: Likeness) -> Verdict:
    """The six scores of a plan with words; `likeness` holds its texts and the example's."""
    features = _features(case, likeness)
    cap = FLUFF_CAP if _excess(case, features) > EXCESS else HIGHEST
    return Verdict(
        logical_progression=_score(_logical(features)),
        temporal_alignment=_score(2 * ordered_likeness(features.likeness) / features.both),
        spatial_grounding=_score(float(features.grounded.sum()) / features.lines),
        continuation=_score(_continuation(features)),
        clarity=min(cap, _score(_clarity(case, features))),
        semantic_alignment=min(cap, _score(2 * float(features.matched.sum()) / features.both)),
    )


def _score(share: float) -> int:
    """The nearest integer to five times the share, halves upwards."""
    return min(HIGHEST, math.floor(HIGHEST * share + 0.5 + 1e-9))


def _features(case: Case, likeness: Likeness) -> _Features:
    example, steps = case.example, case.steps
    matched, partner = np.zeros(len(steps)), np.full(len(steps), -1)
    for pair in likeness.pairs(steps, example.continuation):
        matched[pair.first], partner[pair.first] = pair.likeness, pair.second
    known = _known(example)
    words = {word for text in known for word in _content(text)}
    done = likeness.cosines(steps, example.history).max(axis=1, initial=-1.0)
    nearest = likeness.between(steps, known).max(axis=1)
    shares = np.array([_share_known(step, words) for step in steps])
    return _Features(
        lines=len(steps) + case.left_out,
        wanted=len(example.continuation),
        matched=matched,
        partner=partner,
        likeness=likeness.between(steps, example.continuation),
        copied=np.where(done > likeness.cosines(steps, example.continuation).max(axis=1), likeness.scaled(done), 0.0),
        grounded=np.maximum(nearest, shares),
        foreign=(nearest == 0) & (shares < HALF),
    )


def _logical(features: _Features) -> float:
    found, supported = np.zeros(features.likeness.shape[1]), 0.0
    for likeness, partner in zip(features.matched, features.partner, strict=True):
        if partner >= 0:
            supported += likeness * (found[:partner].mean() if partner else 1.0)
            found[partner] = likeness
    return float(2 * supported / features.both)


def _continuation(features: _Features) -> float:
    rows, columns = features.likeness.shape
    late = np.minimum(1.0, np.arange(rows) / features.wanted)
    early = np.outer(1 - late, 1 - np.arange(columns) / features.wanted)
    again = features.copied.sum() / min(features.lines, features.wanted)
    return float(max(0.0, 1 - again) * (features.likeness * early).max(initial=0.0))


def _clarity(case: Case, features: _Features) -> float:
    allowed = _longest(case.example)
    brief = sum(min(1.0, allowed / words) for words in map(_words, case.steps)) / features.lines
    repeated = min(1.0, _distinct(case.steps) / _distinct(case.example.continuation))
    return brief * min(1.0, features.wanted / features.lines) * repeated


def _excess(case: Case, features: _Features) -> float:
    """Share of the words that are beyond the longest known step, or of a foreign step."""
    lengths = np.array([_words(step) for step in case.steps], dtype=np.float64)
    beyond = np.maximum(0.0, lengths - _longest(case.example))
    return float(np.where(features.foreign, lengths, beyond).sum() / lengths.sum())


def _known(example: Example) -> tuple[str, ...]:
    """The goal, then the steps of the reference and of the history."""
    return (example.goal, *example.continuation, *example.history)


def _words(step: str) -> int:
    return max(1, len(step.split()))


def _longest(example: Example) -> int:
    """Words of the longest step that is known."""
    return max(_words(step) for step in (*example.continuation, *example.history))


def _distinct(steps: Sequence[str]) -> float:
    """Distinct steps over all, up to case and space."""
    return len({" ".join(step.casefold().split()) for step in steps}) / len(steps)


def _share_known(step: str, known: set[str]) -> float:
    """Share of a step's content words that are known; 0 for a step without any."""
    words = _content(step)
    return sum(word in known for word in words) / len(words) if words else 0.0


def _content(text: str) -> list[str]:
    """Content words in order, without their endings."""
    words = _WORD.findall(text.casefold())
    return [_stem(word) for word in words if word not in _NO_CONTENT]


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


def _batches(cases: Iterable[Case]) -> Iterator[list[Case]]:
    """The cases in order, as many at once as hold about `_AT_ONCE` texts."""
    batch, texts = list[Case](), 0
    for case in cases:
        batch.append(case)
        texts += len(_known(case.example)) + len(case.steps)
        if texts >= _AT_ONCE:
            yield batch
            batch, texts = [], 0
    if batch:
        yield batch
