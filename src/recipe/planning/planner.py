"""The planner: requests in, plans out, whatever engine writes them.

In the Video configuration a clip stands in place of the written history (paper, section 3.1).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import NamedTuple

from recipe.config.models import SamplingConfig
from recipe.errors import InputError, quoted
from recipe.models.protocol import Answer, Chat, Engine, ModelRequest, Refusal, Stopped, all_answered
from recipe.plan_text import parse_plan
from recipe.planning.predictions import Prediction
from recipe.progress import SILENT, Advance, Progress
from recipe.prompting import PlannerPrompt
from recipe.step_lines import listed_steps
from recipe.text import as_steps, final_answer, whole_text
from recipe.types import Example, Frames, Malformed, Plan, Reward

FRAME_BYTES = 300_000_000
"""Bytes of frames of a call, from which on it takes no further clip: about 32,000 tokens of a Qwen2.5-VL."""


def read_plan(answer: Answer) -> Plan | Malformed:
    """The plan in an answer (`parse_plan`), or why it holds none."""
    if answer.refusal and not answer.text.strip():
        return Malformed(f"refused: {quoted(answer.refusal)}", answer.refusal)
    if answer.finish == "content_filter":
        return Malformed("stopped by the endpoint's content filter", answer.text)
    if answer.cut and not answer.text.strip():
        return Malformed("the completion is cut off before its answer", answer.text)
    return parse_plan(answer.text, cut=answer.cut)


def prediction_of(example_id: str, sample: int, answer: Answer | str, reward: Reward | None = None) -> Prediction:
    """The prediction that a model's answer, or the text of one, makes."""
    answer = Answer(answer) if isinstance(answer, str) else answer
    plan = read_plan(answer)
    steps, reason = (plan.steps, None) if isinstance(plan, Plan) else ((), plan.reason)
    total, gated = (reward.total, reward.gated) if reward else (None, None)
    text, cut = answer.text or answer.refusal, answer.cut or None
    return Prediction(example_id, steps, sample, text, cut, reason, total, gated, decoding=answer.decoding)


_WHOLE = Answer("")
# Characters of a line within which its mark is looked for as it is written.
_MARK_LENGTH = 12


class GrowingPlan:
    """The steps of a completion that arrives in pieces, each given once the next begins: only then it has no substeps.

    Together they are what `parse_plan` reads in the whole text. What has no marks, or is no list of lines, waits for
    the end. Where more of the text tells that what came was a thought or a heading, the steps begin again: those given
    last are then all steps so far.

    >>> plan = GrowingPlan()
    >>> [plan.grown("1. Boil"), plan.grown(" water\\n2. St"), plan.grown("eep the tea"), plan.rest()]
    [(), ('Boil water',), (), ('Steep the tea',)]
    """

    def __init__(self) -> None:
        self.steps: tuple[str, ...] = ()
        self._text = ""

    def grown(self, piece: str) -> tuple[str, ...]:
        """The steps that a further piece completes."""
        self._text += piece
        begun = self._text.rpartition("\n")[2]
        # The mark of the next step ends a step, and marks are at the beginning of a line.
        if "\n" not in piece and len(begun) > _MARK_LENGTH:
            return ()
        # The last step may go on, or get steps below it, which take its place.
        return self._new(listed_steps(final_answer(self._text) or "")[:-1])

    def rest(self, end: Answer = _WHOLE) -> tuple[str, ...]:
        """The steps that the end of the text completes; `end` tells how it came."""
        plan = read_plan(end._replace(text=self._text))
        return self._new(plan.steps if isinstance(plan, Plan) else ())

    def _new(self, steps: tuple[str, ...]) -> tuple[str, ...]:
        known, self.steps = self.steps, steps
        return steps[len(known) :] if steps[: len(known)] == known else steps


class PlanDraft(NamedTuple):
    """One plan to be written: a sample of a request."""

    request: "Request"
    sample: int = 0
    seed: int = 0


class WrittenSteps(NamedTuple):
    """What came of a draft: steps that are complete, and at its end the answer or refusal."""

    draft: int
    """Its place among the drafts."""
    steps: tuple[str, ...]
    outcome: Answer | Refusal | None = None
    before: int = 0
    """Number of steps before these; 0 again where those that came were a thought."""


@dataclass(frozen=True, slots=True)
class Request:
    """A goal and what has been done: steps in words, of which there may be none, or frames that show them."""

    goal: str
    history: tuple[str, ...] = ()
    video: Frames | None = None

    def __post_init__(self) -> None:
        if not whole_text("goal", self.goal).strip():
            raise InputError("the goal is empty; give it a text.")
        if any(not step.strip() for step in as_steps(self.history)):
            raise InputError("a step of the history is empty; leave it out or write it.")
        if self.history and self.video is not None:
            raise InputError("the history is given in words and as a video; give one of them.")

    @classmethod
    def of(cls, example: Example) -> "Request":
        """The request for an example: its goal and history."""
        return cls(example.goal, example.history)

    def chat(self, prompt: PlannerPrompt) -> Chat:
        """The chat for the engine."""
        if self.video is not None:
            return prompt.video_chat(self.goal, self.video)
        return prompt.chat(self.goal, self.history)


