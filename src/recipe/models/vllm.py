"""An engine for a model that vLLM runs in this process: continuous batching, for many prompts on a GPU.

It samples as the other engine of this machine does: the model's softmax at the given temperature and nothing else,
unless the checkpoint is to be imitated, and a seed of its own for every completion. The random numbers are vLLM's, so
that the completions are others.
"""

import functools
import hashlib
import itertools
import os
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from typing import Any

import torch
import transformers

from recipe.config.models import FrameConfig, ModelConfig
from recipe.errors import InputError, MissingExtra, quoted
from recipe.models.checkpoints import (
    decode_completions,
    end_tokens,
    load_reader,
    location,
    sampling_settings,
)
from recipe.models.local import EncodedPrompt, Prompts
from recipe.models.protocol import (
    Answer,
    Engine,
    GrowingText,
    ModelRequest,
    OnAnswer,
    Refusal,
    Refusals,
    Stopped,
    WrittenPieces,
)
from recipe.models.sampling import Decoding, decoding_of
from recipe.models.vision import VideoProcessor
from recipe.progress import SILENT, Progress
from recipe.prompting import remembered_prompt
from recipe.types import Frames

# Read as vLLM is imported, which writes its log between our results otherwise.
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
try:
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams
except ModuleNotFoundError as error:
    raise MissingExtra("a model that vLLM runs", "vllm") from error

Job = tuple[dict[str, Any], Any]
"""A prompt as vLLM takes it, and its sampling parameters."""


class VllmEngine(Engine):
    """Completes chats with a causal language model; bfloat16 on a GPU, float32 on the CPU."""

    def __init__(self, config: ModelConfig, frames: FrameConfig | None = None) -> None:
        """Load the model of the settings; raises InputError where there is none, and where vLLM cannot run it.

        `frames` may bound the area of frames, in place of the model's own bounds.
        """
        if config.device is not None:
            raise InputError(
                f"--device {config.device} goes with --engine transformers; vLLM takes the first GPU that "
                "CUDA_VISIBLE_DEVICES names."
            )
        reader, place = load_reader(config.model, config.revision), location(config.model, config.revision)
        self.prompt = remembered_prompt(config.model)
        self._tokenizer, self._structured = reader.tokenizer, config.structured
        self._video = reader.video.within(frames) if reader.video and frames else reader.video
        try:
            settings = transformers.GenerationConfig.from_pretrained(place, revision=config.revision)
        except OSError:
            settings = transformers.GenerationConfig.from_model_config(reader.config)
        self._ends = end_tokens(settings, reader.tokenizer)
        self._checkpoint = functools.cache(functools.partial(sampling_settings, config.model, config.revision))
        try:
            self._llm = LLM(
                place,
                revision=config.revision,
                tokenizer_revision=config.revision,
                **precision(bf16=torch.cuda.is_available()),
                **one_video(reader.video),
                gpu_memory_utilization=config.engine_memory,
                max_model_len=-1,  # the model's own, or what fits into the memory
                generation_config="vllm",  # nothing of the checkpoint's, which is read here
                logprobs_mode="raw_logprobs",  # of the softmax itself, before temperature and cuts
                use_tqdm_on_load=False,
            )
        except (ValueError, RuntimeError, ImportError) as error:
            problem = f"vLLM cannot run it ({quoted(str(error))})"
            raise InputError.at(f"model {config.model!r}", problem, "leave --engine vllm out, or see above") from error
        self._engine = self._llm.llm_engine
        context = self._engine.model_config.max_model_len
        template = config.extra_body.get("chat_template_kwargs")
        self._prompts = Prompts(config.model, reader, self._video, context, template)
        self._numbers = itertools.count()
        self.reads_video = self._video is not None

    def answer(
        self,
        requests: Sequence[ModelRequest],
        progress: Progress = SILENT,
        *,
        on_answer: OnAnswer | None = None,
        refusals: Refusals = "return",
    ) -> list[Answer | Refusal]:
        """An answer to each request, with its tokens and the seconds since its start; held to a `schema` as the
        settings say.

        As many are under way at once as the sampling's `batch_size`. A chat that fills the model's context is refused.
        Log-probabilities are those of the model's softmax at temperature 1, whatever the sampling.
        """
        rendered = self._prompts.render_requests(requests, refusals)
        outcomes: list[Answer | Refusal | None] = [item if isinstance(item, Refusal) else None for item in rendered]
        admitted = [(place, prompt) for place, prompt in enumerate(rendered) if isinstance(prompt, EncodedPrompt)]
        jobs = (self._job(prompt, requests[place]) for place, prompt in admitted)
        together = max((request.sampling.batch_size for request in requests), default=1)
        with (
            progress.task("writing plans", total=len(admitted)) as advance,
            closing(self._outputs(jobs, together)) as made,
        ):
            for at, output, seconds in made:
                if not output.finished:
                    continue
                place, prompt = admitted[at]
                answer = self._answer(requests[place], prompt, output.outputs[0], seconds)
                outcomes[place] = answer
                advance(1)
                if on_answer:
                    on_answer(place, answer)
        return [outcome for outcome in outcomes if outcome is not None]

    def stream_all(self, requests: Sequence[ModelRequest], stopped: Stopped = lambda _: False) -> WrittenPieces:
        """As the base class; as many are written at once as the sampling's `batch_size`."""
        rendered = self._prompts.render_requests(requests, "return")
        yield from ((place, prompt) for place, prompt in enumerate(rendered) if isinstance(prompt, Refusal))
        admitted = [(place, prompt) for place, prompt in enumerate(rendered) if isinstance(prompt, EncodedPrompt)]
        jobs = (self._job(prompt, requests[place]) for place, prompt in admitted)
        together = max((request.sampling.batch_size for request in requests), default=1)
        texts = [GrowingText() for _ in admitted]
        with closing(self._outputs(jobs, together, lambda at: stopped(admitted[at][0]))) as made:
            for at, output, seconds in made:
                place, prompt = admitted[at]
                piece = texts[at].grown(self._decode(output.outputs[0].token_ids, prompt))
                piece += texts[at].rest() if output.finished else ""
                if piece:
                    yield place, piece
                if output.finished:
                    yield place, self._answer(requests[place], prompt, output.outputs[0], seconds)

    def __exit__(self, *_: object) -> None:
        self._engine.engine_core.shutdown()

    def _outputs(
        self, jobs: Iterable[Job], together: int, stopped: Stopped = lambda _: False
    ) -> Generator[tuple[int, Any, float], None, None]:
        """The place of a job, its completion so far and the seconds since it began, at each token of each job.

        Jobs that are `stopped` leave the engine before its next token.
        """
        waiting = enumerate(jobs)
        running: dict[str, tuple[int, float]] = {}
        try:
            while True:
                for place, (prompt, parameters) in itertools.islice(waiting, together - len(running)):
                    name = str(next(self._numbers))
                    self._engine.add_request(name, prompt, parameters)
                    running[name] = place, time.monotonic()
                if unwanted := [name for name, (place, _) in running.items() if stopped(place)]:
                    self._engine.abort_request(unwanted)
                    running = {name: known for name, known in running.items() if name not in unwanted}
                    continue
                if not running:
                    return
                outputs = self._engine.step()
                begun = [
                    running.pop(output.request_id) if output.finished else running[output.request_id]
                    for output in outputs
                ]
                for (place, began), output in zip(begun, outputs, strict=True):
                    yield place, output, time.monotonic() - began
        finally:  # after Ctrl-C as well: the next call must not meet them
            self._engine.abort_request(list(running))

    def _job(self, prompt: EncodedPrompt, request: ModelRequest) -> Job:
        sampling = request.sampling
        held: dict[str, Any] = {}
        if request.schema is not None and self._structured == "json_object":
            held = {"structured_outputs": StructuredOutputsParams(json_object=True)}
        elif request.schema is not None and self._structured != "off":
            held = {"structured_outputs": StructuredOutputsParams(json=request.schema["schema"])}
        parameters = SamplingParams(
            **sampling_fields(decoding_of(sampling, self._checkpoint)),
            seed=seed_of(f"{sampling.seed} {request.sample} {prompt.key}"),
            stop_token_ids=self._ends,
            logprobs=0 if request.logprobs else None,  # 0 is the chosen token's alone
            detokenize=False,
            **held,
        )
        return engine_prompt(prompt.tokens, self._prompts.video_token, prompt.frames, self._video), parameters

    def _answer(self, request: ModelRequest, prompt: EncodedPrompt, completion: Any, seconds: float) -> Answer:
        tokens = completion.token_ids
        structured = "" if request.schema is None else self._structured.replace("auto", "json_schema")
        logprob = completion.cumulative_logprob / len(tokens) if request.logprobs else None
        counts, finish = (len(prompt.tokens), len(tokens)), str(completion.finish_reason or "")
        text, seconds = self._decode(tokens, prompt), round(seconds, 3)
        made = Answer(text, *counts, seconds, logprob=logprob, structured=structured, finish=finish)
        return made._replace(decoding=decoding_of(request.sampling, self._checkpoint))

    def _decode(self, tokens: Sequence[int], prompt: EncodedPrompt) -> str:
        bare = tokens[:-1] if tokens and tokens[-1] in self._ends else tokens
        return prompt.opening + decode_completions(self._tokenizer, [bare])[0]


