"""Metrics and training regimes as reports show them: names in words, cells, differences, colours."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

from recipe.report.colours import BLUE, DARK_GREY, GREEN, GREY, PURPLE, SPARE, VERMILION
from recipe.report.elements import Cell, Table, difference_text, headings, row
from recipe.stats import Interval

METRICS: dict[str, str] = {
    "score": "validity",
    "matched_f1": "matched step F1",
    "matched_ordered_f1": "matched step F1 in order",
    "f1": "step F1",
    "ordered_f1": "step F1 in order",
    "order": "order",
    "coverage": "coverage",
    "clean": "clean",
    "perfect": "perfect plans",
    "steps": "steps in a plan",
    "length_error": "length error",
    "length_apart": "absolute length error",
    "repeats": "repeated steps",
    "copied": "copied from the history",
    "alien": "foreign steps",
    "distinct": "distinct of 10",
    "reward": "reward",
    "paper": "the paper's reward",
    "grounded": "grounded reward",
    "self-trained": "self-trained reward",
    "relevance": "relevance (no corpus)",
    "proxy": "proxy judge",
    "gated": "gated",
    "malformed": "without steps",
}
"""Keys of metrics in the order of tables, with their names in words; others are shown too, after them."""
SHARES = frozenset({"perfect", "repeats", "copied", "alien", "gated", "malformed"})
"""Metrics that are shares, shown in percent."""
_DIGITS = {"steps": 1, "distinct": 1, "reward": 3, "paper": 3, "grounded": 3, "self-trained": 3, "relevance": 3}

CONTROL = "control: "
"""Begins the name of a control where it stands among systems."""
REGIMES = {"reference": GREY, "base": DARK_GREY, "sft": BLUE, "rl": VERMILION, "sft->rl": PURPLE, "best": GREEN}
"""Colours of training regimes by their lower-case names."""
REWARDS = {"paper": VERMILION, "grounded": GREEN, "self-trained": SPARE[0], "validity": BLUE, "relevance": SPARE[2]}
"""Colours of regimes whose name ends on the reward that trains or chooses, in a comparison of rewards."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean of `regime` minus `baseline` over the same prompts, with the paired interval."""

    split: str
    regime: str
    baseline: str
    metric: str
    value: Interval
    seed: int | None = None
    """Of the one run that was compared; None for the mean over all runs of the regime."""

    @property
    def beaten(self) -> bool:
        """Whether the baseline is beaten: the interval is clear of 0 and above it; not where that cannot be told."""
        return self.value.sign == 1


def ordered_metrics(present: Iterable[str]) -> list[str]:
    """Metrics in the order of tables, unknown ones last."""
    names = dict.fromkeys(present)
    return [name for name in METRICS if name in names] + [name for name in names if name not in METRICS]


def metric_cell(value: Interval | float | None, metric: str, signed: bool = False) -> Cell:
    """A metric's value, or a difference of it, with the digits that test sets can tell apart.

    >>> metric_cell(0.1749, "repeats").text, metric_cell(4.21, "steps").text, metric_cell(-0.034, "alien", True).text
    ('17 %', '4.2', '−3 pp')
    """
    if metric in SHARES:
        return Cell(value, 0, percent=True, signed=signed)
    return Cell(value, _DIGITS.get(metric, 2), signed=signed)


def readings_table(
    caption: str, figures: Iterable[tuple[str, Mapping[str, Interval]]], digits: int = 1, signed: bool = False
) -> list[Table]:
    """Figures by name with their readings (see `evaluation.scores`), a column each; no table where none has any."""
    read = [(name, readings) for name, readings in figures if readings]
    names = list(dict.fromkeys(reading for _, readings in read for reading in readings))
    table = Table(
        caption=f"Where verdicts are missing: {caption[:1].lower()}{caption[1:]}",
        first="over",
        headings=headings(*(name.replace("_", " ") for name in names)),
        rows=tuple(
            row(over_name, *(Cell(readings.get(name), digits, signed=signed) for name in names))
            for over_name, readings in read
        ),
        about="95% interval below",
        notes=(
            "Left out: a missing verdict is in no mean. As 0 and as best: each counts so. Lowest and highest, of a "
            "difference: 0 for one side and the best for the other. Whatever the judge would have said lies between "
            "the outer two. A plan may be written so that the judge refuses: read the first.",
        ),
    )
    return [table] if read else []


def regime_colours(regimes: Iterable[str]) -> dict[str, str]:
    """A colour for each regime or system; those of one name always have the same."""
    colours, spare = dict[str, str](), cycle(SPARE)
    for regime in dict.fromkeys(regimes):
        # "Best of 8" and "best-of-16" have one colour, and arrows may be written either way.
        name = regime.lower().replace(" ", "").replace("→", "->").replace("best-of", "best")
        of_reward = next((colour for reward, colour in REWARDS.items() if name.endswith(reward)), None)
        known = of_reward or REGIMES.get("best" if name.startswith("best") else name)
        colours[regime] = GREY if regime.startswith(CONTROL) else known or next(spare)
    return colours


def control_sentences(differences: Sequence[Difference], digits: int = 3) -> list[str]:
    """A sentence for each system that does not beat every control, and one where that cannot be told."""
    missed: dict[tuple[str, str, bool], list[str]] = {}
    for difference in differences:
        if not difference.beaten:
            value, control = difference.value, difference.baseline.removeprefix(CONTROL)
            # What cannot be told is said apart from what is not so.
            key = difference.regime, difference.metric, value.sign is None
            missed.setdefault(key, []).append(f"{control}: {difference_text(value, digits)}")
    return [
        f"{system} {'may or may not beat' if untold else 'does not beat'} "
        f"{'these controls' if len(parts) > 1 else 'this control'} on "
        f"{METRICS.get(metric, metric)}: {'; '.join(parts)}."
        for (system, metric, untold), parts in missed.items()
    ]
