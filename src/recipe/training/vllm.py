"""Roll-outs of GRPO by vLLM, in the same process as the trainer; TRL pushes the policy's weights before each step.

A completion's log-probability is the engine's where it is written and the trainer's where it is trained on. The gap
between them is corrected by TRL's importance ratio, recorded and watched.
The paper has no such engine: everything here is ours.
"""

import functools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from peft import PeftModel
from trl.generation import vllm_generation

from recipe.config.training import GRPOConfig
from recipe.errors import ConfigError, MissingExtra
from recipe.models.devices import use_bf16
from recipe.reward.watchdog import Finding
from recipe.training import ranks
from recipe.training.policy import RollOuts, row_keys
from recipe.training.runs import rollout_decoding
from recipe.training.video import VideoRollOuts

try:
    from vllm import SamplingParams

    from recipe.models.vllm import engine_prompt, one_video, precision, sampling_fields, seed_of
except ModuleNotFoundError as error:
    raise MissingExtra("rollouts = 'vllm'", "vllm") from error

WIDE_GAP = 0.05
"""Mean distance of a token's log-probabilities above which a finding is reported: ten times what rounding to bfloat16
gave, and less than old features of a trained merger did."""
_GAP = "sampling/sampling_logp_difference/"


class VllmRollOuts(RollOuts):
    """The trainer's hook: samples of the engine, a seed for each completion, with their log-probabilities."""

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        tokens, options = self.inputs(prompts, trainer)
        generation = trainer.vllm_generation
        longest, context = max(map(len, tokens)), generation.llm.llm_engine.model_config.max_model_len
        if longest + self._longest > context:
            raise ConfigError(
                f"vllm.longest: a prompt of {longest} tokens and max_completion_tokens {self._longest} exceed vLLM's "
                f"context of {context}; raise vllm.longest or lower max_completion_tokens."
            )
        engine_prompts = self.engine_prompts(tokens, trainer)
        parameters = [
            SamplingParams(
                **sampling_fields(rollout_decoding(self._temperature, self._longest)),
                seed=seed_of(key),
                stop_token_ids=[*trainer.eos_token_ids, trainer.processing_class.pad_token_id],
                # vLLM bounds what is added to a logit by 100, which leaves e-100 of the probability.
                logit_bias=dict.fromkeys(options.get("banned", ()), -100.0),
                logprobs=0,
                detokenize=False,
            )
            for key in row_keys(trainer, len(tokens))
        ]
        # The engine has its memory while it writes only; with `sleep`, it gives weights and cache back afterwards.
        sleeps = generation.enable_sleep_mode
        if sleeps:
            if generation._llm_weights_sleeping:  # no step since the last roll-outs
                generation.sync_weights()
            generation.llm.wake_up(tags=["kv_cache"])
        outputs = generation.llm.generate(engine_prompts, parameters, use_tqdm=False)
        if sleeps:
            generation.llm.sleep(level=2)
            generation._llm_weights_sleeping = True  # as TRL notes it, whose sync wakes them
        written = [list(output.outputs[0].token_ids) for output in outputs]
        logprobs = [
            [of[token].logprob for token, of in zip(ids, output.outputs[0].logprobs, strict=True)]
            for ids, output in zip(written, outputs, strict=True)
        ]
        return {"prompt_ids": tokens, "completion_ids": written, "logprobs": logprobs}

    def engine_prompts(self, tokens: Sequence[Sequence[int]], trainer: Any) -> list[dict[str, Any]]:
        """The prompts as vLLM takes them."""
        return [{"prompt_token_ids": list(ids)} for ids in tokens]


