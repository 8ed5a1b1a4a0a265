"""What the frames of a history say of a plan: is a step done already, and can it be done next? Nothing is trained.

A vision-language model is shown the clip up to the cut and one step, and asked two questions whose answers are yes or
no. P(done) and P(next) are read from its distribution over the first token of the answer: of the mass on spellings of
yes and of no, the share of yes. With the setting `frames.weight`, w, they enter the reward:

    R'(c) = R(c) + w F(c),   F(c) = 1/2 [ mean_i (1 - P_done(c_i)) + P_next(c_1) ]

F is 0 for a plan without steps. The narrations and the written history decide R; F rests on pixels alone.
"""

import math
import re
import threading
import weakref
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recipe.artifacts import read_text
from recipe.config import FrameQuestionsConfig, SamplingConfig
from recipe.errors import ComputeError, InputError, quoted
from recipe.models.model import Model, open_model
from recipe.models.protocol import Answer, Chat, ModelRequest, all_answered
from recipe.prompting import fence, fill, packaged
from recipe.reward.embeddings import LruCache
from recipe.reward.scorer import Outcome, Prompt, PromptGroup, Steps
from recipe.types import Example, Frames, Reward

if TYPE_CHECKING:
    from recipe.perception.frames import Clips

QUESTIONS = ("done", "next")
"""Sections of the prompt, each a question about a step."""
LEAST = 0.01
"""Share of the first token's mass on yes and no below which an answer is neither."""
_STEPS_KEPT = 32_768
_NO_FRAMES = Frames(np.zeros((0, 1, 1, 3), np.uint8), np.zeros(0), 1.0)
_NO_LETTERS = re.compile(r"[\W_]+")
"""What tokenizers and models put around a word: blanks, their signs for blanks, points, asterisks."""


class SeenStep(NamedTuple):
    """What the frames of a history say of one step."""

    done: float
    """Probability that it is completed in them already."""
    next: float
    """Probability that it can be carried out next."""


def yes_share(likeliest: Sequence[tuple[str, float]]) -> float | None:
    """The share of yes in the mass that first tokens, with log-probabilities in nats, put on yes and no.

    Spellings of a word count together. None where that mass is below `LEAST`.

    >>> round(yes_share([("Yes", -0.5), ("▁yes", -2.0), (" NO", -1.5), ("The", -3.0)]), 3)
    0.769
    >>> yes_share([("The", -0.1)])
    """
    mass = {"yes": 0.0, "no": 0.0}
    for text, nats in likeliest:
        if (word := _NO_LETTERS.sub("", text).casefold()) in mass:
            mass[word] += math.exp(nats)
    whole = sum(mass.values())
    return mass["yes"] / whole if whole >= LEAST else None


def frames_score(seen: Sequence[SeenStep]) -> float:
    """F of a plan, 0 to 1, from what the frames say of its steps in order.

    >>> frames_score([SeenStep(done=0.0, next=1.0), SeenStep(done=0.5, next=0.0)])
    0.875
    """
    if not seen:
        return 0.0
    return (1.0 - sum(step.done for step in seen) / len(seen) + seen[0].next) / 2


def question_chats(frames: Frames, goal: str, step: str, text: str = "") -> list[Chat]:
    """A chat for each of `QUESTIONS` about one step; all that they share stands first, the clip too, for caches.

    `text` holds the sections of a prompt, by default the packaged one. Raises ValueError for a text that lacks one.
    """
    parts = re.split(r"^\[(\w+)\]$", text or packaged("recipe", "frames"), flags=re.MULTILINE)[1:]
    prompt = dict(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))
    if missing := [name for name in ("shown", "step", *QUESTIONS) if not prompt.get(name)]:
        raise ValueError(f"the section [{missing[0]}] is missing or empty")
    about = fill(prompt["step"], {"goal": fence(goal), "step": fence(step)})
    shown = [{"type": "text", "text": f"{prompt['shown']}\n"}, {"type": "video", "video": frames}]
    asked = [{"type": "text", "text": f"\n{about}\n{prompt[name]}"} for name in QUESTIONS]
    return [[{"role": "user", "content": [*shown, question]}] for question in asked]


