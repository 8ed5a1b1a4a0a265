"""Judges: the protocol, the base class of LLM judges, and the judge by the paper's rubric.

Plans without an actionable step score 0 in code, without a call. An answer that cannot be parsed is asked for again, a
few times, and is then *unscored*: counted apart, and never a number.
"""

import json
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Protocol, TypeVar

from recipe.artifacts import JsonObject
from recipe.config import JudgeConfig, SamplingConfig
from recipe.evaluation.judge.plans import EMPTY, MISSING, Case, actionable, bounded
from recipe.evaluation.judge.rubric import SCHEMA, ParsedVerdict, parse, prompt_hash, render
from recipe.evaluation.judge.verdicts import NOTHING, Judgement
from recipe.evaluation.scores import JudgeIdentity
from recipe.models.model import Model
from recipe.models.protocol import Answer, Chat, Engine, Refusal, unanswered
from recipe.progress import SILENT, Progress
from recipe.types import CriticalFailures, Unscored, Verdict

Parsed = TypeVar("Parsed")


class LanguageModelJudge:
    """Base class of LLM judges: asks, parses, and asks again for what cannot be parsed.

    A further try has another seed, so that it brings another answer, and is kept beside the first. Each answer counts
    in the ledger, whether it can be parsed or not.
    """

    def __init__(self, engine: Engine, model: str, config: JudgeConfig | None = None) -> None:
        """`model` is its name at the endpoint, a hub id or a folder."""
        self.config = config or JudgeConfig()
        self._engine, self._model = engine if isinstance(engine, Model) else Model(engine), model
        self.ledger = self._engine.ledger
        self._structured: set[str] = set()

    def _identity(self, prompt: str, beside: AbstractSet[str], **more: str) -> JudgeIdentity:
        """Name, model, hash of the prompt, and settings but those `beside` it, with `more`.

        How answers were held to the schema is known once there are some.
        """
        settings = {name: str(value) for name, value in self.config.model_dump(exclude=set(beside)).items()}
        settings["structured"] = ", ".join(sorted(self._structured)) or "off"
        if further := self._engine.identity.get("extra_body"):
            settings["extra_body"] = json.dumps(further, sort_keys=True)
        return JudgeIdentity(_short(self._model), "llm", self._model, prompt, settings | more)

    def _answers(
        self,
        chats: Sequence[Chat],
        schema: JsonObject,
        parse: Callable[[Answer | Refusal], Parsed],
        complete: Callable[[Parsed], bool],
        repeats: int,
        progress: Progress = SILENT,
    ) -> list[list[tuple[Answer | Refusal, Parsed]]]:
        """`repeats` outcomes of each chat, and what is parsed from each; the last answer where none is `complete`.

        Raises ComputeError or InputError where the engine fails altogether; its answers are kept in its cache.
        """
        sampling = SamplingConfig.model_validate(
            self.config.model_dump(include={"temperature", "max_tokens", "seed", "batch_size"})
        )
        outcomes = self._outcomes(chats, repeats, sampling, schema, progress)
        found = [[(outcome, parse(outcome)) for outcome in group] for group in outcomes]
        for again in range(1, self.config.reasks + 1):
            for repeat in range(repeats):
                unread = [
                    place
                    for place, group in enumerate(found)
                    if isinstance(group[repeat][0], Answer) and not complete(group[repeat][1])
                ]
                if not unread:
                    continue
                sha = sha256(f"{self.config.seed} again {again} {repeat}".encode())
                other = sampling.model_copy(update={"seed": int.from_bytes(sha.digest()[:4]) >> 1})
                asked = [chats[place] for place in unread]
                outcomes = self._outcomes(asked, 1, other, schema, progress)
                for place, [outcome] in zip(unread, outcomes, strict=True):
                    found[place][repeat] = (outcome, parse(outcome))
        return found

    def _outcomes(
        self, chats: Sequence[Chat], count: int, sampling: SamplingConfig, schema: JsonObject, progress: Progress
    ) -> list[list[Answer | Refusal]]:
        outcomes = self._engine.outcomes(chats, count, sampling, progress, schema=schema)
        for outcome in (one for group in outcomes for one in group):
            if isinstance(outcome, Answer):
                self._structured |= {outcome.structured} - {""}
        return outcomes

    def _judged(
        self,
        cases: Sequence[Case],
        ask: Callable[[Case], Chat],
        schema: JsonObject,
        parse: Callable[[str], ParsedVerdict],
        nothing: Verdict | CriticalFailures,
        progress: Progress,
    ) -> list[Judgement]:
        """The judgement of each case by one rubric, in order; plans without an actionable step get `nothing`.

        Raises ComputeError or InputError where the engine fails altogether; its answers are kept in its cache.
        """

        def parsed(outcome: Answer | Refusal) -> ParsedVerdict:
            if (reason := unanswered(outcome)) or isinstance(outcome, Refusal):
                return ParsedVerdict(Unscored(reason))
            return parse(outcome.text)

        shown = [bounded(case, self.config) for case in cases]
        chats = [ask(case) for case in shown if not fatal(case)]
        answers = iter(self._answers(chats, schema, parsed, _scored, self.config.repeats, progress))
        name = _short(self._model)
        rows: list[Judgement] = []
        for case in shown:
            if fatal(case):
                rows.append(by_rule(case, name, nothing))
                continue
            for repeat, (outcome, verdict) in enumerate(next(answers)):
                row = Judgement(
                    example_id=case.example.example_id,
                    outcome=verdict.outcome,
                    sample=case.sample,
                    repeat=repeat,
                    control=case.control,
                    judge=name,
                    how=verdict.how,
                    steps=case.steps,
                    flags=case.flags,
                    text="" if isinstance(outcome, Refusal) else outcome.text[:_KEPT],
                )
                rows.append(row)
        return rows


