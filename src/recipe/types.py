"""The vocabulary of the project: frozen values without behaviour beyond their own consistency.

A *procedure* is a video's annotated steps; a *narration* is its spoken text. The planner maps an *example*'s goal and
history to a *plan*; the verifier maps a plan to a *reward* by aligning it with narrations.
"""

from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SPLITS = ("train", "val", "test")
"""The names of the splits, in every file of the project."""
Supervision = Literal["annotated", "weak"]
"""Where an example's steps come from: human labels, or Phi's pseudo-trace (paper, section 3.1) or a narration."""


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction in natural language, with its time span in seconds where it is known."""

    text: str
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """One narrated segment; times in seconds, both None for text that came without times."""

    text: str
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True, slots=True)
class Procedure:
    """A video's goal and its annotated steps, in the order they were performed."""

    source: str
    video_id: str
    goal: str
    steps: tuple[Step, ...]
    split: str = ""


@dataclass(frozen=True, slots=True)
class Narration:
    """A video's narration segments in time order, or the steps of a web page; a corpus is many of them."""

    video_id: str
    segments: tuple[Segment, ...]
    title: str | None = None
    source: str | None = None
    url: str | None = None
    """The http or https address of the page that it is from; None where the id alone tells where to look."""


@dataclass(frozen=True, slots=True)
class Example:
    """What a planner is trained and tested on: a procedure cut after `cut` steps (paper, section 3.1)."""

    example_id: str
    source: str
    video_id: str
    goal: str
    history: tuple[str, ...]
    continuation: tuple[str, ...]
    cut: int
    split: str = ""
    supervision: Supervision = "annotated"
    until: float | None = None
    """Seconds into the video at which the first step to be planned starts, where known: h_V, the video history, is
    what was shown before."""
    told_history: tuple[str, ...] | None = None
    """Phi(h_V), the history that a Socratic policy reads in training while the reward uses `history` (paper, section
    3.2); None where the policy reads `history`, empty where Phi saw no step."""
    worded: bool = False
    """Whether goal and annotated steps are in a model's words (`recipe data reword`)."""


@dataclass(frozen=True, slots=True, eq=False)
class Frames:
    """Frames of a video in time order, upright, as a planner or Phi sees them."""

    images: "NDArray[np.uint8]"
    """RGB [T, H, W, 3]."""
    times: "NDArray[np.float64]"
    """Seconds into the video at which each appears [T], never decreasing; equal where a frame is still shown at the
    time of the next."""
    rate: float
    """Frames a second that these are meant to be: the time between two is 1 / rate."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Ordered steps that a model proposes as the rest of a procedure."""

    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Malformed:
    """A completion that holds no plan, and why: a value, because a bad completion must not stop a batch."""

    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A narration found by stage 1: its index in the corpus and its A_mono."""

    narration: int
    score: float


@dataclass(frozen=True, slots=True)
class Alignment:
    """A_NW of steps against segments, and the path that attains it.

    Each move of `path` is (step, segment) for a match, (step, None) for a skipped step, (None, segment) for a skipped
    segment, with zero-based indices; `len(path)` is the |pi*| that normalises the score.
    """

    score: float
    path: tuple[tuple[int | None, int | None], ...]


@dataclass(frozen=True, slots=True, repr=False)
class Reward:
    """The reward of one completion and every part that made it (paper, equations 6 to 8).

    The grounded verifier fills the same fields with its own alignment, and adds what it knows in `parts`.
    """

    total: float
    """R: what the trainer sees."""
    aligned_history: float
    """A(h) on the pool: the baseline, 0 without a history."""
    aligned_full: float
    """A(h + c) on the pool."""
    rho: float
    """Relative progress."""
    gated: bool
    """True where rho fell short of tau, so that the total is the penalty branch."""
    steps: int
    """Number of steps in the completion."""
    pool: tuple[Hit, ...]
    """Narrations that A(h + c) was taken over, best first by A_mono."""
    best_narration: int | None
    """The narration of the pool that attains A(h + c); None when nothing was aligned."""
    coverage: float | None = None
    """How far the corpus covers the prompt, whatever is completed; None where the verifier does not say."""
    parts: dict[str, float] = field(default_factory=dict)
    """Further named parts of the total."""

    @property
    def numbers(self) -> dict[str, float]:
        """The parts of R that are numbers, for logs; a coverage that the verifier does not report is left out."""
        numbers = {
            "aligned_history": self.aligned_history,
            "aligned_full": self.aligned_full,
            "rho": self.rho,
            "gated": float(self.gated),
            "steps": float(self.steps),
        }
        return numbers | ({} if self.coverage is None else {"coverage": self.coverage}) | self.parts

    def __repr__(self) -> str:
        notes = ["gated"] if self.gated else []
        return f"<Reward {', '.join([*(f'{name} {value}' for name, value in self._figures()), *notes])}>"

    def _repr_html_(self) -> str:
        """Every figure, for notebooks."""
        parts = [(name.replace("_", " "), f"{value:.3f}") for name, value in self.parts.items()]
        rows = "".join(f"<tr><td>{escape(name)}</td><td>{value}</td></tr>" for name, value in self._figures() + parts)
        return f"<table><caption>Reward</caption>{rows}</table>"

    def _figures(self) -> list[tuple[str, str]]:
        numbers = {
            "total": self.total,
            "history alone": self.aligned_history,
            "history and plan": self.aligned_full,
            "progress": self.rho,
        }
        figures = [(name, f"{value:.3f}") for name, value in numbers.items()]
        return [*figures, ("steps", str(self.steps)), ("pool", str(len(self.pool)))]


@dataclass(frozen=True, slots=True)
class PooledAlignment:
    """How the steps of h + c align with one narration of the pool, by the verifier's own alignment."""

    hit: Hit
    score: float
    matches: tuple[tuple[int, int], ...]
    """(step, segment), both from 0 and both rising; a step that is not here is unmatched."""
    similarities: "NDArray[np.float32]"
    """[M steps, L segments], as the verifier sees them."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judge's six scores of one plan, integers from 0 to 5 (paper, appendix on the evaluation protocol)."""

    logical_progression: int
    temporal_alignment: int
    spatial_grounding: int
    continuation: int
    clarity: int
    semantic_alignment: int

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= 5:
                raise ValueError(f"{name} is {value!r}, which is no integer from 0 to 5")

    @property
    def scores(self) -> dict[str, float]:
        """The six by their names."""
        return {name: float(getattr(self, name)) for name in self.__slots__}

    @property
    def total(self) -> int:
        """The sum of the six, 0 to 30."""
        return sum(getattr(self, name) for name in self.__slots__)


@dataclass(frozen=True, slots=True)
class Grades:
    """A judge's scores of one plan by a rubric of the user's own, or by a function of theirs (docs/own.md)."""

    scores: dict[str, float]
    """By criterion, on the rubric's scale."""
    percent: float
    """Their mean on that scale, 0 at its lowest and 100 at its highest value."""
    rules: tuple[str, ...] = ()
    """Rules of the rubric that hold and capped scores."""


@dataclass(frozen=True, slots=True)
class Unscored:
    """That a judge gave no verdict, and why: missing, and never zero."""

    reason: str
