"""The paper's tables as data: the regimes in their rows, the published figures, and what the paper claims of them.

A claim is a difference between two regimes with its direction. `recipe_studies.reproduce.findings` decides from the
interval of the measured difference whether it holds here, does not, or cannot be told.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from recipe.config.planning import Proposers
from recipe.errors import ConfigError
from recipe.evaluation.published import published
from recipe_studies.reproduce.study import regime

Direction = Literal["above", "not below", "like"]
"""Of a claimed difference: more than 0; more than minus a margin; within a margin of 0."""

IN_DOMAIN, ZERO_SHOT = "in-domain", "zero-shot"
SPLITS = (IN_DOMAIN, ZERO_SHOT)
SCALE = "{scale}"
"""Stands for the title of the scale in the name of a published row's group."""
FALLBACK = "Qwen2.5-3B"
"""Scale whose published figures stand beside a scale that the paper does not have."""
DIVERSITY_SAMPLES = 10
"""Plans of a prompt that are compared in pairs (paper, appendix on diversity)."""


_VIDASSIST: dict[Proposers, str] = {
    "original": "VidAssist",
    "recipe": "VidAssist, {} alone",
    "both": "VidAssist with {}",
}


@dataclass(frozen=True, slots=True)
class PaperRow:
    """A regime's row, and where the paper prints its figures."""

    regime: str
    table: str = ""
    """Name of a published table; empty where the paper has no such row."""
    group: str = SCALE
    row: str = ""
    proposers: Proposers | None = None
    """Who proposes in VidAssist, where the regime is the planner; None: the regime's own plans."""

    @property
    def name(self) -> str:
        """Tells the rows of a table apart."""
        return self.regime if self.proposers is None else f"vidassist-{self.proposers}-{self.regime}"

    @property
    def title(self) -> str:
        """The row as tables show it. Raises ConfigError."""
        title = regime(self.regime).title
        return title if self.proposers is None else _VIDASSIST[self.proposers].format(title)


@dataclass(frozen=True, slots=True)
class Claim:
    """What the paper says of two regimes, or of two rows of VidAssist by their names."""

    sentence: str
    """The claim, with the figures that the paper gives."""
    source: str
    first: str
    second: str
    direction: Direction = "above"
    splits: tuple[str, ...] = SPLITS
    margin: float = 0.0
    """In points of the measure; ours, where the paper gives none."""


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
    """Whether each dataset has a column, beside the macro averages."""

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


def _share(percent: int, kind: str) -> PaperRow:
    if kind == "rl" and percent in (0, 100):
        return PaperRow(weak(kind, percent), "weak_scale", SCALE, f"RECIPE-RL, {percent}% weak")
    if kind == "sft" and percent in (75, 100):
        return PaperRow(weak(kind, percent), "weak_supervision", f"{percent}% weak", "SFT")
    return PaperRow(weak(kind, percent))


def weak(kind: str, percent: int) -> str:
    """The regime that trains on a percentage of weak examples.

    With 0 they are the annotated examples of the mixtures, where "rl" and "sft-annotated" train on all.

    >>> weak("rl", 0), weak("sft", 75)
    ('rl-weak-0', 'sft-weak-75')
    """
    return f"{kind}-weak-{percent}"


PERCENTAGES = (0, 25, 50, 75, 100)
_BASE = PaperRow("base", "per_dataset", SCALE, "Base")
_RL = PaperRow("rl", "per_dataset", SCALE, "RECIPE-RL")
_PARTS = {
    "ablation-stage-2": ("without stage 2", "7 points in-domain, 11 zero-shot"),
    "ablation-history-baseline": ("without history baseline", "6 and 9 points"),
    "ablation-relative-progress": ("without relative progress", "8 and 6 points"),
    "ablation-gate": ("without progress gate", "4 and 5 points"),
}

