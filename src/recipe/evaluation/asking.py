"""A language model in the office of a judge: asked in one way, whatever it is to judge.

An answer that cannot be read is asked for again, a few times, with another seed, so that it is another answer, and kept
beside the first. What every answer took goes to the ledger, whether it could be read or not.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from hashlib import sha256
from typing import Generic, NamedTuple, TypeVar

from recipe.artifacts import JsonObject
from recipe.config import JudgeConfig, SamplingConfig
from recipe.engines.ledger import Ledger, Prices
from recipe.engines.protocol import Answer, Chat, Engine, Refused
from recipe.evaluation.scores import JudgeIdentity
from recipe.progress import SILENT, Progress

Read = TypeVar("Read")


class Told(NamedTuple, Generic[Read]):
    """An outcome and what was read in it."""

    outcome: Answer | Refused
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
        read: Callable[[Answer | Refused], Read],
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

    def _counted(self, outcomes: list[list[Answer | Refused]]) -> list[list[Answer | Refused]]:
        for outcome in (one for group in outcomes for one in group):
            if isinstance(outcome, Answer):
                self._structured |= {outcome.structured} - {""}
                if self._counts:
                    self.ledger.add(outcome)
        return outcomes


def unanswered(refused: Refused) -> str:
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
