"""Judges: what gives plans a verdict; and the one that asks a language model by the paper's rubric.

Plans without an actionable step score 0 in code, without a call. An answer that cannot be read is asked for again, a
few times, and is then *unscored*: counted apart, in no mean, and never a number.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple, Protocol

from recipe.config import JudgeConfig, SamplingConfig
from recipe.engines.ledger import Ledger, Prices
from recipe.engines.protocol import Answer, Chat, Engine, Refused
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


class LlmJudge:
    """A language model that is shown goal, history, reference and prediction, and gives six scores."""

    def __init__(
        self, engine: Engine, model: str, config: JudgeConfig | None = None, ledger: Ledger | None = None
    ) -> None:
        """`model` is its name at the endpoint, a hub id or a folder; `ledger` is the engine's own, if it keeps one."""
        self.config = config or JudgeConfig()
        self.ledger = ledger or Ledger(Prices())
        self._engine, self._model, self._counts = engine, model, ledger is None
        self._structured: set[str] = set()

    @property
    def identity(self) -> JudgeIdentity:
        """Name, model, prompt and settings; how answers were held to the schema is known once there are some."""
        settings = {name: str(value) for name, value in self.config.model_dump(exclude={"batch_size"}).items()}
        settings["structured"] = ", ".join(sorted(self._structured)) or "off"
        return JudgeIdentity(_short(self._model), "llm", self._model, prompt_hash(), settings)

    def judge(self, cases: Sequence[Case], progress: Progress = SILENT) -> list[Judged]:
        """The verdicts on each case, in order.

        Raises ComputeError or InputError where the engine fails altogether; what it answered is kept in its cache.
        """
        shown = [bounded(case, self.config) for case in cases]
        asked = [case for case in shown if not fatal(case)]
        told = iter(self._ask([render(case) for case in asked], progress))
        rows: list[Judged] = []
        for case in shown:
            rows += [by_rule(case, self.identity.name)] if fatal(case) else self._rows(case, next(told))
        return rows

    def _rows(self, case: Case, told: "list[_Told]") -> list[Judged]:
        return [
            Judged(
                example_id=case.example.example_id,
                outcome=one.read.outcome,
                sample=case.sample,
                repeat=repeat,
                control=case.control,
                judge=self.identity.name,
                how=one.read.how,
                steps=case.steps,
                flags=case.flags,
                text=one.text[:_KEPT],
            )
            for repeat, one in enumerate(told)
        ]

    def _ask(self, chats: Sequence[Chat], progress: Progress) -> "list[list[_Told]]":
        """What the judge says to each chat, once a repeat."""
        config = self.config
        sampling = SamplingConfig.model_validate(
            config.model_dump(include={"temperature", "max_tokens", "seed", "batch_size"})
        )
        outcomes = self._engine.outcomes(chats, config.repeats, sampling, progress, schema=SCHEMA)
        told = [[self._told(outcome) for outcome in group] for group in outcomes]
        for again in range(1, config.reasks + 1):
            for repeat in range(config.repeats):
                unread = [chat for chat, group in enumerate(told) if group[repeat].unread]
                if not unread:
                    continue
                # Another seed, so that the answer is another one, and kept beside the first.
                other = sampling.model_copy(update={"seed": _seed(config.seed, again, repeat)})
                found = self._engine.outcomes([chats[chat] for chat in unread], 1, other, progress, schema=SCHEMA)
                for chat, [outcome] in zip(unread, found, strict=True):
                    told[chat][repeat] = self._told(outcome)
        return told

    def _told(self, outcome: Answer | Refused) -> "_Told":
        if isinstance(outcome, Refused):
            return _Told(ParsedVerdict(Unscored(f"the judge gave no answer: {outcome.reason}")))
        if self._counts:
            self.ledger.add(outcome)
        self._structured |= {outcome.structured} - {""}
        read = parse(outcome.text)
        return _Told(read, outcome.text, unread=isinstance(read.outcome, Unscored))


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


class _Told(NamedTuple):
    read: ParsedVerdict
    text: str = ""
    unread: bool = False
    """Whether there is an answer that could not be read."""


def _seed(seed: int, again: int, repeat: int) -> int:
    return int.from_bytes(sha256(f"{seed} again {again} {repeat}".encode()).digest()[:4]) >> 1


def _short(model: str) -> str:
    """A model's own name, without owner or folder.

    >>> _short("meta-llama/Llama-3.3-70B-Instruct")
    'Llama-3.3-70B-Instruct'
    """
    return model.rstrip("/").rsplit("/", 1)[-1]
