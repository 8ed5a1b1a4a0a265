"""A policy: loading for training, adapters, roll-outs, and saving the merged model as a standalone folder."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from recipe.artifacts import atomic_path
from recipe.config.training import LoraSettings
from recipe.errors import ConfigError, InputError, first_line
from recipe.models.checkpoints import Checkpoint, load_checkpoint
from recipe.models.decoding import complete, draws, uniforms
from recipe.models.local import Prompts
from recipe.models.vision import Patches, VideoProcessor, fast_vision
from recipe.text import planner_messages

ADAPTER = "adapter_model.safetensors"
"""An adapter in a folder, as the adapters' package names it."""
MERGER = "merger"
"""The projector from vision to text of a Qwen2.5-VL."""
_DECODER = "language_model"


def load_policy(name: str, revision: str | None = None, *, bf16: bool = False) -> Checkpoint:
    """The model of a hub id or folder, in bfloat16 or float32, with what comes with it.

    Raises as `load_checkpoint`, and InputError where its chat template refuses the turns of a planner.
    """
    # Plain attention repeats shared keys and values at every token, which makes sampling on a processor two to three
    # times slower (SmolLM2, 64 plans of 64 tokens: 116 s against 38 s).
    policy = load_checkpoint(name, revision, torch.bfloat16 if bf16 else torch.float32, "sdpa")
    Prompts(name, policy, policy.video).render_all([planner_messages("a goal", ())])
    if not torch.cuda.is_available():
        fast_vision(policy.model)
    return policy


def lora_config(settings: LoraSettings, model: PreTrainedModel, *, video: bool = False) -> LoraConfig:
    """Adapters on the projections named, everything else frozen (paper, section 3.1).

    With a visual tower they sit in the language decoder only, and for `video` the merger is trained in full.
    Raises ConfigError where the model has no projection of a name.
    """
    tower = any(name.endswith(".visual") for name, _ in model.named_modules())
    held = [name for name, _ in model.named_modules() if not tower or _DECODER in name.split(".")]
    known = {name.rpartition(".")[2] for name in held}
    if absent := [name for name in settings.target_modules if name not in known]:
        raise ConfigError(f"lora.target_modules: the model has no module {absent[0]!r}; name others.")
    named = "|".join(map(re.escape, settings.target_modules))
    return LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=rf".*\.{_DECODER}\..*\.({named})" if tower else list(settings.target_modules),
        modules_to_save=[MERGER] if video else None,
        task_type="CAUSAL_LM",
    )


def trained_in_float32(model: PeftModel) -> None:
    """Keep trained weights in float32, as adapters are: bfloat16 would round small steps of the merger away."""
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data = weight.data.float()


def sample(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    keys: Sequence[str],
    *,
    temperature: float,
    longest: int,
    ends: Sequence[int],
    clips: Sequence[Patches] | None = None,
    banned: Sequence[int] = (),
) -> list[list[int]]:
    """One completion of each prompt, in order, as token ids; equal prompts with the same clip are read once.

    A completion holds at most `longest` tokens, includes the token of `ends` that ended it, and none that is `banned`.
    Its random numbers belong to its key of `keys`, so that it does not depend on what else is sampled with it, up to
    rounding. Dropout is off, so that completions come from the policy that is saved; the model is left in the mode it
    was in. Takes half the time of `generate` for a small model on a CPU, by what it leaves out (see
    `recipe.models.decoding`). Raises ComputeError where the model's output is not a number.
    """
    choose = draws(uniforms(keys, longest).to(model.device), temperature, banned)
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), _merged(model):
            return complete(model, prompts, choose, ends=ends, longest=longest, clips=clips)
    finally:
        model.train(training)