class Planner:
    """Asks an engine for the rest of procedures and reads its answers."""

    def __init__(
        self, engine: Engine, sampling: SamplingConfig | None = None, prompt: PlannerPrompt | None = None
    ) -> None:
        """Without a prompt the engine's own is taken, that is, the one that its model was trained with."""
        self._prompt = prompt or engine.prompt
        self.engine = engine
        self._sampling = sampling or SamplingConfig()

    def complete(
        self, requests: Sequence[Request], count: int = 1, progress: Progress = SILENT
    ) -> list[list[Answer | Refusal]]:
        """`count` raw answers to each request, or refusals of one that is too long or filtered.

        Raises InputError unless `count` is positive, and where all are refused.
        """
        if count < 1:
            raise InputError(f"{count} plans were asked for; ask for at least one.")
        chats = [request.chat(self._prompt) for request in requests]
        return self.engine.outcomes(chats, count, self._sampling, progress)

    def write(self, drafts: Sequence[PlanDraft], stopped: Stopped = lambda _: False) -> Iterator[WrittenSteps]:
        """The steps of several plans as they are written side by side; each draft's last has its outcome.

        A draft that is `stopped` is written no further and has none. Raises as the engine's `stream_all`.
        """
        plans = [GrowingPlan() for _ in drafts]
        with closing(self.engine.stream_all(self.requests(drafts), stopped)) as written:
            for place, piece in written:
                plan, known = plans[place], plans[place].steps
                if isinstance(piece, str):
                    steps, outcome = plan.grown(piece), None
                else:
                    steps, outcome = plan.rest(piece) if isinstance(piece, Answer) else (), piece
                if steps or outcome is not None or plan.steps != known:
                    yield WrittenSteps(place, steps, outcome, len(plan.steps) - len(steps))

    def requests(self, drafts: Sequence[PlanDraft]) -> list[ModelRequest]:
        """What the engine is asked for each draft."""
        # One chat for all samples of a request: an engine reads a prompt once, and tells prompts apart by identity.
        chats = {id(draft.request): draft.request.chat(self._prompt) for draft in drafts}
        samplings = {
            seed: self._sampling.model_copy(update={"seed": self._sampling.seed + seed})
            for seed in {draft.seed for draft in drafts}
        }
        return [ModelRequest(chats[id(draft.request)], samplings[draft.seed], draft.sample) for draft in drafts]

    def plan(
        self, requests: Sequence[Request], count: int = 1, progress: Progress = SILENT
    ) -> list[list[Plan | Malformed]]:
        """`count` plans of each request, a completion without steps as Malformed.

        Raises InputError where a request is refused.
        """
        return [list(map(read_plan, all_answered(own))) for own in self.complete(requests, count, progress)]

    def predict(
        self,
        examples: Sequence[Example],
        count: int = 1,
        progress: Progress = SILENT,
        see: Callable[[Example], Request] = Request.of,
        unanswered: dict[str, str] | None = None,
    ) -> list[Prediction]:
        """`count` predictions of each example, in order of examples and then samples.

        `see` makes the request of an example. Requests that show clips are made for one call after the other, so that
        only some clips are in memory. `unanswered` takes the reason for each example whose request is refused, which
        has then no prediction; without it, a refusal raises InputError.
        """
        outcomes: list[list[Answer | Refusal]] = []
        with ExitStack() as stack:
            advance: Advance | None = None
            call: list[Request] = []
            size = 0
            for number, request in enumerate(map(see, examples), start=1):
                call.append(request)
                size += 0 if request.video is None else request.video.images.nbytes
                # Without clips all requests go in one call, in which an engine sorts them into batches.
                if size < FRAME_BYTES and number < len(examples):
                    continue
                if advance is None and len(call) < len(examples):
                    advance = stack.enter_context(progress.task("planning from videos", total=len(examples)))
                outcomes += self.complete(call, count, SILENT if advance else progress)
                if advance:
                    advance(len(call))
                call.clear()
                size = 0
        predictions = []
        for example, own in zip(examples, outcomes, strict=True):
            if unanswered is not None and (refused := [outcome for outcome in own if isinstance(outcome, Refusal)]):
                unanswered[example.example_id] = refused[0].reason
                continue
            answers = enumerate(all_answered(own))
            predictions += [prediction_of(example.example_id, sample, answer) for sample, answer in answers]
        return predictions