class FrameQuestions:
    """Asks one vision-language model about steps and the clips of their histories; safe to share between threads.

    Answers are kept as the settings of the model say, by all that is shown and asked; those of the last steps are in
    memory too.
    """

    def __init__(self, config: FrameQuestionsConfig, model: Model | None = None) -> None:
        """`model` is asked in place of the one that the settings name, which is opened at the first question."""
        self.config = config
        self._model, self._opening = model, threading.Lock()
        self._examples: dict[Prompt, Example] = {}
        self._clips: Clips | None = None
        self._kept = LruCache[tuple[Prompt, str], SeenStep](_STEPS_KEPT)

    @property
    def model(self) -> Model:
        """The model, open as long as this object lives. Raises InputError for one that reads text only."""
        config = self.config
        with self._opening:
            if self._model is None:
                self._model = open_model(config, frames=config.clip)
                weakref.finalize(self, self._model.__exit__, None, None, None)
        if config.endpoint is None and not config.replay and not self._model.reads_video:
            problem = "it reads text only, and is to be shown frames"
            raise InputError.at(f"model {config.model!r}", problem, "name a vision-language model in frames.model")
        return self._model

    def show(self, examples: Sequence[Example], clips: "Clips | None" = None) -> None:
        """Let the histories of these examples be looked at; `clips` gives their frames, by default from the folder of
        the settings.

        Where several examples share goal and history, the clip of the first stands for all: the same steps are done in
        theirs.
        """
        self._clips = clips or self._clips
        for example in examples:
            self._examples.setdefault((example.goal, example.history), example)

    def shows(self, goal: str, history: Steps) -> bool:
        """Whether the video of a prompt is known."""
        return (goal, history) in self._examples

    def seen(self, goal: str, history: Steps, steps: Sequence[str]) -> list[SeenStep]:
        """What the frames of a prompt's history say of each of these steps.

        Raises InputError for a prompt without a video and for a model that gives no probabilities, ComputeError for an
        answer that is neither yes nor no, and what the model raises.
        """
        prompt = (goal, history)
        kept = {step: self._kept.get((prompt, step)) for step in dict.fromkeys(steps)}
        known = {step: seen for step, seen in kept.items() if seen is not None}
        if new := [step for step in kept if step not in known]:
            chats = self._chats(prompt, new)
            sampling = SamplingConfig(temperature=0.0, max_tokens=1, batch_size=self.config.batch_size)
            asked = [ModelRequest(chat, sampling, first_tokens=self.config.first_tokens) for chat in chats]
            answers = iter(all_answered(self.model.answer(asked, refusals="raise")))
            for step in new:
                known[step] = SeenStep(*(self._probability(next(answers), step) for _ in QUESTIONS))
                self._kept.put((prompt, step), known[step])
        return [known[step] for step in steps]

    def mixed(self, groups: Sequence[PromptGroup], rewards: Sequence[Sequence[Outcome]]) -> list[list[Outcome]]:
        """The rewards of each group's plans with F added by its weight; failures stay. Raises as `seen`."""
        weighed = list[list[Outcome]]()
        for group, own in zip(groups, rewards, strict=True):
            every = [step for plan in group.plans for step in plan]
            seen = dict(zip(every, self.seen(group.goal, group.history, every) if every else (), strict=True))
            weighed.append([])
            for plan, reward in zip(group.plans, own, strict=True):
                if not isinstance(reward, Reward):
                    weighed[-1].append(reward)
                    continue
                score = frames_score([seen[step] for step in plan])
                total = reward.total + self.config.weight * score
                weighed[-1].append(replace(reward, total=total, parts=reward.parts | {"frames": score}))
        return weighed

    def _chats(self, prompt: Prompt, steps: Sequence[str]) -> list[Chat]:
        """The questions about each step, in order."""
        goal, _ = prompt
        example = self._examples.get(prompt)
        if example is None:
            raise InputError(
                f"no video is known that shows what was done for {goal!r}, and the reward asks about its frames; "
                "give examples with videos, or leave `frames` out of the reward."
            )
        if self._clips is None:
            if self.config.videos is None:
                problem = f"the reward asks {self.config.model!r} about frames, and no folder of videos is given"
                raise InputError(f"{problem}; give --videos or frames.videos.")
            from recipe.perception.frames import VideoClips  # noqa: PLC0415 - an extra of its own

            self._clips = VideoClips(self.config.videos, self.config.clip)
        frames = self._clips(example)
        return [chat for step in steps for chat in question_chats(frames, goal, step, self._prompt)]

    @cached_property
    def _prompt(self) -> str:
        """The text of the settings' own prompt, empty for the packaged one. Raises InputError for one that is none."""
        if (path := self.config.prompt) is None:
            return ""
        text = read_text(path)
        try:
            question_chats(_NO_FRAMES, "goal", "step", text)
        except ValueError as error:
            remedy = "give it the sections [shown], [step] with $goal and $step, [done] and [next]"
            raise InputError.at(path, f"this is no prompt about frames: {error}", remedy) from None
        return text

    def _probability(self, answer: Answer, step: str) -> float:
        """P(yes) of an answer about a step."""
        named = f"model {self.config.model!r}"
        if not answer.first_tokens:
            problem = "it gives no log-probabilities of tokens, from which the frames are read"
            remedy = "take an endpoint that does, such as vLLM, or one that takes fewer with frames.first_tokens"
            raise InputError.at(named, problem, remedy)
        if (share := yes_share(answer.first_tokens)) is None:
            likeliest = quoted(answer.first_tokens[0][0])
            raise ComputeError(
                f"{named}: its answer about the step {step!r} is neither yes nor no but begins with {likeliest}; "
                "take a model that answers at once, or turn its thought off with frames.extra_body."
            )
        return share
