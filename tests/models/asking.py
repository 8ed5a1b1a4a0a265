"""Texts of completions, whole and in pieces, as the tests of engines ask for them."""

from collections.abc import Iterator, Sequence
from contextlib import closing

from recipe.config import SamplingConfig
from recipe.models.protocol import Chat, Engine, ModelRequest, all_answered
from recipe.progress import SILENT, Progress


def texts_of(
    engine: Engine, chats: Sequence[Chat], count: int, sampling: SamplingConfig, progress: Progress = SILENT
) -> list[list[str]]:
    """`count` texts for each chat; raises InputError where one is refused."""
    return [[answer.text for answer in group] for group in engine.answers(chats, count, sampling, progress)]


def pieces_of(engine: Engine, chat: Chat, sampling: SamplingConfig) -> Iterator[str]:
    """The pieces of the first completion of a chat as they are written; raises InputError where it is refused."""
    with closing(engine.stream_all([ModelRequest(chat, sampling)])) as written:
        for _, piece in written:
            if not isinstance(piece, str):
                all_answered([piece])
                return
            yield piece
