"""An engine for a causal language model on this machine: a folder, or a model id of the hub.

It differs from the generation of `transformers` in this: sampling is the model's softmax at the given temperature and
nothing else, unless the checkpoint is to be imitated, whose top-k, top-p, min-p and repetition penalty then apply.
Every completion has its own stream of random numbers, and does not depend on what else is in the batch, up to rounding.
The samples of a prompt share its prefill, and rows that have ended leave the batch. A Qwen2.5-VL also answers chats
with a video.
"""

import functools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from recipe.config.models import FrameConfig, SamplingConfig
from recipe.errors import InputError, MissingExtra, quoted
from recipe.models.checkpoints import (
    Checkpoint,
    Reader,
    decode_completions,
    end_tokens,
    load_checkpoint,
    model_errors,
    sampling_settings,
    thought_opening,
)
from recipe.models.decoding import Choose, complete, draws, steps, uniforms
from recipe.models.devices import open_device
from recipe.models.protocol import (
    Answer,
    Chat,
    Engine,
    GrowingText,
    ModelRequest,
    OnAnswer,
    Refusal,
    Refusals,
    Stopped,
    WrittenPieces,
    digest,
    videos,
    without_arrays,
)
from recipe.models.sampling import Decoding, decoding_of
from recipe.models.vision import Patches, VideoProcessor, fast_vision
from recipe.progress import SILENT, Progress
from recipe.prompting import remembered_prompt
from recipe.types import Frames

try:
    import torch
    from jinja2 import TemplateError
except ModuleNotFoundError as error:
    raise MissingExtra("planning with a local model", "encoder") from error


Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A chat as the model reads it."""

    tokens: list[int]
    key: str
    """The chat as JSON, its clip by digest."""
    clip: str | None = None
    """Digest of the clip, if it shows one."""
    frames: Frames | None = None
    opening: str = ""
    """The tag with which it opens a thought: the answer is read with it."""


class Prompts:
    """Renders chats for one checkpoint."""

    def __init__(
        self,
        name: str,
        reader: Reader | Checkpoint,
        video: VideoProcessor | None,
        context: int | None = None,
        template: Mapping[str, Any] | None = None,
    ) -> None:
        """`name` is what errors call the model; `video` makes the patches; `context` bounds prompts, in place of the
        model's own bound; `template` are further arguments of the chat template.
        """
        self._template = template or {}
        self._name, self._video = name, video
        self._tokenizer = reader.tokenizer
        self._opening = thought_opening(reader.tokenizer, template)
        # Stands in a prompt for each token of a clip.
        self.video_token: int = getattr(reader.config, "video_token_id", -1)
        self._known: int | None = getattr(reader.config.get_text_config(), "vocab_size", None)
        self._context: int = context or reader.config.get_text_config().max_position_embeddings

    def render(self, chats: Sequence[Chat]) -> list[EncodedPrompt]:
        """A prompt for each chat; raises InputError for one that the model cannot read or that fills its context."""
        prompts = self.render_all(chats)
        self.require_room(prompts)
        return prompts

    def render_requests(self, requests: Sequence[ModelRequest], refusals: Refusals) -> list[EncodedPrompt | Refusal]:
        """The prompt of each request, or a refusal where it fills the context; as `refusals` says, raises InputError in
        place of one.
        """
        chats = {id(request.chat): request.chat for request in requests}
        of = dict(zip(chats, self.render_all(list(chats.values())), strict=True))
        prompts = [of[id(request.chat)] for request in requests]
        if refusals == "raise":
            self.require_room(prompts)
        return [Refusal(problem) if (problem := self.overflow(prompt)) else prompt for prompt in prompts]

    def require_room(self, prompts: Sequence[EncodedPrompt]) -> None:
        """Raises InputError where the longest prompt fills the model's context."""
        longest = max(prompts, key=lambda prompt: len(prompt.tokens), default=None)
        if longest is not None and (problem := self.overflow(longest)):
            raise InputError(problem)

    def render_all(self, chats: Sequence[Chat]) -> list[EncodedPrompt]:
        """A prompt for each chat, however long; raises InputError for one that the model cannot read."""
        named = functools.cache(digest)
        prompts = []
        for chat in chats:
            shown = videos(chat)
            if len(shown) > 1:
                raise InputError(f"A chat shows {len(shown)} videos; show one.")
            key = json.dumps(without_arrays(chat, named), sort_keys=True)
            if not shown:
                # Parts that are all text as one text: templates of text models read no parts.
                plain = [
                    message
                    if isinstance(message["content"], str)
                    else {**message, "content": "".join(part["text"] for part in message["content"])}
                    for message in chat
                ]
                prompts.append(EncodedPrompt(self._tokens(plain), key, opening=self._opening))
                continue
            if self._video is None:
                problem = "it reads text only and was shown a video"
                remedy = "give a Qwen2.5-VL, or name one that puts the video into words, by --phi or plan.phi"
                raise InputError.at(f"model {self._name!r}", problem, remedy)
            tokens, [clip] = self._tokens(chat), shown
            if tokens.count(self.video_token) != 1:
                problem = f"its chat template writes {tokens.count(self.video_token)} tokens for a video"
                raise InputError.at(f"model {self._name!r}", problem, "give one whose template writes one")
            at = tokens.index(self.video_token)
            tokens[at : at + 1] = [self.video_token] * self._video.tokens(clip)
            prompts.append(EncodedPrompt(tokens, key, named(clip), clip, self._opening))
        return prompts

    def _tokens(self, chat: Chat) -> list[int]:
        try:
            with model_errors(self._name):  # a template or a tokenizer may raise anything
                rendered: list[int] = self._tokenizer.apply_chat_template(
                    chat, tokenize=True, add_generation_prompt=True, return_dict=False, **self._template
                )
        except InputError as error:
            if not isinstance(error.__cause__, TemplateError):
                raise
            problem = f"its chat template refuses the chat ({quoted(str(error.__cause__))})"
            raise InputError.at(f"model {self._name!r}", problem, "give a model whose template takes it") from error
        if not rendered:
            problem = "its chat template writes no token for the chat"
            raise InputError.at(f"model {self._name!r}", problem, "give a model whose template takes it")
        if self._known is not None and max(rendered) >= self._known:
            problem = f"its tokenizer gives the token {max(rendered)} where its weights know {self._known}"
            raise InputError.at(f"model {self._name!r}", problem, "restore the files of the model")
        return rendered

    def overflow(self, prompt: EncodedPrompt) -> str | None:
        """What is wrong with a prompt that fills the model's context and what to do, None for any other."""
        if len(prompt.tokens) < self._context:
            return None
        remedy = "shorten the history" if prompt.frames is None else "take fewer or smaller frames"
        taken = f"a prompt of {len(prompt.tokens)} tokens"
        return f"{taken} leaves no room in the model's context of {self._context}; {remedy}."


