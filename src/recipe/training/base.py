"""A small language model from scratch: a tokenizer, Qwen2's architecture, and chats of the task.

Differs from pretraining proper in three ways. A text is one whole chat at the positions at which the planner meets it,
instead of a window of a packed stream. A batch holds chats of about the same length. The system turn, the same in every
chat, is computed once a batch and carries no loss, which halves the time and spends no capacity on reciting it. Equal
seeds and inputs give equal weights on the same machine.
"""

import importlib.util
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch.nn.functional import cross_entropy
from transformers import DynamicCache, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from recipe.artifacts import write_jsonl
from recipe.config.training import BaseModelConfig
from recipe.data.examples import read_training_examples
from recipe.errors import ConfigError, MissingExtra
from recipe.models.checkpoints import chat_text
from recipe.models.devices import use_bf16
from recipe.progress import SILENT, Progress
from recipe.text import format_plan, planner_messages
from recipe.training import ranks
from recipe.training.loop import check_finite, check_gradient, finish_run, quiet
from recipe.training.runs import Run, open_run

END_OF_TURN = "<|im_end|>"
PADDING = "<|endoftext|>"
SPECIAL_TOKENS = (
    PADDING,
    "<|im_start|>",
    END_OF_TURN,
    *(f"<|{kind}_{edge}|>" for kind in ("object_ref", "box", "quad", "vision") for edge in ("start", "end")),
    *(f"<|{kind}_pad|>" for kind in ("vision", "image", "video")),
)
# Qwen2's own: runs of letters, digits one by one, punctuation, white space.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

WARMUP = 30
"""Steps in which the learning rate rises."""
_TOKENIZER_TEXTS = 4000
# Of a checkpoint: weights, optimiser and metrics.
_STATE = "training.pt"


