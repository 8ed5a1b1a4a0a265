"""Judges: the protocol, the base class of LLM judges, and the judge by the paper's rubric.

Plans without an actionable step score 0 in code, without a call. An answer that cannot be parsed is asked for again, a
few times, and is then *unscored*: counted apart, and never a number.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType
from typing import Protocol, TypeVar

from recipe.artifacts import JsonObject
from recipe.config.models import JudgeConfig, SamplingConfig
from recipe.evaluation.judge.plans import EMPTY, MISSING, Case, actionable
from recipe.evaluation.judge.rubric import CriteriaRubric, ParsedVerdict, six_criteria
from recipe.evaluation.judge.verdicts import NOTHING, Judgement
from recipe.evaluation.scores import JudgeIdentity
from recipe.models.model import Model
from recipe.models.protocol import Answer, Chat, Engine, Refusal, unanswered
from recipe.progress import SILENT, Progress
from recipe.types import Grades, Unscored, Verdict


class _ParsedAnswer(Protocol):
    """A verdict or a rating that was read from an answer."""

    @property
    def how(self) -> str:
        """How it was read; empty where the answer has none, and is asked for again."""
        ...


Parsed = TypeVar("Parsed", bound=_ParsedAnswer)

# Characters of an answer that go to the rows.
_KEPT = 4_000
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


class LanguageModelJudge:
    """Base class of LLM judges: asks, parses, and asks again for what cannot be parsed.

    A retry has another seed, so that it gives another answer, and is kept along with the first. Each answer counts in
    the ledger, whether it can be parsed or not.
    """

    def __init__(
        self,
        engine: Engine,
        model: str,
        config: JudgeConfig | None,
        prompt: str,
        beside: AbstractSet[str] = frozenset({"batch_size"}),
        further: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`model` is its name at the endpoint, a hub id or a folder; `prompt` the hash of the prompt.

        The identity holds the settings except those in `beside`, and the `further` ones.
        """
        self.config = config or JudgeConfig()
        # The model's own name, without owner or folder.
        self.name = model.rstrip("/").rsplit("/", 1)[-1]
        self._engine, self._model = engine if isinstance(engine, Model) else Model(engine), model
        self.ledger = self._engine.ledger
        self._prompt, self._beside, self._further = prompt, set(beside), further
        self._structured: set[str] = set()

    @property
    def identity(self) -> JudgeIdentity:
        """Name, model, prompt and settings; how answers were held to the schema is known once there are some."""
        settings = {name: str(value) for name, value in self.config.model_dump(exclude=self._beside).items()}
        settings["structured"] = ", ".join(sorted(self._structured)) or "off"
        if extra := self._engine.identity.get("extra_body"):
            settings["extra_body"] = json.dumps(extra, sort_keys=True)
        return JudgeIdentity(self.name, "llm", self._model, self._prompt, settings | dict(self._further))

    def answers(
        self,
        chats: Sequence[Chat],
        schema: JsonObject,
        parse: Callable[[str], Parsed],
        repeats: int,
        progress: Progress = SILENT,
    ) -> list[list[tuple[Answer | Refusal, Parsed | None]]]:
        """`repeats` outcomes of each chat, each with what it is parsed to, which is None where there is no answer.

        An answer without a result, which is one without a `how`, is asked for again; the last one counts. Raises
        ComputeError or InputError where the engine fails altogether; its answers are kept in its cache.
        """
        sampling = SamplingConfig.model_validate(
            self.config.model_dump(include={"temperature", "max_tokens", "seed", "batch_size"})
        )
        answers: list[dict[int, tuple[Answer | Refusal, Parsed | None]]] = [{} for _ in chats]
        # All repeats come from one call, so that they share the prompt; what cannot be parsed is asked for one by one.
        rounds = [(0, list(range(repeats)))]
        rounds += [(again, [repeat]) for again in range(1, self.config.reasks + 1) for repeat in range(repeats)]
        for again, numbers in rounds:
            pending, seeded = list(range(len(chats))), sampling
            if again:
                last = [group[numbers[0]] for group in answers]
                pending = [
                    index
                    for index, (outcome, parsed) in enumerate(last)
                    if isinstance(outcome, Answer) and (parsed is None or not parsed.how)
                ]
                digest = sha256(f"{self.config.seed} again {again} {numbers[0]}".encode()).digest()
                seeded = sampling.model_copy(update={"seed": int.from_bytes(digest[:4]) >> 1})
                if not pending:
                    continue
            chosen = [chats[index] for index in pending]
            outcomes = self._engine.outcomes(chosen, len(numbers), seeded, progress, schema=schema)
            for index, group in zip(pending, outcomes, strict=True):
                for number, outcome in zip(numbers, group, strict=True):
                    parsed = None
                    if isinstance(outcome, Answer):
                        self._structured |= {outcome.structured} - {""}
                        parsed = None if unanswered(outcome) else parse(outcome.text)
                    answers[index][number] = (outcome, parsed)
        return [[group[number] for number in range(repeats)] for group in answers]


