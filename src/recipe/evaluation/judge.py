"""Judges: what gives plans a verdict; and the one that asks a language model by the paper's rubric.

Plans without an actionable step score 0 in code, without a call. An answer that cannot be read is asked for again, a
few times, and is then *unscored*: counted apart, in no mean, and never a number.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from recipe.config import JudgeConfig
from recipe.engines.protocol import Answer, Chat, Refused
from recipe.evaluation.asking import AskedModel, Told, unanswered
from recipe.evaluation.cases import EMPTY, MISSING, Case, actionable, bounded
from recipe.evaluation.rubric import SCHEMA, ParsedVerdict, parse, prompt_hash, render
from recipe.evaluation.scores import JudgeIdentity
from recipe.evaluation.verdicts import CRITERIA, Judged
from recipe.progress import SILENT, Progress
from recipe.types import Unscored, Verdict

__all__ = ["Case", "Judge", "LlmJudge", "estimate", "fatal"]

_KEPT = 4_000
"""Characters of an answer that go to the rows."""
_CHARACTERS_A_TOKEN = 4


class Judge(Protocol):
    """Anything that gives plans a verdict."""

    @property
    def identity(self) -> JudgeIdentity:
        """What tells it from other judges."""
        ...

    def judge(self, cases: Sequence[Case], progress: Progress = SILENT) -> list[Judged]:
        """The verdict on each case, in order; repeats of a case as further rows after its first."""
        ...


class LlmJudge(AskedModel):
    """A language model that is shown goal, history, reference and prediction, and gives six scores."""

    @property
    def identity(self) -> JudgeIdentity:
        """Name, model, prompt and settings."""
        return self._identity(prompt_hash(), {"batch_size"})

    def judge(self, cases: Sequence[Case], progress: Progress = SILENT) -> list[Judged]:
        """The verdicts on each case, in order.

        Raises ComputeError or InputError where the engine fails altogether; what it answered is kept in its cache.
        """
        shown = [bounded(case, self.config) for case in cases]
        asked = [case for case in shown if not fatal(case)]
        chats = [render(case) for case in asked]
        told = iter(self._answers(chats, SCHEMA, _read, _readable, self.config.repeats, progress))
        name = self.identity.name
        rows: list[Judged] = []
        for case in shown:
            rows += [by_rule(case, name)] if fatal(case) else _rows(case, next(told), name)
        return rows


def _rows(case: Case, told: Sequence[Told[ParsedVerdict]], judge: str) -> list[Judged]:
    return [
        Judged(
            example_id=case.example.example_id,
            outcome=one.read.outcome,
            sample=case.sample,
            repeat=repeat,
            control=case.control,
            judge=judge,
            how=one.read.how,
            steps=case.steps,
            flags=case.flags,
            text="" if isinstance(one.outcome, Refused) else one.outcome.text[:_KEPT],
        )
        for repeat, one in enumerate(told)
    ]


def _read(outcome: Answer | Refused) -> ParsedVerdict:
    return ParsedVerdict(Unscored(unanswered(outcome))) if isinstance(outcome, Refused) else parse(outcome.text)


def _readable(read: ParsedVerdict) -> bool:
    return isinstance(read.outcome, Verdict)


def fatal(case: Case) -> bool:
    """Whether the fatal rule scores a case: its plan is empty or holds no actionable step."""
    return not actionable(case.steps)


def by_rule(case: Case, judge: str) -> Judged:
    """The verdict of the fatal rule: 0 on all six."""
    return Judged(
        example_id=case.example.example_id,
        outcome=Verdict(*(0 for _ in CRITERIA)),
        sample=case.sample,
        control=case.control,
        judge=judge,
        how="rule",
        steps=case.steps,
        flags=case.flags if MISSING in case.flags else (*case.flags, EMPTY),
    )


@dataclass(frozen=True, slots=True)
class Estimate:
    """What judging will ask for, at most: kept answers are not asked again."""

    calls: int
    prompt_tokens: int
    """Roughly: four characters a token."""
    by_rule: int
    """Cases that need no call."""
    first: Chat = field(default_factory=list)
    """The first prompt, empty where none is asked."""


def estimate(cases: Sequence[Case], config: JudgeConfig) -> Estimate:
    """What judging these cases will ask an LLM for, without asking."""
    asked = [bounded(case, config) for case in cases if not fatal(case)]
    characters = sum(len(message["content"]) for case in asked for message in render(case))
    tokens = -(-characters * config.repeats // _CHARACTERS_A_TOKEN)
    first = render(asked[0]) if asked else []
    return Estimate(len(asked) * config.repeats, tokens, len(cases) - len(asked), first)
