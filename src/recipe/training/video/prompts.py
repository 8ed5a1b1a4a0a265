"""Prompts of the Video configuration: goal and clip, as token ids and patches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from recipe.checkpoints import Checkpoint
from recipe.engines.prompts import Prompts
from recipe.errors import InputError
from recipe.text import format_plan, video_messages
from recipe.types import Example, Frames
from recipe.vision import Patches

SILENCED = ("<|video_pad|>", "<|image_pad|>")
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
    """Makes prompts as the planner's engine does; decodes and patches a clip at each call, and keeps none."""

    def __init__(self, name: str, policy: Checkpoint, histories: Histories) -> None:
        """`name` is what errors call the policy; raises InputError for one that reads text only."""
        if policy.video is None:
            remedy = "give a Qwen2.5-VL model, or set input = 'text'"
            raise InputError.at(f"model {name!r}", "it has no visual encoder and cannot read videos", remedy)
        self._prompts, self._video = Prompts(name, policy, policy.video), policy.video
        self._tokenizer, self._histories = policy.tokenizer, histories

    def ask(self, example: Example, draw: int) -> Asked:
        """The prompt of an example at its place `draw` in the run; raises what its clip raises."""
        renderer = self._histories
        frames = renderer.render(example, draw) if isinstance(renderer, Renderer) else renderer(example)
        [prompt] = self._prompts.render([video_messages(example.goal, frames)])
        return Asked(prompt.tokens, self._video(frames))

    def reply(self, example: Example) -> list[int]:
        """Token ids of the continuation and of what ends the assistant's turn."""
        turn = {"role": "user", "content": ""}
        said = {"role": "assistant", "content": format_plan(example.continuation)}
        text = self._text([turn, said], ask=False).removeprefix(self._text([turn], ask=True))
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _text(self, messages: Sequence[dict[str, str]], *, ask: bool) -> str:
        return str(self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=ask))