@contextmanager
def _merged(model: PreTrainedModel) -> Iterator[None]:
    """Within it, adapters in float32 are part of the weights, which saves their products at every token; afterwards
    the weights are what they were, to the bit. In bfloat16 they stay separate: the sum would round small steps away.
    """
    layers = [
        (module, module.get_base_layer().weight)
        for module in model.modules()
        if isinstance(module, BaseTunerLayer) and not module.merged and not module.disable_adapters
    ]
    layers = [(module, weight) for module, weight in layers if weight.dtype == torch.float32]
    apart = [weight.data for _, weight in layers]
    try:
        for module, weight in layers:
            weight.data = weight.data.clone()
            module.merge()
        yield
    finally:
        for (module, weight), data in zip(layers, apart, strict=True):
            # Not `unmerge`, which subtracts: (w + d) - d is not w to the last bit.
            module.merged_adapters.clear()
            weight.data = data


def row_keys(trainer: Any, count: int) -> list[str]:
    """Names of the `count` completions that this process writes in the step under way.

    A name is made of the run's seed, the step and the completion's row among those of all processes: random numbers
    that belong to it do not depend on how many processes there are.
    """
    first = trainer.accelerator.process_index * count
    return [f"{trainer.args.seed} {trainer.state.global_step} {row}" for row in range(first, first + count)]


class RollOuts:
    """The trainer's hook: samples for the prompts of a step, each repeated once for every completion."""

    def __init__(self, temperature: float, longest: int) -> None:
        self._temperature, self._longest = temperature, longest

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        tokens, options = self.inputs(prompts, trainer)
        completions = sample(
            # The model inside the adapter's shell: the shell would cast all weights anew at every token.
            trainer.accelerator.unwrap_model(trainer.model).get_base_model(),
            tokens,
            row_keys(trainer, len(tokens)),
            temperature=self._temperature,
            longest=self._longest,
            ends=[*trainer.eos_token_ids, trainer.processing_class.pad_token_id],
            **options,
        )
        # No log-probabilities: the trainer's own, of the pass it differentiates, are the ones to compare with.
        return {"prompt_ids": tokens, "completion_ids": completions, "logprobs": None}

    def inputs(self, prompts: Sequence[Any], trainer: Any) -> tuple[list[list[int]], dict[str, Any]]:
        """Token ids of the prompts, and further options of `sample`."""
        render = trainer.processing_class.apply_chat_template
        return render(list(prompts), add_generation_prompt=True, return_dict=True)["input_ids"], {}


def load_adapter(model: PeftModel, folder: Path) -> None:
    """Give the model the adapter in a folder of its run. Raises InputError for one that is missing or damaged."""
    file = folder / ADAPTER
    remedy = "restore the file, or delete the run's folder to start over"
    if not file.is_file():
        raise InputError.at(file, "the adapter is missing", remedy)
    try:
        weights = load_file(file, device=str(next(model.parameters()).device))
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError.at(file, f"the adapter is damaged ({first_line(error)})", remedy) from None
    wanted = get_peft_model_state_dict(model, save_embedding_layers=False)
    own, its = ({name: weight.shape for name, weight in held.items()} for held in (weights, wanted))
    if own != its or not all(torch.isfinite(weight).all() for weight in weights.values()):
        raise InputError.at(file, "the adapter is not one of this run's model", remedy)
    set_peft_model_state_dict(model, weights)


def save_model(
    model: PreTrainedModel | PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    target: Path,
    video: VideoProcessor | None = None,
    card: Mapping[str, str] | None = None,
) -> None:
    """Save a standalone model in the standard layout, all or nothing: weights, of adapters merged into the model's,
    configs, tokenizer, video processor and the card's files.
    """
    if isinstance(model, PeftModel):
        model = model.merge_and_unload()
        if video is not None:  # the merger was trained in float32
            model.to(model.get_input_embeddings().weight.dtype)
    with atomic_path(target) as partial, write_errors(target):
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        if video is not None:
            video.save(partial)
        for name, text in (card or {}).items():
            (partial / name).write_text(text, encoding="utf-8")


@contextmanager
def write_errors(folder: Path) -> Iterator[None]:
    """Raises InputError in place of the errors of safetensors and tokenizers where `folder` cannot be written."""
    try:
        yield
    except Exception as error:
        if "(os error " not in str(error):  # how their Rust cores end what the system refuses
            raise
        raise InputError.at(folder, f"it cannot be written ({error})", "free some space and try again") from None