def sampling_fields(card: Decoding) -> dict[str, Any]:
    """The fields of vLLM's sampling parameters, all of a card."""
    return {name: setting.value for name, setting in card.settings().items()}


def seed_of(key: str) -> int:
    """vLLM's seed of a completion, 63 bits: its random numbers belong to its key."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1


def precision(*, bf16: bool) -> dict[str, Any]:
    """Options of an engine: what it computes in, and on a CPU no compilation, which takes a minute there."""
    return {"dtype": "bfloat16" if bf16 else "float32", "enforce_eager": not torch.cuda.is_available()}


def one_video(video: VideoProcessor | None) -> dict[str, Any]:
    """Options of an engine: a prompt shows one video, and no images."""
    return {} if video is None else {"limit_mm_per_prompt": {"image": 0, "video": 1}}


def engine_prompt(
    tokens: Sequence[int], video_token: int, frames: Frames | None, video: VideoProcessor | None
) -> dict[str, Any]:
    """A prompt as vLLM takes it.

    `tokens` have a video token for each token of the clip. vLLM is given one, which it replaces by as many: of more it
    would replace the first and leave the others, without an error. Frames come in the size that the model reads.
    """
    if frames is None or video is None:
        return {"prompt_token_ids": list(tokens)}
    first = tokens.index(video_token)
    behind = tokens[first + tokens.count(video_token) :]
    images = video.resize(frames).permute(0, 2, 3, 1).contiguous().numpy()
    times = {
        "fps": frames.rate,
        "duration": len(images) / frames.rate,
        "total_num_frames": len(images),
        "frames_indices": list(range(len(images))),
        "video_backend": "opencv",
        "do_sample_frames": False,
    }
    return {
        "prompt_token_ids": [*tokens[: first + 1], *behind],
        "multi_modal_data": {"video": [(images, times)]},
        "mm_processor_kwargs": {"fps": frames.rate, "do_sample_frames": False, "do_resize": False},
    }
