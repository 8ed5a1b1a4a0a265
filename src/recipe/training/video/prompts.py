"""Prompts of the Video configuration: goal and clip, as token ids and patches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from transformers import PreTrainedTokenizerBase

from recipe.text import format_plan, video_messages
from recipe.types import Example, Frames
from recipe.vision import Patches, VideoProcessor

VIDEO_TOKEN = "<|video_pad|>"
SILENCED = (VIDEO_TOKEN, "<|image_pad|>")
"""Tokens that stand for pixels: a completion that held one would ask for a clip that is not there."""


@runtime_checkable
class Renderer(Protocol):
    """Draws a clip anew each time, the same again for the same `draw`: a resumed run sees what it would have seen."""

    def render(self, example: Example, draw: int) -> Frames:
        """What shows the example's history at its place `draw` in the run, counted from 0."""
        ...


Histories = Callable[[Example], Frames] | Renderer
"""What shows an example's history: a callable, which is asked at each use, or a renderer."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A prompt as the model reads it."""

    ids: list[int]
    """With one video token for each token of the clip."""
    clip: Patches


class VideoPrompts:
    """Makes prompts; decodes and patches a clip at each call, so that a caller keeps what it needs again."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, video: VideoProcessor, histories: Histories) -> None:
        self._tokenizer, self._video, self._histories = tokenizer, video, histories
        self._place = tokenizer.convert_tokens_to_ids(VIDEO_TOKEN)

    def ask(self, example: Example, draw: int) -> Asked:
        """The prompt of an example at its place `draw` in the run; raises what its clip raises."""
        renderer = self._histories
        frames = renderer.render(example, draw) if isinstance(renderer, Renderer) else renderer(example)
        clip = self._video(frames)
        return Asked(self._expanded(self._chat(example, frames), self._video.tokens(clip)), clip)

    def reply(self, example: Example) -> list[int]:
        """Token ids of the continuation and of what ends the assistant's turn."""
        turn = [{"role": "user", "content": ""}]
        said = [*turn, {"role": "assistant", "content": format_plan(example.continuation)}]
        return self._ids(self._text(said, ask=False).removeprefix(self._text(turn, ask=True)))

    def _chat(self, example: Example, frames: Frames) -> list[int]:
        return self._ids(self._text(video_messages(example.goal, frames), ask=True))

    def _text(self, messages: Sequence[dict[str, Any]], *, ask: bool) -> str:
        return str(self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=ask))

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _expanded(self, ids: list[int], tokens: int) -> list[int]:
        place = ids.index(self._place)
        return [*ids[:place], *[self._place] * tokens, *ids[place + 1 :]]
