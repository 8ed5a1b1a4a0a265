"""Any engine with a memory: an answer is kept the moment it is there, and never asked for again.

The endpoint's engine keeps its own answers; this is for the others, a model on this machine above all. Chats are asked
about in groups of about a batch, so that a job that is killed loses no more than one.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from recipe.artifacts import JsonObject, fingerprint
from recipe.config import SamplingConfig
from recipe.engines.cache import AnswerCache
from recipe.engines.protocol import Answer, Chat, Engine, Refused, all_texts, without_arrays
from recipe.progress import SILENT, Progress

Outcomes = list[Answer | Refused]


class KeptEngine:
    """Answers from a folder what was answered before, and asks another engine for the rest."""

    def __init__(self, engine: Engine, identity: Mapping[str, object], folder: Path) -> None:
        """`identity` is all that tells the engine's model from others."""
        self._engine, self._identity, self._cache = engine, dict(identity), AnswerCache(folder)

    def generate(
        self, chats: Sequence[Chat], count: int, sampling: SamplingConfig, progress: Progress = SILENT
    ) -> list[list[str]]:
        """As the engine does; raises InputError for a chat that is refused, and what the engine raises."""
        return all_texts(self.outcomes(chats, count, sampling, progress))

    def outcomes(
        self,
        chats: Sequence[Chat],
        count: int,
        sampling: SamplingConfig,
        progress: Progress = SILENT,
        *,
        schema: JsonObject | None = None,
        logprobs: bool = False,
    ) -> list[list[Answer | Refused]]:
        """As the engine does; a chat of which a sample is missing is asked about again, for the missing ones.

        What is refused is not kept. Raises what the engine raises, and OSError where an answer cannot be kept.
        """
        keys = [self._keys(chat, count, sampling, schema, logprobs) for chat in chats]
        chat_of = dict(zip(keys, chats, strict=True))
        kept = {row: self._kept(row) for row in chat_of}
        waiting = [row for row, known in kept.items() if None in known]
        found: dict[tuple[str, ...], Outcomes] = {
            row: [one for one in known if one is not None] for row, known in kept.items() if None not in known
        }
        together = max(1, sampling.batch_size)
        for at in range(0, len(waiting), together):
            rows = waiting[at : at + together]
            asked = [chat_of[row] for row in rows]
            told = self._engine.outcomes(asked, count, sampling, progress, schema=schema, logprobs=logprobs)
            for row, answers in zip(rows, told, strict=True):
                pairs = zip(row, kept[row], answers, strict=True)
                found[row] = [known or self._keep(key, answer) for key, known, answer in pairs]
            self._cache.flush()
        return [list(found[row]) for row in keys]

    def known(
        self,
        chats: Sequence[Chat],
        count: int,
        sampling: SamplingConfig,
        *,
        schema: JsonObject | None = None,
        logprobs: bool = False,
    ) -> list[int]:
        """How many of the `count` completions of each chat are free; 0 where one is missing, as all are asked for."""
        rows = [self._kept(self._keys(chat, count, sampling, schema, logprobs)) for chat in chats]
        return [0 if None in row else count for row in rows]

    def stream(self, chat: Chat, sampling: SamplingConfig) -> Iterator[str]:
        """As the engine does; an answer that is kept comes whole, and one that came whole is kept."""
        [key] = self._keys(chat, 1, sampling, None, False)
        [known] = self._kept((key,))
        if known is not None:
            yield known.text
            return
        pieces = []
        for piece in self._engine.stream(chat, sampling):
            pieces.append(piece)
            yield piece
        self._keep(key, Answer("".join(pieces)))

    def _keys(
        self, chat: Chat, count: int, sampling: SamplingConfig, schema: JsonObject | None, logprobs: bool
    ) -> tuple[str, ...]:
        """What each sample of a chat is kept under."""
        asked: JsonObject = {
            "engine": self._identity,
            "messages": without_arrays(chat),
            "sampling": sampling.model_dump(include={"temperature", "max_tokens", "seed"}),
        }
        more = {"schema": schema, "logprobs": logprobs or None}
        asked |= {name: value for name, value in more.items() if value is not None}
        shared = fingerprint(asked)
        return tuple(fingerprint([shared, sample]) for sample in range(count))

    def _kept(self, keys: Sequence[str]) -> list[Answer | None]:
        return [self._cache.answer(key) for key in keys]

    def _keep(self, key: str, answer: Answer | Refused) -> Answer | Refused:
        if isinstance(answer, Answer):
            self._cache.keep(key, answer._replace(cached=False)._asdict())
        return answer
