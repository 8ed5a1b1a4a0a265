"""Chats as a local model reads them: token ids, with a token for each piece of a clip, and the clip's patches.

A clip is named by the digest of its frames, so that equal ones are patched once and draw the same random numbers.
"""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recipe.checkpoints import Checkpoint
from recipe.engines.protocol import Chat, digest, videos, without_arrays
from recipe.errors import InputError
from recipe.types import Frames
from recipe.vision import Patches, VideoProcessor


@dataclass(frozen=True, slots=True)
class Prompt:
    """A chat as the model reads it."""

    tokens: list[int]
    key: str
    """The chat as JSON, its clip by digest."""
    clip: str | None = None
    """Digest of the clip, if it shows one."""
    frames: Frames | None = None


class Prompts:
    """Renders chats for one checkpoint."""

    def __init__(self, name: str, checkpoint: Checkpoint, video: VideoProcessor | None) -> None:
        """`name` is what errors call the model; `video` makes the patches."""
        self._name, self._video = name, video
        self._tokenizer = checkpoint.tokenizer
        self._place: int = getattr(checkpoint.model.config, "video_token_id", -1)
        self._context: int = checkpoint.model.config.get_text_config().max_position_embeddings

    def render(self, chats: Sequence[Chat]) -> list[Prompt]:
        """A prompt for each chat; raises InputError for one that the model cannot read or that fills its context."""
        prompts = self.render_all(chats)
        longest = max(prompts, key=lambda prompt: len(prompt.tokens), default=None)
        if longest is not None and (problem := self.overflow(longest)):
            raise InputError(problem)
        return prompts

    def render_all(self, chats: Sequence[Chat]) -> list[Prompt]:
        """A prompt for each chat, however long; raises InputError for one that the model cannot read."""
        named = functools.cache(digest)
        prompts = []
        for chat in chats:
            shown = videos(chat)
            if len(shown) > 1:
                raise InputError(f"A chat shows {len(shown)} videos; show one.")
            key = json.dumps(without_arrays(chat, named), sort_keys=True)
            if shown:
                prompts.append(Prompt(self._with_video(chat, shown[0]), key, named(shown[0]), shown[0]))
            else:
                prompts.append(Prompt(self._tokens([_flat(message) for message in chat]), key))
        return prompts

    def _tokens(self, chat: Chat) -> list[int]:
        rendered: list[int] = self._tokenizer.apply_chat_template(
            chat, tokenize=True, add_generation_prompt=True, return_dict=False
        )
        return rendered

    def _with_video(self, chat: Chat, frames: Frames) -> list[int]:
        if self._video is None:
            problem = "it reads text only and was shown a video"
            raise InputError.at(
                f"model {self._name!r}", problem, "give a Qwen2.5-VL, or put the video into words with --phi"
            )
        tokens = self._tokens(chat)
        if tokens.count(self._place) != 1:
            problem = f"its chat template writes {tokens.count(self._place)} tokens for a video"
            raise InputError.at(f"model {self._name!r}", problem, "give one whose template writes one")
        place = tokens.index(self._place)
        return [*tokens[:place], *[self._place] * self._video.tokens(frames), *tokens[place + 1 :]]

    def overflow(self, prompt: Prompt) -> str | None:
        """What is wrong with a prompt that fills the model's context and what to do, None for any other."""
        if len(prompt.tokens) < self._context:
            return None
        remedy = "shorten the history" if prompt.frames is None else "take fewer or smaller frames"
        taken = f"a prompt of {len(prompt.tokens)} tokens"
        return f"{taken} leaves no room in the model's context of {self._context}; {remedy}."


def _flat(message: dict[str, Any]) -> dict[str, Any]:
    """A message whose parts are all text as one text: templates of text models read no parts."""
    content = message["content"]
    return message if isinstance(content, str) else {**message, "content": "".join(part["text"] for part in content)}


class ClipPatches:
    """Patches of prompts' clips, a batch at a time: made once for those that a batch shares or the last one had."""

    def __init__(self, video: VideoProcessor | None) -> None:
        self._video = video
        self._made: dict[str, Patches] = {}

    def of(self, prompts: Sequence[Prompt]) -> list[Patches | None] | None:
        """What each prompt shows; None where none shows a clip."""
        kept, self._made = self._made, {}
        for prompt in prompts:
            if self._video is not None and prompt.clip is not None and prompt.clip not in self._made:
                assert prompt.frames is not None
                self._made[prompt.clip] = kept.get(prompt.clip) or self._video(prompt.frames)
        return [self._made[prompt.clip] if prompt.clip else None for prompt in prompts] if self._made else None
