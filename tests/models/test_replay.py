"""Replaying recorded completions, of chats with frames too."""

import numpy as np
import pytest
from tests.models.asking import pieces_of, texts_of

from recipe.config import SamplingConfig
from recipe.errors import InputError
from recipe.models.protocol import Chat, ReplayEngine
from recipe.text import planner_messages, video_messages
from recipe.types import Frames

SAMPLING = SamplingConfig()


def clip(shade: int = 0, rate: float = 2.0, times: tuple[float, ...] = (0.0, 0.5)) -> Frames:
    return Frames(np.full((2, 4, 6, 3), shade, np.uint8), np.array(times), rate)


CHATS: list[Chat] = [video_messages("tea", clip(0)), video_messages("tea", clip(1)), planner_messages("tea", [])]
SAID = [["1. a\n2. b", "1. c"], ["x\n"], ["", "y"]]


def test_all_of_a_clip_tells_chats_apart() -> None:
    engine = ReplayEngine.record(CHATS, SAID)
    assert texts_of(engine, CHATS, 1, SAMPLING) == [["1. a\n2. b"], ["x\n"], [""]]
    assert texts_of(engine, [video_messages("tea", clip(0))], 2, SAMPLING) == SAID[:1]
    turned = Frames(np.zeros((2, 6, 4, 3), np.uint8), np.array([0.0, 0.5]), 2.0)
    for other in (clip(2), clip(rate=1.0), clip(times=(0.0, 0.6)), turned):
        with pytest.raises(InputError, match="0 of 1 completions are recorded for the chat ending in"):
            texts_of(engine, [video_messages("tea", other)], 1, SAMPLING)


def test_a_stream_is_the_first_completion() -> None:
    engine = ReplayEngine.record(CHATS, SAID)
    for chat, [first, *_] in zip(CHATS, SAID, strict=True):
        assert "".join(pieces_of(engine, chat, SAMPLING)) == first
    assert list(pieces_of(engine, CHATS[0], SAMPLING)) == ["1. a\n", "2. b"]
    with pytest.raises(InputError, match="0 of 1 completions"):
        list(pieces_of(engine, video_messages("tea", clip(2)), SAMPLING))