class VllmVideoRollOuts(VllmRollOuts, VideoRollOuts):
    """The same for the prompts with a clip that the trainer has just made."""

    def engine_prompts(self, tokens: Sequence[Sequence[int]], trainer: Any) -> list[dict[str, Any]]:
        """The prompts with their frames."""
        # The merger has been trained since; TRL's push leaves what the old one made.
        trainer.vllm_generation.llm.llm_engine.reset_encoder_cache()
        prompts = trainer.video_prompts
        made = {
            id(request): engine_prompt(request.ids, prompts.video_token, request.frames, prompts.video)
            for request in trainer.requests
        }
        return [made[id(request)] for request in trainer.requests]


def _merged_weights(model: PeftModel) -> Iterator[tuple[str, torch.Tensor]]:
    """The policy's weights under vLLM's names, adapters merged into copies, one at a time.

    TRL merges adapters into the frozen weights themselves and takes them out again. In bfloat16 the rounding moves the
    frozen weights, and with them the reference policy; a resumed run would begin from others.
    """
    for name, weight in model.named_parameters():
        if model.prefix in name or "original_module" in name:
            continue
        pushed = weight.data
        if name.endswith(".base_layer.weight"):
            change = model.get_submodule(name.removesuffix(".base_layer.weight")).get_delta_weight("default")
            pushed = (pushed.float() + change.float()).to(pushed.dtype)
        plain = name.removeprefix("base_model.model.").replace(".base_layer", "")
        yield plain.replace("modules_to_save.default.", ""), pushed


class VllmTrainer:
    """Mixed into a GRPO trainer, gives it an engine, and keeps the loss that it has without one.

    TRL computes log-probabilities of fresh completions for the correction, with dropout, which would count as a gap
    and as a policy that has moved. Here they are computed without, and where each batch is passed over once the ratio
    stays exactly 1.
    """

    _metrics: Any
    model: Any

    def __init__(self, *, config: GRPOConfig, on_finding: Any, **options: Any) -> None:
        self._on_finding, self._since = on_finding, 0
        video = options["prompts"].video if config.input == "video" else None
        loading = {"revision": config.revision, "tokenizer_revision": config.revision, "generation_config": "vllm"}
        with _engine_options(**precision(bf16=use_bf16(config.bf16)), **one_video(video), **loading):
            super().__init__(**options)
        trainer: Any = self
        trainer.vllm_generation._iter_named_params = functools.partial(_merged_weights, trainer.model)

    def _get_per_token_logps_and_entropies(self, model: Any, *args: Any, **options: Any) -> Any:
        compute = super()._get_per_token_logps_and_entropies  # type: ignore[misc]
        if torch.is_grad_enabled() or not model.training:
            return compute(model, *args, **options)
        model.eval()
        try:
            return compute(model, *args, **options)
        finally:
            model.train()

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        trainer: Any = self
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        if trainer.num_iterations == 1:
            batch.pop("old_per_token_logps", None)
        gaps = trainer._metrics["train"].get(f"{_GAP}mean")
        if gaps and gaps[-1] > WIDE_GAP and not self._since:
            self._since = trainer.state.global_step + 1
            most = trainer._metrics["train"][f"{_GAP}max"][-1]
            sentence = (
                f"Since step {self._since}, the log-probabilities of vLLM and of the trainer differ by {gaps[-1]:.3g} "
                f"on average and by {most:.3g} at most: more than rounding explains, so that vLLM may write with other "
                "weights, another prompt or another precision than the policy's."
            )
            if ranks.main():
                self._on_finding(Finding("engine_gap", self._since, None, sentence))
        return batch


@contextmanager
def _engine_options(**options: Any) -> Iterator[None]:
    """Within it, TRL's engines have these options too: TRL 1.16 has no arguments for them.

    TRL tells vLLM of ranks by the environment. That is put back: the next trainer of this process would take itself
    for one of several.
    """
    kind, environment = vllm_generation.LLM, dict(os.environ)
    vllm_generation.LLM = functools.partial(kind, **options)
    try:
        yield
    finally:
        vllm_generation.LLM = kind
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            os.environ.pop(name, None)
            if name in environment:
                os.environ[name] = environment[name]
