"""A stand-in for the package vllm: an engine with the part of its surface that the project calls.

It computes with the project's own model, and has two habits of vLLM that the project must know. A prompt's first video
token is replaced by as many as its clip has, and further ones stay. What the visual encoder has computed is kept until
`reset_encoder_cache`: pushed weights of the visual part have no effect before.
"""

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import torch
from transformers import RepetitionPenaltyLogitsProcessor

from recipe.models.checkpoints import load_checkpoint
from recipe.models.decoding import complete
from recipe.types import Frames

_OURS = ("recipe.models.vllm", "recipe.training.vllm")


@dataclass
class SamplingParams:
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    max_tokens: int = 16
    seed: int | None = None
    stop_token_ids: Sequence[int] = ()
    logprobs: int | None = None
    detokenize: bool = True
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    structured_outputs: Any = None

    def __post_init__(self) -> None:
        assert self.seed is None or -(2**63) <= self.seed < 2**63


class LLM:
    """Loads a model folder; `made` lists the engines, with their options, in the order in which they were made."""

    skew = 0.0
    """Added to the log-probabilities that are reported."""
    forgets = True
    """Whether what the visual encoder has computed is dropped where that is asked for."""
    made: ClassVar["list[LLM]"] = []

    def __init__(self, model: str, **options: Any) -> None:
        self.options = options
        assert options["generation_config"] == "vllm", "what a request leaves out would be the checkpoint's"
        dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[options["dtype"]]
        checkpoint = load_checkpoint(model, dtype=dtype)
        self.model, self.video = checkpoint.model.eval(), checkpoint.video
        self.prompts: list[dict[str, Any]] = []
        self.parameters: list[SamplingParams] = []
        self.calls: list[str] = []
        self.stale: dict[str, torch.Tensor] = {}
        self.written: list[list[int]] = []
        self.llm_engine = _Core(self)
        LLM.made.append(self)

    def generate(self, prompts: Sequence[Any], sampling_params: Sequence[SamplingParams], use_tqdm: bool) -> list[Any]:
        self.calls.append("generate")
        return [self.write(*job) for job in zip(prompts, sampling_params, strict=True)]

    def write(self, prompt: dict[str, Any], parameters: SamplingParams) -> Any:
        """One completion, with the log-probabilities of what was sampled from."""
        self.prompts.append(prompt)
        self.parameters.append(parameters)
        tokens, clips = list(prompt["prompt_token_ids"]), None
        if "multi_modal_data" in prompt:
            assert prompt["mm_processor_kwargs"]["do_resize"] is False
            assert self.video is not None
            [(images, times)] = prompt["multi_modal_data"]["video"]
            shown = Frames(images, np.array(times["frames_indices"]) / times["fps"], times["fps"])
            place = tokens.index(self.model.config.video_token_id)
            tokens[place : place + 1] = [tokens[place]] * self.video.tokens(shown)
            clips = [self.video(shown)]
        random = torch.Generator().manual_seed(parameters.seed or 0)
        chosen: list[float] = []
        reported: list[dict[int, float]] = []
        history = list(tokens)
        raw = self.options["logprobs_mode"] == "raw_logprobs"

        def choose(logits: torch.Tensor, _rows: torch.Tensor, _step: int) -> torch.Tensor:
            logits = logits.float()
            for token, bias in parameters.logit_bias.items():
                logits[:, token] += bias
            if parameters.repetition_penalty != 1:
                penalise = RepetitionPenaltyLogitsProcessor(parameters.repetition_penalty)
                logits = penalise(torch.tensor([history]), logits.clone())
            spread = logits / (parameters.temperature or 1)
            if parameters.temperature == 0:
                token = logits.argmax(-1)
            else:
                token = torch.multinomial(spread.softmax(-1), 1, generator=random)[0]
            history.append(int(token))
            nats = (logits if raw else spread).log_softmax(-1)[0]
            chosen.append(float(nats[token]) + self.skew)
            # The chosen token first, then the likeliest, as many as were asked for.
            likeliest = nats.topk(parameters.logprobs or 0).indices.tolist()
            reported.append({one: float(nats[one]) + self.skew for one in (int(token), *likeliest)})
            return token

        with torch.no_grad():
            [written] = complete(
                self.model, [tokens], choose, ends=parameters.stop_token_ids, longest=parameters.max_tokens, clips=clips
            )
        self.written.append(written)
        return _output(tokens, written, chosen, reported, parameters.stop_token_ids)

    def reset_prefix_cache(self) -> None:
        self.calls.append("reset_prefix_cache")

    def wake_up(self, tags: Sequence[str]) -> None:
        self.calls.append(f"wake {' '.join(tags)}")

    def sleep(self, level: int) -> None:
        self.calls.append(f"sleep {level}")


