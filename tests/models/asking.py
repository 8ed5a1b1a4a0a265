"""Texts of completions, whole and in pieces, as the tests of engines ask for them."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

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


def forced_likelihood(
    model: Any, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], clips: Any = None
) -> list[float]:
    """Log-probability in nats of each completion as decoding gives it, whose every token is chosen beforehand."""
    import torch

    from recipe.models.decoding import complete

    nats = torch.zeros(len(prompts), dtype=torch.float64)

    def choose(logits: torch.Tensor, rows: torch.Tensor, step: int) -> torch.Tensor:
        every = torch.log_softmax(logits.double(), -1)
        chosen = torch.zeros_like(rows)
        for place, row in enumerate(rows.tolist()):
            if step < len(completions[row]):
                chosen[place] = completions[row][step]
                nats[row] += every[place, chosen[place]]
        return chosen

    with torch.no_grad():
        complete(model, prompts, choose, ends=[], longest=max(map(len, completions)), clips=clips)
    return list(nats.tolist())