class _ClipPatches:
    """Patches of prompts' clips, a batch at a time: made once for those that a batch shares or the last one had."""

    def __init__(self, video: VideoProcessor | None) -> None:
        self._video = video
        self._made: dict[str, Patches] = {}

    def of(self, prompts: Sequence[EncodedPrompt]) -> list[Patches | None] | None:
        """What each prompt shows; None where none shows a clip."""
        kept, self._made = self._made, {}
        for prompt in prompts:
            if self._video is not None and prompt.clip is not None and prompt.clip not in self._made:
                assert prompt.frames is not None
                self._made[prompt.clip] = kept.get(prompt.clip) or self._video(prompt.frames)
        return [self._made[prompt.clip] if prompt.clip else None for prompt in prompts] if self._made else None


class LocalEngine(Engine):
    """Completes chats with a causal language model; bfloat16 on a GPU, float32 on the CPU."""

    def __init__(
        self,
        model: str | Path,
        revision: str | None = None,
        device: str | None = None,
        frames: FrameConfig | None = None,
        template: Mapping[str, Any] | None = None,
    ) -> None:
        """Load a model folder or hub id; raises InputError when there is none or it has no chat template.

        `frames` may bound the area of frames, in place of the model's own bounds; `template` are further arguments of
        the chat template.
        """
        self._device = open_device(device)
        dtype = torch.bfloat16 if self._device.type == "cuda" else torch.float32
        checkpoint = load_checkpoint(str(model), revision, dtype)
        self.prompt = remembered_prompt(model)
        self._checkpoint = functools.cache(functools.partial(sampling_settings, str(model), revision))
        self.module, self._tokenizer = checkpoint.model.to(self._device).eval(), checkpoint.tokenizer
        if self._device.type == "cpu":
            fast_vision(self.module)
        self._video = checkpoint.video.within(frames) if checkpoint.video and frames else checkpoint.video
        self._prompts = Prompts(str(model), checkpoint, self._video, template=template)
        self.reads_video = self._video is not None
        self._ends = end_tokens(self.module.generation_config, self._tokenizer)
        self._context: int = self.module.config.get_text_config().max_position_embeddings

    def answer(
        self,
        requests: Sequence[ModelRequest],
        progress: Progress = SILENT,
        *,
        on_answer: OnAnswer | None = None,
        refusals: Refusals = "return",
    ) -> list[Answer | Refusal]:
        """An answer to each request, with its tokens and its share of its batch's time; a `schema` is not followed.

        A chat that fills the model's context is refused. Log-probabilities are those of the model's softmax at
        temperature 1, whatever the sampling.
        """
        rendered = self._prompts.render_requests(requests, refusals)
        outcomes: list[Answer | Refusal | None] = [item if isinstance(item, Refusal) else None for item in rendered]
        groups: dict[tuple[SamplingConfig, bool], list[tuple[int, EncodedPrompt]]] = {}
        for place, (request, prompt) in enumerate(zip(requests, rendered, strict=True)):
            if isinstance(prompt, EncodedPrompt):
                groups.setdefault((request.sampling, request.logprobs), []).append((place, prompt))
        for (sampling, logprobs), asked in groups.items():
            places = [place for place, _ in asked]
            rows = [(requests[place].sample, prompt) for place, prompt in asked]
            for at, answer in self._written(rows, sampling, logprobs, progress):
                outcomes[places[at]] = answer
                if on_answer:
                    on_answer(places[at], answer)
        return [outcome for outcome in outcomes if outcome is not None]

    def _written(
        self,
        rows: Sequence[tuple[int, EncodedPrompt]],
        sampling: SamplingConfig,
        logprobs: bool,
        progress: Progress,
    ) -> Iterator[tuple[int, Answer]]:
        """The place of each row, a sample of a prompt that fits the context, and its answer, as batches end."""
        # Shortest prompts first, so that little is padding.
        order = sorted(range(len(rows)), key=lambda row: len(rows[row][1].tokens))
        # Where all samples of a prompt fit into a batch, none are torn from it: the prompt would be read again.
        count = 1 + max(sample for sample, _ in rows)
        size = sampling.batch_size // count * count or sampling.batch_size
        card = decoding_of(sampling, self._checkpoint)
        clips = _ClipPatches(self._video)
        with progress.task("writing plans", total=len(rows)) as advance:
            for batch in _batches(order, size):
                began = time.monotonic()
                prompts = [rows[row][1] for row in batch]
                keys = [f"{sampling.seed} {rows[row][0]} {rows[row][1].key}" for row in batch]
                draw = _draws(keys, prompts, sampling, card, self._device)
                seen = _LogProbabilities(draw, len(batch), self._device)
                choose = seen if logprobs else draw
                with torch.inference_mode():
                    written = complete(
                        self.module,
                        [prompt.tokens for prompt in prompts],
                        choose,
                        ends=self._ends,
                        longest=sampling.max_tokens,
                        context=self._context,
                        clips=clips.of(prompts),
                        advance=advance,
                    )
                texts = self._decode(written, prompts)
                seconds = round((time.monotonic() - began) / len(batch), 3)
                means = seen.means() if logprobs else [None] * len(batch)
                answered = zip(batch, prompts, written, texts, means, strict=True)
                for row, prompt, tokens, text, mean in answered:
                    count, finish = len(prompt.tokens), "stop" if tokens and tokens[-1] in self._ends else "length"
                    yield row, Answer(text, count, len(tokens), seconds, logprob=mean, finish=finish, decoding=card)

    def stream_all(self, requests: Sequence[ModelRequest], stopped: Stopped = lambda _: False) -> WrittenPieces:
        """As the base class; the texts are those of `answer`, written in batches in the order of requests.

        Log-probabilities are not given.
        """
        groups: dict[Decoding, list[tuple[int, EncodedPrompt]]] = {}
        for place, prompt in enumerate(self._prompts.render_requests(requests, "return")):
            if isinstance(prompt, Refusal):
                yield place, prompt
            else:
                card = decoding_of(requests[place].sampling, self._checkpoint)
                groups.setdefault(card, []).append((place, prompt))
        for card, group in groups.items():
            size = min(requests[place].sampling.batch_size for place, _ in group)
            for batch in _batches(group, size):
                wanted = [(place, prompt) for place, prompt in batch if not stopped(place)]
                if wanted:
                    yield from self._streamed(wanted, requests, card, stopped)

    def _streamed(
        self,
        rows: Sequence[tuple[int, EncodedPrompt]],
        requests: Sequence[ModelRequest],
        card: Decoding,
        stopped: Stopped,
    ) -> WrittenPieces:
        """A batch of requests that are sampled alike."""
        began = time.monotonic()
        places, prompts = [place for place, _ in rows], [prompt for _, prompt in rows]
        sampling = requests[places[0]].sampling
        keys = [f"{requests[at].sampling.seed} {requests[at].sample} {prompt.key}" for at, prompt in rows]
        drawn = _draws(keys, prompts, sampling, card, self._device)
        given_up = set[int]()

        def choose(logits: torch.Tensor, rows: torch.Tensor, step: int) -> torch.Tensor:
            chosen = drawn(logits, rows, step)
            unwanted = [row for row in rows.tolist() if stopped(places[row])]
            if unwanted and self._ends:
                given_up.update(unwanted)
                # An end in place of its token takes it out of the batch.
                chosen[torch.isin(rows, torch.tensor(unwanted, device=rows.device))] = self._ends[0]
            return chosen

        made = steps(
            self.module,
            [prompt.tokens for prompt in prompts],
            choose,
            ends=self._ends,
            longest=sampling.max_tokens,
            context=self._context,
            clips=_ClipPatches(self._video).of(prompts),
        )
        tokens: list[list[int]] = [[] for _ in rows]
        texts = [GrowingText() for _ in rows]
        while True:
            # Entered anew at every token: the code of the caller between two pieces is not ours.
            with torch.inference_mode():
                step = next(made, None)
            if step is None:
                return
            for row, token, ended in zip(*step, strict=True):
                if row in given_up:
                    continue
                tokens[row].append(token)
                text = self._decode([tokens[row]], [prompts[row]])[0]
                piece = texts[row].grown(text) + (texts[row].rest() if ended else "")
                if piece:
                    yield places[row], piece
                if ended:
                    seconds = round(time.monotonic() - began, 3)
                    counts = len(prompts[row].tokens), len(tokens[row])
                    finish = "stop" if token in self._ends else "length"
                    yield places[row], Answer(texts[row].text, *counts, seconds, finish=finish, decoding=card)

    def _decode(self, rows: list[list[int]], prompts: Sequence[EncodedPrompt]) -> list[str]:
        bare = [row[:-1] if row[-1] in self._ends else row for row in rows]
        texts = decode_completions(self._tokenizer, bare)
        return [f"{prompt.opening}{text}" for prompt, text in zip(prompts, texts, strict=True)]