def _output(
    prompt: list[int], written: list[int], chosen: list[float], reported: list[dict[int, float]], ends: Sequence[int]
) -> Any:
    logprobs = [
        {token: SimpleNamespace(logprob=one, rank=1) for token, one in likeliest.items()} for likeliest in reported
    ]
    finish = "stop" if written and written[-1] in ends else "length"
    completion = SimpleNamespace(
        token_ids=written, logprobs=logprobs, cumulative_logprob=sum(chosen), finish_reason=finish
    )
    return SimpleNamespace(prompt_token_ids=prompt, outputs=[completion], finished=True)


class _Core:
    """`LLM.llm_engine`: weights that are pushed, caches, and requests that are stepped token by token."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._running: dict[str, Iterator[Any]] = {}
        self.most = 0
        """Requests that were under way at once, at most."""
        self.aborted: list[str] = []
        self.engine_core = SimpleNamespace(shutdown=lambda: llm.calls.append("shutdown"))
        longest = llm.options.get("max_model_len") or -1
        context = llm.model.config.get_text_config().max_position_embeddings
        self.model_config = SimpleNamespace(max_model_len=context if longest == -1 else longest)
        runner = SimpleNamespace(model=SimpleNamespace(load_weights=self._load))
        self.model_executor = SimpleNamespace(driver_worker=SimpleNamespace(model_runner=runner))

    def _load(self, weights: Sequence[tuple[str, torch.Tensor]]) -> None:
        for name, weight in weights:
            if ".visual." in name:
                self._llm.stale[name] = weight.detach().clone()
            else:
                self._copy(name, weight)

    def _copy(self, name: str, weight: torch.Tensor) -> None:
        with torch.no_grad():
            self._llm.model.get_parameter(name).copy_(weight)

    def reset_encoder_cache(self) -> None:
        self._llm.calls.append("reset_encoder_cache")
        if not self._llm.forgets:
            return
        for name, weight in self._llm.stale.items():
            self._copy(name, weight)
        self._llm.stale.clear()

    def add_request(self, request_id: str, prompt: dict[str, Any], params: SamplingParams) -> str:
        assert request_id not in self._running
        self._running[request_id] = self._grown(request_id, self._llm.write(prompt, params))
        self.most = max(self.most, len(self._running))
        return request_id

    def _grown(self, name: str, whole: Any) -> Iterator[Any]:
        [completion] = whole.outputs
        for length in itertools.count(1):
            part = SimpleNamespace(
                token_ids=completion.token_ids[:length],
                logprobs=completion.logprobs[:length],
                cumulative_logprob=completion.cumulative_logprob,
                finish_reason=completion.finish_reason if length == len(completion.token_ids) else None,
            )
            finished = length == len(completion.token_ids)
            yield SimpleNamespace(request_id=name, outputs=[part], finished=finished)

    def step(self) -> list[Any]:
        outputs = [next(request) for request in self._running.values()]
        for output in outputs:
            if output.finished:
                del self._running[output.request_id]
        return outputs

    def abort_request(self, names: Sequence[str]) -> None:
        self.aborted += names
        for name in names:
            del self._running[name]


@contextmanager
def installed(*, skew: float = 0.0, forgets: bool = True) -> Iterator[type[LLM]]:
    """Within it, the package vllm is this one, with these faults; nothing that has imported it stays."""
    package, parameters = ModuleType("vllm"), ModuleType("vllm.sampling_params")
    package.__spec__ = ModuleSpec("vllm", None)
    package.LLM, package.SamplingParams = LLM, SamplingParams  # type: ignore[attr-defined]
    parameters.StructuredOutputsParams = SimpleNamespace  # type: ignore[attr-defined]
    before = {name: sys.modules.get(name) for name in ("vllm", "vllm.sampling_params", *_OURS)}
    for name in _OURS:
        sys.modules.pop(name, None)
    sys.modules.update({"vllm": package, "vllm.sampling_params": parameters})
    LLM.made, LLM.skew, LLM.forgets = [], skew, forgets
    try:
        yield LLM
    finally:
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module