def train_base(config: BaseModelConfig, progress: Progress = SILENT) -> Path:
    """Train the tokenizer and the model from scratch; returns the model's folder.

    A finished run returns at once, a killed one resumes from its newest checkpoint with the same result. Raises
    InputError for examples that cannot be read, ConfigError for a run folder of other settings
    and in one of several processes, ComputeError where training diverges.
    """
    ranks.single("recipe train base")
    run = open_run("base", config, config.output, {"examples": config.examples})
    if run.finished:
        return run.model
    began = time.monotonic()
    with quiet():
        chats = []
        for example in read_training_examples(config.examples, config.split):
            reply = {"role": "assistant", "content": format_plan(example.continuation)}
            chats.append([*planner_messages(example.goal, example.history), reply])
        # Evenly spaced texts, because files are often ordered by goal.
        stride = max(1, len(chats) // _TOKENIZER_TEXTS)
        texts = ("\n".join(f"{turn['role']}\n{turn['content']}" for turn in chat) for chat in chats[::stride])
        checkpoint = run.latest_checkpoint()
        if checkpoint is None:
            tokenizer = train_tokenizer(texts, config.vocabulary, config.context)
        else:
            tokenizer = _wrapped(Tokenizer.from_file(str(checkpoint / "tokenizer.json")), config.context)
        shape = base_shape(config, len(tokenizer))
        shape.bos_token_id = shape.pad_token_id = tokenizer.pad_token_id
        shape.eos_token_id = tokenizer.eos_token_id
        torch.manual_seed(config.seed)
        # Plain attention beats the fused kernel at this size, by a third of the step on a CPU.
        model = Qwen2ForCausalLM._from_config(shape, attn_implementation="eager")
        model.generation_config.eos_token_id = [tokenizer.eos_token_id, tokenizer.pad_token_id]
        model.generation_config.pad_token_id = tokenizer.pad_token_id
        with run.on_disk():
            rows = _optimise(model, tokenizer, chats, config, run, checkpoint, progress)
            write_jsonl(run.folder / "metrics.jsonl", rows)
        return finish_run(run, model, tokenizer, config.steps, rows[-1], (), began)


def base_shape(config: BaseModelConfig, vocabulary: int) -> Qwen2Config:
    """The config of the model, without the ids of its tokens. Raises ConfigError for widths that do not fit."""
    if config.hidden_size % config.head_size:
        raise ConfigError(f"hidden_size {config.hidden_size} is not a multiple of head_size {config.head_size}.")
    heads = config.hidden_size // config.head_size
    return Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=config.hidden_size,
        # 8/3: the three matrices of a gated layer then hold what two of width 4 would (Shazeer, 2020).
        intermediate_size=max(32, config.hidden_size * 8 // 3 // 32 * 32),
        num_hidden_layers=config.layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2 if heads % 2 == 0 else heads,
        max_position_embeddings=config.context,
        tie_word_embeddings=True,
        dtype="float32",
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """Chats without their common head, padded on the right; all ids are of the tokenizer."""

    head: torch.Tensor
    """[1, H]: the system turn and the opening of the user's."""
    ids: torch.Tensor
    """[B, L]."""
    labels: torch.Tensor
    """[B, L], -100 at padding."""

    def to(self, device: torch.device) -> "Batch":
        return Batch(self.head.to(device), self.ids.to(device), self.labels.to(device))

    def loss(self, model: Qwen2ForCausalLM) -> torch.Tensor:
        """Mean cross-entropy of the tokens after the head; only their logits are computed.

        Padding needs no mask: it stands on the right, where causal attention never looks back from a real token.
        """
        cache = DynamicCache()
        model.model(input_ids=self.head, past_key_values=cache, use_cache=True)
        cache.batch_repeat_interleave(len(self.ids))
        rest = model.model(input_ids=self.ids, past_key_values=cache, use_cache=True)
        wanted = self.labels[:, 1:]
        scored = wanted != -100
        logits = model.lm_head(rest.last_hidden_state[:, :-1][scored])
        return cross_entropy(logits.float(), wanted[scored])


def _batches(
    tokenizer: PreTrainedTokenizerFast, chats: Sequence[list[dict[str, str]]], config: BaseModelConfig, first: int
) -> Iterator[Batch]:
    """Endless batches of about `batch_tokens` tokens, from the step `first` on: neighbours in length share one, the
    order is drawn.
    """
    opening = chat_text(tokenizer, chats[0][:1]) + "<|im_start|>user\n"
    head = tokenizer(opening, add_special_tokens=False)["input_ids"]
    texts = [chat_text(tokenizer, chat).removeprefix(opening) for chat in chats]
    encoded = tokenizer(texts, add_special_tokens=False)["input_ids"]
    fitting = sorted((ids for ids in encoded if len(head) + len(ids) <= config.context), key=len)
    if not fitting:
        raise ConfigError(f"no chat fits into a context of {config.context} tokens; raise `context`.")
    draw = torch.Generator().manual_seed(config.seed)
    bounds = _bounds([len(ids) for ids in fitting], config.batch_tokens)
    for epoch in count():
        # Past epochs are drawn too, so that the generator is in the state that it was in before a kill.
        order = torch.randperm(len(bounds), generator=draw).tolist()
        for index in order[max(0, first - epoch * len(bounds)) :]:
            rows = fitting[slice(*bounds[index])]
            ids = torch.full((len(rows), len(rows[-1])), int(tokenizer.pad_token_id))
            labels = torch.full_like(ids, -100)
            for row, tokens in enumerate(rows):
                ids[row, : len(tokens)] = labels[row, : len(tokens)] = torch.tensor(tokens)
            yield Batch(torch.tensor([head]), ids, labels)


def _bounds(lengths: Sequence[int], tokens: int) -> list[tuple[int, int]]:
    """Cut sorted lengths into runs whose padded size stays within `tokens`, each with at least one chat."""
    bounds, start = [], 0
    for stop in range(1, len(lengths) + 1):
        if stop == len(lengths) or lengths[stop] * (stop + 1 - start) > tokens:
            bounds.append((start, stop))
            start = stop
    return bounds


def _optimise(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    chats: Sequence[list[dict[str, str]]],
    config: BaseModelConfig,
    run: Run,
    checkpoint: Path | None,
    progress: Progress,
) -> list[dict[str, float]]:
    """Train the model in place, from the checkpoint on where there is one; returns a row a step.

    Nothing but the batches is drawn, and these follow from the seed and the step.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device).train()
    # beta_2 = .95 as in the pre-training of language models (Brown et al., 2020, appendix B), not Adam's .999.
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=0.05, fused=True
    )
    bf16 = use_bf16(config.bf16)
    rows: list[dict[str, float]] = []
    if checkpoint is not None:
        saved = torch.load(checkpoint / _STATE, map_location=device)
        model.load_state_dict(saved["model"])
        optimiser.load_state_dict(saved["optimiser"])
        rows = saved["rows"]
    batches = _batches(tokenizer, chats, config, len(rows))
    with progress.task("base model", config.steps) as advance:
        advance(len(rows))
        for step, batch in zip(range(len(rows), config.steps), batches, strict=False):
            # Linear rise over the first steps, then a cosine down to a twentieth:
            # rate = peak min(1, (t + 1) / warm-up) (.05 + .95 (1 + cos(pi t / T)) / 2).
            cosine = 0.5 * (1 + math.cos(math.pi * step / config.steps))
            rate = config.learning_rate * min(1.0, (step + 1) / WARMUP) * (0.05 + 0.95 * cosine)
            for group in optimiser.param_groups:
                group["lr"] = rate
            with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                loss = batch.to(device).loss(model)
            loss.backward()
            check_gradient(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0), step + 1)
            optimiser.step()
            optimiser.zero_grad()
            rows.append({"step": step + 1, "loss": round(loss.item(), 5), "learning_rate": rate})
            if len(rows) % config.save_every == 0 and len(rows) < config.steps:
                check_finite(model)
                folder = run.checkpoints / f"checkpoint-{len(rows)}"
                folder.mkdir(parents=True)  # none is there: what a kill left was removed when the run was opened
                tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
                state = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "rows": rows}
                torch.save(state, folder / _STATE)
                run.keep(len(rows), rows[-1])
            advance(1)
    check_finite(model)
    model.to("cpu").eval()
    return rows


def train_tokenizer(texts: Iterable[str], size: int, longest: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE of at most `size` entries, special tokens included, for texts of up to `longest` tokens.

    Split pattern, special tokens and chat template are Qwen2's. Only the merges differ from Qwen2.5's tokenizer, so
    that code which runs on the small model runs on a Qwen2.5. Every text round-trips, since any byte is a token.
    End of sequence is `<|im_end|>`, padding `<|endoftext|>` on the left, as generation needs it.
    """
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(SPECIAL_TOKENS),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return _wrapped(bpe, longest)


def _wrapped(bpe: Tokenizer, longest: int) -> PreTrainedTokenizerFast:
    """The tokenizer as transformers' own, with Qwen2's special tokens and chat template."""
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END_OF_TURN,
        pad_token=PADDING,
        additional_special_tokens=list(SPECIAL_TOKENS),
        model_max_length=longest,
        padding_side="left",
        chat_template=chat_template(),
    )


def chat_template(family: str = "qwen2_5") -> str:
    """The chat template of Qwen2.5, or with `qwen2_5_vl` of Qwen2.5-VL, which the training package ships."""
    spec = importlib.util.find_spec("trl")
    if spec is None or spec.origin is None:
        raise MissingExtra("the chat template of Qwen2.5", "train")
    return (Path(spec.origin).parent / "chat_templates" / f"{family}.jinja").read_text(encoding="utf-8")
