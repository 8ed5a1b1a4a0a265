"""Judges that ask a language model."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Generic, NamedTuple, Protocol, TypeVar

from recipe.artifacts import JsonObject
from recipe.config import JudgeConfig, SamplingConfig
from recipe.evaluation.judge.plans import EMPTY, MISSING, Case, actionable, bounded
from recipe.evaluation.judge.rubric import SCHEMA, ParsedVerdict, parse, prompt_hash, render
from recipe.evaluation.judge.verdicts import CRITERIA, Judgement
from recipe.evaluation.scores import JudgeIdentity
from recipe.models.protocol import Answer, Chat, Engine, Refusal
from recipe.models.wrappers import Ledger, Prices
from recipe.progress import SILENT, Progress
from recipe.types import Unscored, Verdict

# A language model in the office of a judge: asked in one way, whatever it is to judge.
#
# An answer that cannot be read is asked for again, a few times, with another seed, so that it is another answer, and
# kept beside the first. What every answer took goes to the ledger, whether it could be read or not.


Read = TypeVar("Read")


class Told(NamedTuple, Generic[Read]):
    """An outcome and what was read in it."""

    outcome: Answer | Refusal
    read: Read


class AskedModel:
    """What judges that ask a language model have in common."""

    def __init__(
        self, engine: Engine, model: str, config: JudgeConfig | None = None, ledger: Ledger | None = None
    ) -> None:
        """`model` is its name at the endpoint, a hub id or a folder; `ledger` is the engine's own, if it keeps one."""
        self.config = config or JudgeConfig()
        self.ledger = ledger or Ledger(Prices())
        self._engine, self._model, self._counts = engine, model, ledger is None
        self._structured: set[str] = set()

    def _identity(self, prompt: str, beside: AbstractSet[str]) -> JudgeIdentity:
        """Name, model, hash of the prompt, and settings but those `beside` it.

        How answers were held to the schema is known once there are some.
        """
        settings = {name: str(value) for name, value in self.config.model_dump(exclude=set(beside)).items()}
        settings["structured"] = ", ".join(sorted(self._structured)) or "off"
        return JudgeIdentity(_short(self._model), "llm", self._model, prompt, settings)

    def _answers(
        self,
        chats: Sequence[Chat],
        schema: JsonObject,
        read: Callable[[Answer | Refusal], Read],
        readable: Callable[[Read], bool],
        repeats: int,
        progress: Progress = SILENT,
    ) -> list[list[Told[Read]]]:
        """What the model says to each chat, `repeats` times; the last answer where none is `readable`.

        Raises ComputeError or InputError where the engine fails altogether; what it answered is kept in its cache.
        """
        sampling = SamplingConfig.model_validate(
            self.config.model_dump(include={"temperature", "max_tokens", "seed", "batch_size"})
        )
        outcomes = self._counted(self._engine.outcomes(chats, repeats, sampling, progress, schema=schema))
        told = [[Told(outcome, read(outcome)) for outcome in group] for group in outcomes]
        for again in range(1, self.config.reasks + 1):
            for repeat in range(repeats):
                unread = [
                    place
                    for place, group in enumerate(told)
                    if isinstance(group[repeat].outcome, Answer) and not readable(group[repeat].read)
                ]
                if not unread:
                    continue
                other = sampling.model_copy(update={"seed": _seed(self.config.seed, again, repeat)})
                asked = [chats[place] for place in unread]
                found = self._counted(self._engine.outcomes(asked, 1, other, progress, schema=schema))
                for place, [outcome] in zip(unread, found, strict=True):
                    told[place][repeat] = Told(outcome, read(outcome))
        return told

    def _counted(self, outcomes: list[list[Answer | Refusal]]) -> list[list[Answer | Refusal]]:
        for outcome in (one for group in outcomes for one in group):
            if isinstance(outcome, Answer):
                self._structured |= {outcome.structured} - {""}
                if self._counts:
                    self.ledger.add(outcome)
        return outcomes


def unanswered(refused: Refusal) -> str:
    """Why there is no verdict where there is no answer."""
    return f"the judge gave no answer: {refused.reason}"


def _seed(seed: int, again: int, repeat: int) -> int:
    return int.from_bytes(sha256(f"{seed} again {again} {repeat}".encode()).digest()[:4]) >> 1


def _short(model: str) -> str:
    """A model's own name, without owner or folder.

    >>> _short("meta-llama/Llama-3.3-70B-Instruct")
    'Llama-3.3-70B-Instruct'
    """
    return model.rstrip("/").rsplit("/", 1)[-1]


# Judges: what gives plans a verdict; and the one that asks a language model by the paper's rubric.
#
# Plans without an actionable step score 0 in code, without a call. An answer that cannot be read is asked for again, a
# few times, and is then *unscored*: counted apart, in no mean, and never a number.


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

    def judge(self, cases: Sequence[Case], progress: Progress = SILENT) -> list[Judgement]:
        """The verdict on each case, in order; repeats of a case as further rows after its first."""
        ...


class LlmJudge(AskedModel):
    """A language model that is shown goal, history, reference and prediction, and gives six scores."""

    @property
    def identity(self) -> JudgeIdentity:
        """Name, model, prompt and settings."""
        return self._identity(prompt_hash(), {"batch_size"})

    def judge(self, cases: Sequence[Case], progress: Progress = SILENT) -> list[Judgement]:
        """The verdicts on each case, in order.

        Raises ComputeError or InputError where the engine fails altogether; what it answered is kept in its cache.
        """
        shown = [bounded(case, self.config) for case in cases]
        asked = [case for case in shown if not fatal(case)]
        chats = [render(case) for case in asked]
        told = iter(self._answers(chats, SCHEMA, _read, _readable, self.config.repeats, progress))
        name = self.identity.name
        rows: list[Judgement] = []
        for case in shown:
            rows += [by_rule(case, name)] if fatal(case) else _rows(case, next(told), name)
        return rows


def _rows(case: Case, told: Sequence[Told[ParsedVerdict]], judge: str) -> list[Judgement]:
    return [
        Judgement(
            example_id=case.example.example_id,
            outcome=one.read.outcome,
            sample=case.sample,
            repeat=repeat,
            control=case.control,
            judge=judge,
            how=one.read.how,
            steps=case.steps,
            flags=case.flags,
            text="" if isinstance(one.outcome, Refusal) else one.outcome.text[:_KEPT],
        )
        for repeat, one in enumerate(told)
    ]


def _read(outcome: Answer | Refusal) -> ParsedVerdict:
    return ParsedVerdict(Unscored(unanswered(outcome))) if isinstance(outcome, Refusal) else parse(outcome.text)


def _readable(read: ParsedVerdict) -> bool:
    return isinstance(read.outcome, Verdict)


def fatal(case: Case) -> bool:
    """Whether the fatal rule scores a case: its plan is empty or holds no actionable step."""
    return not actionable(case.steps)


def by_rule(case: Case, judge: str) -> Judgement:
    """The verdict of the fatal rule: 0 on all six."""
    return Judgement(
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
