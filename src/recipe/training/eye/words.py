"""The second lesson of the eye: to say what it sees in the language model's own words.

The tokens of a pair of frames regress the frozen embeddings of the step's content words, and must each be nearer to
their word than to any other of the vocabulary. Without this lesson a decoder never learns to read the tokens: what the
first lesson leaves in them lies far from anything that it has met.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy, normalize
from transformers import PreTrainedTokenizerBase

from recipe.checkpoints import Checkpoint
from recipe.progress import Advance
from recipe.training.eye.attributes import look
from recipe.training.eye.optimiser import Group, Row, Schedule, optimise
from recipe.training.eye.tower import eye_of
from recipe.world.frames import Painter, Style, generator

STOP_WORDS = frozenset(
    (
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "by",
        "down",
        "for",
        "from",
        "in",
        "into",
        "is",
        "it",
        "its",
        "of",
        "off",
        "on",
        "onto",
        "out",
        "over",
        "that",
        "the",
        "to",
        "until",
        "up",
        "with",
    )
)
_SHARPNESS = 16.0
"""Factor of the cosines in the softmax over the vocabulary."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The words that each step is to be seen as."""

    steps: tuple[str, ...]
    tokens: torch.Tensor
    """Token ids [steps, slots]."""


def words_of_steps(wordings: Mapping[str, Sequence[str]], tokenizer: PreTrainedTokenizerBase, slots: int) -> Vocabulary:
    """For each step the tokens of its usual wording's content words, the rarest `slots` in their order.

    Too few are filled up with line ends.
    """
    texts = [" " + " ".join(word for word in known[0].split() if word not in STOP_WORDS) for known in wordings.values()]
    encoded: list[list[int]] = tokenizer(texts, add_special_tokens=False)["input_ids"]
    used = Counter(token for tokens in encoded for token in set(tokens))
    filler: int = tokenizer("\n", add_special_tokens=False)["input_ids"][0]

    def rarest(tokens: Sequence[int]) -> list[int]:
        kept = sorted(sorted(range(len(tokens)), key=lambda place: used[tokens[place]])[:slots])
        return [*(tokens[place] for place in kept), *[filler] * (slots - len(kept))]

    return Vocabulary(tuple(wordings), torch.tensor([rarest(tokens) for tokens in encoded]))


def learn_words(
    checkpoint: Checkpoint,
    painter: Painter,
    vocabulary: Vocabulary,
    schedule: Schedule,
    *,
    rate: float,
    batch: int,
    seed: int,
    advance: Advance,
) -> list[Row]:
    """Train the tower and the merger of a video model in place; its decoder is not touched. Returns a row a step.

    Raises ConfigError where the model reads text only.
    """
    eye = eye_of(checkpoint)
    embeddings = checkpoint.model.get_input_embeddings().weight.detach()
    scale = embeddings.pow(2).mean()
    # The first lesson's tokens are large and point anywhere: the last layer starts from nothing, at the words' scale.
    last = eye.tower.merger.mlp[2]
    torch.manual_seed(seed)
    torch.nn.init.normal_(last.weight, std=float(scale.sqrt()) / last.in_features**0.5)
    torch.nn.init.zeros_(last.bias)

    def losses() -> Iterator[torch.Tensor]:
        rng, draw = random.Random(f"words {seed}"), generator(("words", seed))
        while True:
            drawn = [rng.randrange(len(vocabulary.steps)) for _ in range(batch)]
            pairs = painter.pairs([vocabulary.steps[index] for index in drawn], draw)
            said, wanted = look(eye, pairs).float(), vocabulary.tokens[drawn]
            distance = (said - embeddings[wanted]).pow(2).mean() / scale
            yield distance + cross_entropy(_SHARPNESS * cosines(said, embeddings).flatten(0, 1), wanted.flatten())

    eye.tower.train()
    rows = optimise([Group([*eye.tower.parameters()], rate)], losses, schedule, advance, 0.98)
    eye.tower.eval()
    return rows


def cosines(said: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
    """Cosine of every token [..., width] with every word of the vocabulary: [..., words]."""
    return normalize(said, dim=-1) @ normalize(embeddings, dim=-1).T


def word_accuracy(
    checkpoint: Checkpoint, painter: Painter, vocabulary: Vocabulary, style: Style, count: int = 400
) -> float:
    """The share of the tokens of pairs not trained on whose nearest word is the right one."""
    chosen = [index % len(vocabulary.steps) for index in range(count)]
    shown = [vocabulary.steps[index] for index in chosen]
    with torch.no_grad():
        said = look(eye_of(checkpoint), painter.pairs(shown, generator(("said", style)), style))
        nearest = cosines(said, checkpoint.model.get_input_embeddings().weight).argmax(-1)
    return float((nearest == vocabulary.tokens[chosen]).float().mean())