TABLES: tuple[PaperTable, ...] = (
    PaperTable(
        "main",
        "Main results: the base model and RL, per dataset",
        "figure of the main results, table of the datasets in the appendix",
        (_BASE, _RL),
        (Claim("RL improves over the base, in-domain and zero-shot", "section 4.2, main results", "rl", "base"),),
        per_dataset=True,
    ),
    PaperTable(
        "regimes",
        "Same corpus, two roles: as a source of labels and as a verifier",
        "section 4.2, figure of the supervision",
        (
            PaperRow("base", "main", SCALE, "Base"),
            PaperRow("sft-annotated"),
            PaperRow("sft-ht100m", "supervision", SCALE, "SFT-HT100M"),
            PaperRow("rl", "main", SCALE, "RECIPE-RL"),
            PaperRow("sft-rl"),
            PaperRow("rl-grounded"),
            PaperRow("rounds-grounded"),
        ),
        (
            Claim(
                "SFT on pseudo-labels is worse than the base (31.4 to 12.1 in-domain at 3B)",
                "section 4.2",
                "base",
                "sft-ht100m",
            ),
            Claim("RL is better than SFT on pseudo-labels from the same corpus", "section 4.2", "rl", "sft-ht100m"),
            Claim("RL is better than SFT on annotations", "section 4.2", "rl", "sft-annotated"),
            Claim("SFT → RL is better than SFT on annotations", "section 4.2", "sft-rl", "sft-annotated"),
            Claim("RL alone is as good as SFT → RL or better", "section 4.2", "rl", "sft-rl", "not below", margin=1.0),
        ),
    ),
    PaperTable(
        "weak",
        "Robustness to weak supervision",
        "section 4.3, figure and table of weak supervision",
        (
            *(_share(percent, kind) for kind in ("rl", "sft") for percent in PERCENTAGES),
            PaperRow("base", "main", SCALE, "Base"),
        ),
        (
            *(
                Claim(
                    f"RL with {percent}% weak examples is like RL without (36 to 40 in-domain, 35 to 39 zero-shot)",
                    "section 4.3",
                    weak("rl", percent),
                    weak("rl", 0),
                    "like",
                    margin=4.0,
                )
                for percent in PERCENTAGES[1:]
            ),
            *(
                Claim(
                    f"SFT with {percent}% weak examples is worse than the base zero-shot ({figure} against 23.1)",
                    "section 4.3",
                    "base",
                    weak("sft", percent),
                    splits=(ZERO_SHOT,),
                )
                for percent, figure in ((75, 12.8), (100, 13.7))
            ),
            Claim(
                "RL with weak examples alone is better than SFT with them alone",
                "section 4.3",
                weak("rl", 100),
                weak("sft", 100),
            ),
        ),
    ),
    PaperTable(
        "video",
        "The Video configuration: the policy reads frames",
        "section 4.4, table of the Video configuration",
        (
            PaperRow("video-base", "video", "Qwen2.5-VL-3B", "Base"),
            PaperRow("video-sft", "video", "Qwen2.5-VL-3B", "SFT (annotated)"),
            PaperRow("video-sft-weak", "video", "Qwen2.5-VL-3B", "SFT (weak)"),
            PaperRow("video-rl", "video", "Qwen2.5-VL-3B", "RECIPE-RL (annotated)"),
            PaperRow("video-rl-weak", "video", "Qwen2.5-VL-3B", "RECIPE-RL (weak)"),
        ),
        (
            Claim(
                "RL improves over the base zero-shot (+0.6)",
                "section 4.4",
                "video-rl",
                "video-base",
                splits=(ZERO_SHOT,),
            ),
            Claim(
                "RL on weak examples improves over the base zero-shot (+1.1)",
                "section 4.4",
                "video-rl-weak",
                "video-base",
                splits=(ZERO_SHOT,),
            ),
            Claim(
                "SFT is worse than the base zero-shot (-7.9)",
                "section 4.4",
                "video-base",
                "video-sft",
                splits=(ZERO_SHOT,),
            ),
        ),
        per_dataset=True,
    ),
    PaperTable(
        "ablation",
        "Parts of the reward taken out, and readings of the pool",
        "section 4.6, table of the reward components",
        (
            *(PaperRow(name, "ablation", FALLBACK, row) for name, (row, _) in _PARTS.items()),
            PaperRow("ablation-gate-plain", "ablation", FALLBACK, "without progress gate"),
            PaperRow("pool-full"),
            PaperRow("pool-own"),
            PaperRow("rl", "ablation", FALLBACK, "whole reward"),
        ),
        (
            *(
                Claim(f"the whole reward is better than the reward {row} ({figures})", "section 4.6", "rl", name)
                for name, (row, figures) in _PARTS.items()
            ),
            Claim(
                "the whole reward is better than R = A(h + c), the other reading of the gate",
                "section 4.6",
                "rl",
                "ablation-gate-plain",
            ),
        ),
    ),
    PaperTable(
        "diversity",
        "Procedural diversity beside accuracy",
        "section 4.7, figure of procedural diversity",
        (
            PaperRow("base", "diversity", "COIN", "Base"),
            PaperRow("sft-annotated", "diversity", "COIN", "SFT"),
            PaperRow("rl", "diversity", "COIN", "RECIPE-RL"),
        ),
        (
            Claim(
                "plans of SFT are less diverse than those of the base (0.165 against 0.348)",
                "section 4.7",
                "base",
                "sft-annotated",
                splits=("",),
            ),
            Claim(
                "plans of RL are as diverse as those of the base or more (0.373)",
                "section 4.7",
                "rl",
                "base",
                "not below",
                splits=("",),
                margin=0.02,
            ),
            Claim(
                "plans of RL are more diverse than those of SFT",
                "section 4.7",
                "rl",
                "sft-annotated",
                splits=("",),
            ),
        ),
    ),
    PaperTable(
        "vpa",
        "Visual Planning for Assistance: next actions of a closed set",
        "section 4.5, table of VPA",
        (
            PaperRow("base"),
            PaperRow("rl"),
            PaperRow("base", "vpa", "zero-shot", "VidAssist", "original"),
            PaperRow("base", proposers="recipe"),
            PaperRow("rl", proposers="recipe"),
            PaperRow("base", "vpa", "zero-shot", "VidAssist w/ Base", "both"),
            PaperRow("rl", "vpa", "zero-shot", "VidAssist w/ RECIPE-RL", "both"),
        ),
        (
            Claim(
                "VidAssist with RL improves over VidAssist (+0.2 to +1.4 mAcc, +0.2 to +0.6 SR)",
                "section 4.5",
                "vidassist-both-rl",
                "vidassist-original-base",
                splits=("1.accuracy", "3.success_rate", "3.accuracy", "4.success_rate", "4.accuracy"),
            ),
            Claim(
                "VidAssist alone has the higher mIoU (44.1 against 35.7 at T = 3, 46.8 against 34.5 at T = 4)",
                "section 4.5",
                "vidassist-original-base",
                "vidassist-both-rl",
                splits=("3.iou", "4.iou"),
            ),
            Claim(
                "VidAssist with the base is worse than VidAssist in every measure",
                "section 4.5",
                "vidassist-original-base",
                "vidassist-both-base",
                splits=tuple(column.key for column in published("vpa").columns),
            ),
            Claim(
                "the gain is RL's: VidAssist with RL improves over VidAssist with the base (+2.6 mAcc at T = 3)",
                "section 4.5",
                "vidassist-both-rl",
                "vidassist-both-base",
                splits=("1.accuracy", "3.accuracy", "4.accuracy"),
            ),
        ),
    ),
    PaperTable(
        "frontier",
        "Frontier models behind an endpoint, as an upper envelope",
        "appendix, table of frontier models",
        (_BASE, _RL),
        (),
        per_dataset=True,
    ),
    PaperTable(
        "qualitative",
        "Plans side by side",
        "section 4.8, table of plans",
        (PaperRow("base"), PaperRow("sft-annotated"), PaperRow("rl")),
    ),
)
ALL = "all"
SHOWN_PROMPTS = 6
"""Prompts of the qualitative table (paper: six)."""


def table(name: str) -> PaperTable:
    """A table by its name. Raises ConfigError for another name."""
    for paper in TABLES:
        if paper.name == name:
            return paper
    raise ConfigError(
        f"{name!r} is none of the tables; they are {', '.join(paper.name for paper in TABLES)}, or {ALL!r}."
    )


def tables(names: Sequence[str]) -> list[PaperTable]:
    """The tables of these names, each once, in the paper's order; `all` is every one. Raises ConfigError."""
    wanted = {paper.name for paper in TABLES} if ALL in names else {table(name).name for name in names}
    return [paper for paper in TABLES if paper.name in wanted]


def published_scale(title: str) -> str:
    """The scale of the paper whose figures stand beside a scale of that title."""
    return title if any(row.group == title for row in published("main").rows) else FALLBACK
