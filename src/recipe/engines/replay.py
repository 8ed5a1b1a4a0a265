"""An engine that replays completions, for tests and for replays without a model."""

from collections.abc import Iterator, Mapping, Sequence

from recipe.artifacts import JsonObject, fingerprint
from recipe.config import SamplingConfig
from recipe.engines.protocol import Answer, Chat, Refused, without_arrays
from recipe.errors import InputError
from recipe.progress import SILENT, Progress


class ReplayEngine:
    """Answers each chat with completions recorded for it."""

    def __init__(self, recorded: Mapping[str, Sequence[str]]) -> None:
        self._recorded = recorded

    @classmethod
    def record(cls, chats: Sequence[Chat], completions: Sequence[Sequence[str]]) -> "ReplayEngine":
        """An engine that gives `completions[i]` for `chats[i]`."""
        pairs = zip(chats, completions, strict=True)
        return cls({fingerprint(without_arrays(chat)): tuple(texts) for chat, texts in pairs})

    def generate(
        self, chats: Sequence[Chat], count: int, sampling: SamplingConfig, progress: Progress = SILENT
    ) -> list[list[str]]:
        """The first `count` recorded completions of each chat; raises InputError where there are fewer."""
        with progress.task("replaying completions", total=len(chats) * count) as advance:
            answers = []
            for chat in chats:
                answers.append(self._answer(chat, count))
                advance(count)
        return answers

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
        """As `generate`; no tokens are told, and what is not recorded is an error here, too."""
        return [[Answer(text) for text in texts] for texts in self.generate(chats, count, sampling, progress)]

    def stream(self, chat: Chat, sampling: SamplingConfig) -> Iterator[str]:
        """The first recorded completion of the chat, line by line; raises InputError where there is none."""
        [text] = self._answer(chat, 1)
        yield from text.splitlines(keepends=True)

    def _answer(self, chat: Chat, count: int) -> list[str]:
        plain = without_arrays(chat)
        texts = self._recorded.get(fingerprint(plain), ())
        if len(texts) < count:
            asked = plain[-1]["content"]
            raise InputError(
                f"{len(texts)} of {count} completions are recorded for the chat ending in {asked!r}; "
                "record more or ask for fewer."
            )
        return list(texts[:count])
