"""Encoders: texts to unit-norm vectors, behind one protocol and chosen by name."""

import importlib
import re
import zlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from recipe.config.corpus import EncoderConfig
from recipe.corpus.encoder_identity import EncoderIdentity, differences
from recipe.errors import ConfigError, EncoderMismatch, MissingExtra
from recipe.progress import LOADING, SILENT, Progress
from recipe.text import whole_text

_WORD = re.compile(r"[^\W_]+")
_NGRAMS = (3, 4)
_PACKAGES = ("huggingface_hub", "safetensors", "sentence_transformers", "torch", "transformers")
# Texts summed at once: bounds the memory of the gathered word vectors.
_TEXTS_AT_ONCE = 1024


class Encoder(Protocol):
    """A frozen map from texts to unit-norm vectors."""

    @property
    def identity(self) -> EncoderIdentity:
        """What a corpus records about its encoder."""
        ...

    def encode(self, texts: Sequence[str], progress: Progress = SILENT) -> NDArray[np.float32]:
        """Unit-norm float32 [n, d], one row a text, in the order given; the same rows in any other order.

        Raises InputError for half a character (a lone surrogate), which tokenizers fail on.
        """
        ...


class HashEncoder:
    """`hash:D`: the sum of a text's word vectors, each the word and its n-grams hashed to signed coordinates.

    It ignores meaning and word order. It replaces a model in tests and on machines without one.
    CRC-32 is stable across processes and platforms, so the vectors are too.
    """

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension

    @property
    def identity(self) -> EncoderIdentity:
        """What a corpus records about its encoder."""
        return {
            "name": f"hash:{self._dimension}",
            "revision": None,
            "task": None,
            "dtype": "float32",
            "dimension": self._dimension,
            "weights": None,
        }

    def encode(self, texts: Sequence[str], progress: Progress = SILENT) -> NDArray[np.float32]:
        """Unit-norm float32 [n, d], one row a text, in the order given. Raises InputError for half a character."""
        for text in texts:
            whole_text("text", text)
        vectors = np.empty((len(texts), self._dimension), dtype=np.float32)
        with progress.task("encoding texts", len(texts)) as advance:
            for first in range(0, len(texts), _TEXTS_AT_ONCE):
                block = texts[first : first + _TEXTS_AT_ONCE]
                rows: dict[str, int] = {}
                # A text without any word counts as one word, so that no text is without a vector.
                named = (_WORD.findall(text.lower()) or [text] for text in block)
                words = [[rows.setdefault(word, len(rows)) for word in own] for own in named]
                table = np.stack([_word_vector(word, self._dimension) for word in rows])
                starts = np.cumsum([0, *(len(indices) for indices in words[:-1])])
                gathered = table[np.concatenate([np.asarray(indices) for indices in words])]
                sums = np.add.reduceat(gathered, starts, axis=0)
                norms = np.linalg.norm(sums, axis=1, keepdims=True)
                # In few dimensions opposite signs can cancel to nothing: such a text keeps its first word's vector.
                cancelled = norms[:, 0] < 1e-6
                sums[cancelled] = gathered[starts[cancelled]]
                norms[cancelled] = 1.0
                vectors[first : first + len(block)] = sums / norms
                advance(len(block))
        return vectors


def _word_vector(word: str, dimension: int) -> NDArray[np.float32]:
    """Unit-norm float32 [d]; the word and all its n-grams together weigh the same."""
    padded = f"<{word}>"
    grams = [padded[start : start + size] for size in _NGRAMS for start in range(len(padded) - size + 1)]
    vector = np.zeros(dimension, dtype=np.float32)
    for feature, weight in [(word, 1.0), *((gram, len(grams) ** -0.5) for gram in grams)]:
        # Signed feature hashing (Weinberger et al., ICML 2009): the lowest bit is the sign, the others the coordinate.
        code = zlib.crc32(feature.encode())
        vector[(code >> 1) % dimension] += weight if code & 1 else -weight
    norm = float(np.linalg.norm(vector))
    if norm < 1e-6:
        vector[zlib.crc32(word.encode()) % dimension] = norm = 1.0
    return vector / np.float32(norm)


def open_encoder(config: EncoderConfig, *, fixed_shape: bool = False, emulate: bool = False) -> Encoder:
    """The encoder that `config` names.

    With `fixed_shape`, a text's vector is the same to the last bit whatever other texts it is encoded with, on one
    machine. This is for steps: it takes longer, and a corpus is built without it. With `emulate`, a processor without
    instructions for bfloat16 computes in it all the same, several times slower and with a warning: a corpus that
    exists is asked in its own number format.

    Raises ConfigError for settings that the encoder or this machine does not have, MissingExtra where its
    packages are not installed, and RecipeError where its model cannot be loaded.
    """
    family = config.name.partition(":")[0]
    if family == "hash":
        size = config.name.partition(":")[2]
        if not size.isascii() or not size.isdigit() or int(size) == 0:
            raise ConfigError(
                f"encoder {config.name!r}: the size is not a positive number; write for example hash:256."
            )
        for setting in ("revision", "task", "dimension", "device"):
            if getattr(config, setting) is not None:
                raise ConfigError(f"encoder {config.name!r} has no {setting}; leave that setting out.")
        if config.dtype == "bfloat16":
            raise ConfigError(f"encoder {config.name!r} computes in float32 only; leave dtype out.")
        return HashEncoder(int(size))
    packaged = family == "minilm"
    feature = "the packaged MiniLM encoder" if packaged else f"encoder {config.name!r}"
    if any(find_spec(package) is None for package in _PACKAGES):
        raise MissingExtra(feature, "offline" if packaged else "encoder")
    LOADING.info("loading %s ...", feature.removeprefix("the "))
    # Imported here, because sentence-transformers takes seconds to import.
    module = importlib.import_module("recipe.corpus.sentence_transformer")
    encoder: Encoder = module.SentenceTransformerEncoder(config, fixed_shape=fixed_shape, emulate=emulate)
    return encoder


def open_recorded_encoder(
    corpus: Path, recorded: EncoderIdentity, settings: EncoderConfig, *, fixed_shape: bool = False
) -> Encoder:
    """The encoder that a corpus was built with, found by `settings`; computed in the corpus's own number format.

    Raises EncoderMismatch where the model found is another one, and as `open_encoder`.
    """
    encoder = open_encoder(settings, fixed_shape=fixed_shape, emulate=True)
    identity = encoder.identity
    if identity["weights"] and identity["weights"] == recorded["weights"]:
        identity["name"] = recorded["name"]  # the same model in a folder that has moved
    if identity != recorded:
        raise EncoderMismatch(
            f"{corpus}: the encoder found as {recorded['name']!r} is not the one the corpus was "
            f"built with: {differences(recorded, identity)}; restore it or build the corpus again."
        )
    return encoder


def encoder_extra(name: str) -> dict[str, str]:
    """The extra that an encoder needs and what it is for, as `recipe.errors.require_packages` takes them."""
    if name.startswith("hash:"):
        return {}
    return {"offline" if name == "minilm" else "encoder": f"encoder {name!r}"}