def _batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _draws(
    keys: Sequence[str],
    prompts: Sequence[EncodedPrompt],
    sampling: SamplingConfig,
    card: Decoding,
    device: torch.device,
) -> Choose:
    """Each completion's tokens by a stream of its own for each key, which holds the seed."""
    numbers = uniforms(keys, sampling.max_tokens).to(device)
    assert card.temperature.value is not None
    return draws(numbers, card.temperature.value, card=card, prompts=[prompt.tokens for prompt in prompts])


class _LogProbabilities:
    """Chooses as another function does, and sums the log-probabilities of the chosen tokens."""

    def __init__(self, choose: Choose, rows: int, device: torch.device) -> None:
        self._choose = choose
        self._total = torch.zeros(rows, dtype=torch.float64, device=device)
        self._tokens = torch.zeros(rows, dtype=torch.float64, device=device)

    def __call__(self, logits: torch.Tensor, rows: torch.Tensor, step: int) -> torch.Tensor:
        chosen = self._choose(logits, rows, step)
        # In bfloat16 a log-probability would have 8 significant bits.
        every = torch.log_softmax(logits.float(), dim=-1)
        nats = every.gather(-1, chosen[:, None]).squeeze(-1)
        self._total[rows] += nats.double()
        self._tokens[rows] += 1
        return chosen

    def means(self) -> list[float | None]:
        """Mean log-probability in nats of a token of each row."""
        return [*(self._total / self._tokens).tolist()]