def _short(model: str) -> str:
    """A model's own name, without owner or folder.

    >>> _short("meta-llama/Llama-3.3-70B-Instruct")
    'Llama-3.3-70B-Instruct'
    """
    return model.rstrip("/").rsplit("/", 1)[-1]


_KEPT = 4_000
"""Characters of an answer that go to the rows."""
_CHARACTERS_A_TOKEN = 4


class Judge(Protocol):
    """Anything that gives plans a verdict."""

    @property
    def identity(self) -> JudgeIdentity:
        """The name and settings that tell it from other judges."""
        ...

    def judge(self, cases: Sequence[Case], progress: Progress = SILENT) -> list[Judgement]:
        """The verdict on each case, in order; repeats of a case as further rows after its first."""
        ...


class LlmJudge(LanguageModelJudge):
    """A language model that is shown goal, history, reference and prediction, and gives six scores."""

    @property
    def identity(self) -> JudgeIdentity:
        """Name, model, prompt and settings."""
        return self._identity(prompt_hash(), {"batch_size"})

    def judge(self, cases: Sequence[Case], progress: Progress = SILENT) -> list[Judgement]:
        """The verdicts on each case, in order.

        Raises ComputeError or InputError where the engine fails altogether; its answers are kept in its cache.
        """
        return self._judged(cases, render, SCHEMA, parse, NOTHING, progress)


def _scored(verdict: ParsedVerdict) -> bool:
    return not isinstance(verdict.outcome, Unscored)


def fatal(case: Case) -> bool:
    """Whether a rule scores a case: its plan is empty or holds no actionable step."""
    return not actionable(case.steps)


def by_rule(case: Case, judge: str, nothing: Verdict | CriticalFailures = NOTHING) -> Judgement:
    """The judgement by rule of a plan without an actionable step."""
    return Judgement(
        example_id=case.example.example_id,
        outcome=nothing,
        sample=case.sample,
        control=case.control,
        judge=judge,
        how="rule",
        steps=case.steps,
        flags=case.flags if MISSING in case.flags else (*case.flags, EMPTY),
    )


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cost of judging at most; answers in the cache are not asked for again."""

    calls: int
    prompt_tokens: int
    """Roughly: four characters a token."""
    by_rule: int
    """Cases that need no call."""
    first: Chat = field(default_factory=list)
    """The first prompt, empty where none is asked."""


def estimate(cases: Sequence[Case], config: JudgeConfig, ask: Callable[[Case], Chat] = render) -> Estimate:
    """The requests that an LLM judge would make for these cases, without asking; `ask` is its prompt."""
    asked = [bounded(case, config) for case in cases if not fatal(case)]
    characters = sum(len(message["content"]) for case in asked for message in ask(case))
    tokens = -(-characters * config.repeats // _CHARACTERS_A_TOKEN)
    first = ask(asked[0]) if asked else []
    return Estimate(len(asked) * config.repeats, tokens, len(cases) - len(asked), first)
