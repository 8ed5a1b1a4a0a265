"""A byte-level BPE with Qwen2's split pattern, special tokens and chat template, trained on our own text.

Every text round-trips, since any byte is a token. The result differs from Qwen2.5's tokenizer in its merges
only, so that code which runs on the small model runs on `Qwen/Qwen2.5-3B-Instruct` unchanged.
"""

import importlib.util
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from recipe.errors import MissingExtra

END_OF_TURN = "<|im_end|>"
PADDING = "<|endoftext|>"
SPECIAL_TOKENS = (
    PADDING,
    "<|im_start|>",
    END_OF_TURN,
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(texts: Iterable[str], size: int, longest: int) -> PreTrainedTokenizerFast:
    """A tokenizer of at most `size` entries, special tokens included, for texts of up to `longest` tokens.

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


def chat_text(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], *, ask: bool = False) -> str:
    """A conversation as the model reads it; `ask` opens the assistant's turn at the end."""
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=ask))
