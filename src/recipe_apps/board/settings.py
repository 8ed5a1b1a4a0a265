"""Settings of an evaluation board: its tracks, and the scorers of each."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from recipe.artifacts import JsonObject
from recipe.config import parse_config
from recipe.config.base import Fraction, Positive, Settings
from recipe.config.models import JudgeConfig
from recipe.evaluation import measure_named


class ScorerSettings(Settings):
    """One scorer of a track: what `recipe evaluate` computes with these settings (docs/board.md)."""

    measure: Annotated[str, Field(min_length=1, max_length=16)]
    """`judge` asks a language model, `proxy` and `match` compare embeddings with the reference, `validity` reads task
    graphs, `vpa` counts CrossTask's next actions; or a measure that an installed package adds."""
    label: str = ""
    """What pages call the scorer; left out: made from the settings."""
    encoder: str = "minilm"
    """Of `proxy`, `match`, `vpa` and of `validity` with graphs: minilm, hash:256, hub id or folder on the workers."""
    model: str = ""
    """Name of the judge at its endpoint; workers are told the address."""
    weights: str = ""
    """What tells the judge's weights apart, such as a revision or a hash: a part of the identity."""
    judge: JudgeConfig = JudgeConfig()
    """How the judge is asked."""
    graphs: Path | None = None
    """Task graphs of `validity`; left out: the embedded world's."""
    threshold: Fraction | None = None
    """With `graphs`: least similarity of a line to its step; left out: measured."""
    root: Path | None = None
    """Folder with CrossTask of `vpa`, on the workers."""

    @classmethod
    def stored(cls, values: JsonObject) -> "ScorerSettings":
        """The settings of a scorer, as the database keeps them. Raises ConfigError for those of another version."""
        return parse_config(dict(values), cls, "the board's scorer")

    @property
    def shown(self) -> str:
        """The name that pages give the scorer."""
        if self.label or self.measure == "judge":
            return self.label or self.model.rsplit("/", 1)[-1]
        title = measure_named(self.measure).title
        by_encoder = self.measure in ("proxy", "match", "vpa") or self.graphs is not None
        return f"{title} ({self.encoder})" if by_encoder else title


class TrackSettings(Settings):
    """One track: questions with hidden references, and how plans for them are scored."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]
    title: Annotated[str, Field(max_length=200)] = ""
    """Left out: the name."""
    about: Annotated[str, Field(max_length=4_000)] = ""
    """What participants should know of it."""
    examples: Path
    """Examples with their continuations, JSON lines. Goals and histories become public, continuations never do."""
    split: str = ""
    """Examples of this split; empty takes all."""
    scorers: Annotated[tuple[ScorerSettings, ...], Field(min_length=1)]
    plans: Positive = 1
    """Plans that a submission holds for each question."""
    public: Annotated[int, Field(ge=0)] = 3
    """Questions that a system's page shows with its plans."""
    results: Literal["open", "hidden"] = "open"
    """Hidden results are seen by nobody but the owner, until the owner publishes them."""
    day_quota: Positive = 5
    """Submissions of an account that are scored in 24 hours."""
    total_quota: Positive = 100
    """Submissions of an account that are scored in all."""


class BoardSettings(Settings):
    """A whole board, as `recipe board init` reads it."""

    title: Annotated[str, Field(min_length=1, max_length=200)]
    tracks: Annotated[tuple[TrackSettings, ...], Field(min_length=1)]