class LlmJudge(LanguageModelJudge):
    """A language model that is shown goal, history, reference and prediction, and gives a verdict by a rubric."""

    def __init__(
        self, engine: Engine, model: str, config: JudgeConfig | None = None, rubric: CriteriaRubric | None = None
    ) -> None:
        """`model` is its name at the endpoint, a hub id or a folder; without a rubric, the paper's is asked for."""
        self._rubric = rubric or six_criteria()
        super().__init__(engine, model, config, self._rubric.prompt, further=self._rubric.described())

    def judge(self, cases: Sequence[Case], progress: Progress = SILENT) -> list[Judgement]:
        """The verdicts on each case, in order; a plan without an actionable step gets the lowest by rule.

        Raises ComputeError or InputError where the engine fails altogether; its answers are kept in its cache.
        """
        rubric = self._rubric
        shown = [case.bounded(self.config) for case in cases]
        chats = [rubric.ask(case) for case in shown if actionable(case.steps)]
        answers = iter(self.answers(chats, rubric.schema, rubric.parse, self.config.repeats, progress))
        rows: list[Judgement] = []
        for case in shown:
            if not actionable(case.steps):  # the fatal-failure rule (paper, appendix on the evaluation protocol)
                rows.append(by_rule(case, self.name, rubric.nothing))
                continue
            for repeat, (outcome, parsed) in enumerate(next(answers)):
                verdict = parsed or ParsedVerdict(Unscored(unanswered(outcome)))
                rows.append(
                    Judgement(
                        example_id=case.example.example_id,
                        outcome=verdict.outcome,
                        sample=case.sample,
                        repeat=repeat,
                        control=case.control,
                        judge=self.name,
                        how=verdict.how,
                        steps=case.steps,
                        flags=case.flags,
                        text="" if isinstance(outcome, Refusal) else outcome.text[:_KEPT],
                    )
                )
        return rows


def by_rule(case: Case, judge: str, nothing: Verdict | Grades = NOTHING) -> Judgement:
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
class JudgingCost:
    """The cost of judging at most; answers in the cache are not asked for again."""

    calls: int
    prompt_tokens: int
    """Roughly: four characters a token."""
    by_rule: int
    """Cases that need no call."""
    first: Chat = field(default_factory=list)
    """The first prompt, empty where none is asked."""

    @classmethod
    def of(cls, cases: Sequence[Case], config: JudgeConfig, rubric: CriteriaRubric | None = None) -> "JudgingCost":
        """The requests that an LLM judge would make for these cases, without asking; the paper's rubric by default."""
        ask = (rubric or six_criteria()).ask
        chats = [ask(case.bounded(config)) for case in cases if actionable(case.steps)]
        characters = sum(len(message["content"]) for chat in chats for message in chat)
        tokens = -(-characters * config.repeats // _CHARACTERS_A_TOKEN)
        return cls(len(chats) * config.repeats, tokens, len(cases) - len(chats), chats[0] if chats else [])
