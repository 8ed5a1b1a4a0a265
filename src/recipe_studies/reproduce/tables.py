"""The paper's tables, which `paper_tables.toml` holds: regimes in rows, published figures, and the paper's claims.

A claim is a difference between two regimes with its direction. `recipe_studies.reproduce.findings` decides from the
interval of the measured difference whether it holds here, does not, or cannot be told.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from typing import Literal

from recipe.config import read_config
from recipe.config.planning import Method, Proposers
from recipe.config.removed import removed_option
from recipe.errors import ConfigError
from recipe.evaluation.published import published
from recipe.rows import from_json
from recipe_studies.reproduce.study import regime

HistoryKind = Literal["annotated", "perceived"]
"""What a planner or a judge is told of what was done: the annotated steps, or what Phi read."""
Direction = Literal["above", "not below", "like"]
"""Of a claimed difference: more than 0; more than minus a margin; within a margin of 0."""

IN_DOMAIN, ZERO_SHOT = "in-domain", "zero-shot"
SPLITS = (IN_DOMAIN, ZERO_SHOT)
SCALE = "{scale}"
"""Stands for the title of the scale in the name of a published row's group."""
FALLBACK = "Qwen2.5-3B"
"""Scale whose published figures are shown next to a scale that the paper does not have."""
DIVERSITY_SAMPLES = 10
"""Plans of a prompt that are compared in pairs (paper, appendix on diversity)."""


_VIDASSIST: dict[Proposers, str] = {
    "original": "VidAssist",
    "recipe": "VidAssist, {} alone",
    "both": "VidAssist with {}",
}
_BASELINES: dict[Method, str] = {"llm": "LLM baseline", "agent": "LLM agent baseline"}


@dataclass(frozen=True, slots=True)
class PaperRow:
    """A regime's row, and where the paper prints its figures."""

    regime: str
    table: str = ""
    """Name of a published table; empty where the paper has no such row."""
    group: str = SCALE
    row: str = ""
    method: Method | None = None
    """How next actions are planned, where the regime is VidAssist's planner or its model; None: the regime's own plans.
    """
    proposers: Proposers = "original"
    """Who proposes, with `method = "vidassist"`."""
    history: HistoryKind = "perceived"
    """What the planner of next actions is told of what was done."""

    @property
    def kind(self) -> str:
        """Names its stages and files of next actions."""
        searched = f"-{self.proposers}" if self.method == "vidassist" else ""
        return f"{self.method or 'vpa'}{searched}{'-oracle' if self.history == 'annotated' else ''}"

    @property
    def name(self) -> str:
        """Tells the rows of a table apart."""
        return self.regime if self.kind == "vpa" else f"{self.kind}-{self.regime}"

    @property
    def title(self) -> str:
        """The row as tables show it. Raises ConfigError."""
        title = regime(self.regime).title
        if self.method is not None:
            title = _BASELINES.get(self.method, _VIDASSIST[self.proposers]).format(title)
        return f"{title}, oracle" if self.history == "annotated" else title


@dataclass(frozen=True, slots=True)
class Claim:
    """What the paper says of two regimes, or of two rows of next actions by their names."""

    sentence: str
    """The claim, with the figures that the paper gives."""
    source: str
    first: str | tuple[str, ...]
    """Of several, the best one counts."""
    second: str
    direction: Direction = "above"
    splits: tuple[str, ...] = SPLITS
    """Columns in which it is claimed; empty: in the column of every dataset."""
    against: str = ""
    """Split that `second` is taken in; left out: the same."""
    margin: float | dict[str, float] = 0.0
    """In points of the measure, by column where they differ; ours, where the paper gives none."""
    scales: tuple[str, ...] = ()
    """Titles of the scales that it is of; none: all."""

    @property
    def firsts(self) -> tuple[str, ...]:
        """Each regime of `first`."""
        return (self.first,) if isinstance(self.first, str) else self.first

    def margin_in(self, column: str) -> float:
        """The margin in a column."""
        return self.margin.get(column, 0.0) if isinstance(self.margin, dict) else self.margin


@dataclass(frozen=True, slots=True)
class PaperTable:
    """One table or figure of the paper that `recipe reproduce` makes."""

    name: str
    title: str
    source: str
    """Where it is in the paper."""
    rows: tuple[PaperRow, ...] = ()
    claims: tuple[Claim, ...] = ()
    per_dataset: bool = False
    """Whether each dataset has a column, as well as the macro averages."""
    controls: dict[str, str] = field(default_factory=dict)
    """Plans without a model, by their names here, and the rows of the published table that they are."""

    @property
    def regimes(self) -> tuple[str, ...]:
        """The regimes of its rows, each once."""
        return tuple(dict.fromkeys(row.regime for row in self.rows))

    def published_value(self, row: PaperRow, scale: str, column: str) -> float | None:
        """The paper's figure of a row, at the scale of that title or else at 3B; None where it prints none."""
        if not row.table:
            return None
        table = published(row.table)
        groups = {printed.group for printed in table.rows}
        group = row.group.replace(SCALE, scale if scale in groups else FALLBACK)
        keys = [column.key for column in table.columns]
        known = any((printed.group, printed.name) == (group, row.row) for printed in table.rows)
        return table.value(group, row.row, column) if known and column in keys else None


with as_file(files("recipe_studies.reproduce") / "paper_tables.toml") as _path:
    TABLES = tuple(from_json(row, PaperTable, str(_path)) for row in read_config(_path)["tables"])


def weak(kind: str, percent: int) -> str:
    """The regime that trains on a percentage of weak examples.

    With 0 they are the annotated examples of the mixtures, where "rl" and "sft-annotated" train on all.

    >>> weak("rl", 0), weak("sft", 75)
    ('rl-weak-0', 'sft-weak-75')
    """
    return f"{kind}-weak-{percent}"


PERCENTAGES = (0, 25, 50, 75, 100)
ALL = "all"
FRONTIER = "a frontier model"
"""Stands in a claim for each model of `--models`."""
SHOWN_PROMPTS = 6
"""Prompts of the qualitative table (paper: six)."""


def table(name: str) -> PaperTable:
    """A table by its name. Raises ConfigError for another name."""
    for paper in TABLES:
        if paper.name == name:
            return paper
    raise ConfigError(
        removed_option("recipe reproduce", [name])
        or f"{name!r} is none of the tables; they are {', '.join(paper.name for paper in TABLES)}, or {ALL!r}."
    )


def tables(names: Sequence[str]) -> list[PaperTable]:
    """The tables of these names, each once, in the paper's order; `all` is every one. Raises ConfigError."""
    wanted = {table(name).name for name in names if name != ALL}
    return [paper for paper in TABLES if paper.name in wanted or ALL in names]


def published_scale(title: str) -> str:
    """The scale of the paper whose figures are shown next to a scale of that title."""
    return title if any(row.group == title for row in published("main").rows) else FALLBACK
