"""Settings of a corpus, its encoder, and continuations mined from it."""

from types import MappingProxyType
from typing import Literal

from recipe.config.base import Batched, Loaded, Positive, Settings


class EncoderConfig(Loaded, Batched):
    """The frozen sentence encoder that maps steps and segments to unit-norm vectors."""

    name: str = "minilm"
    """`minilm`, packaged (Apache-2.0); a sentence-transformers model id or folder; or `hash:D`, words hashed to D.
    Stated (appendix A.1): Jina v3, `jinaai/jina-embeddings-v3-hf`, which is for non-commercial use."""
    task: str | None = None
    """The model's own task, prompt or adapter folder; Jina v3 takes `text-matching` where none is given."""
    dimension: Positive | None = None
    """Truncate vectors to this many dimensions (Matryoshka models)."""
    dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    """Number format that the encoder computes in; `auto` is bfloat16 where the device has it, else float32. A corpus is
    not built in bfloat16 by a processor without instructions for it."""
    trust_remote_code: bool = False
    """Run code that comes with the model; taken only with a revision that is a commit, or a model folder."""


class CorpusConfig(Settings):
    """How narrations become an index on disk."""

    encoder: EncoderConfig = EncoderConfig()
    shard_size: Positive = 4096
    """Narrations in a shard."""


LEAST_SIMILARITY = 0.0
"""Lowest search score (A_mono) of a history with the narration that continues it: below, they are unlike."""
CUTS = 4
"""Cut points of a narration that is mined from its title, as many as `recipe data prepare` makes of a training video;
fewer where it is short."""


class MiningConfig(Settings):
    """How continuations are mined; the paper (section 4.3, SFT-HT100M) leaves the procedure open."""

    fixed = MappingProxyType({"pool_size": 25, "min_similarity": LEAST_SIMILARITY, "cuts": CUTS})

    steps: Positive | None = None
    """Ours. Most segments in a continuation; left out: as many as the example's own has steps, and 8 from titles."""
    segments: Literal["all", "step-like"] | None = None
    """Ours. Which segments can be steps; left out: all after a history, only step-like ones from titles."""
    threshold: float = 0.35
    """Ours. Least score of a step-like segment: 0 is that of small talk, 1 that of steps (docs/data.md)."""
