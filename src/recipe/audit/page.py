"""An audit as one self-contained HTML page: a picture and coverage first, then classes, length, padding, attack."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from recipe.artifacts import atomic_path, read_json, to_json, write_json, write_text
from recipe.audit.attack import BEST_OF, KINDS
from recipe.audit.classes import CORRUPTIONS, GROUP_OF, GROUPS
from recipe.audit.results import AttackResult, Audit, RewardAudit
from recipe.audit.score import LENGTH, RELEVANCE, in_percent, percent
from recipe.errors import MissingExtra
from recipe.report.colours import BLUE, GREEN, GREY, PURPLE, SPARE, VERMILION
from recipe.report.elements import (
    Cell,
    Figure,
    MarkedStep,
    NamedValues,
    PlanColumn,
    Plans,
    Section,
    Table,
    TableRow,
    headings,
    row,
)
from recipe.report.numbers import format_number
from recipe.report.page import render
from recipe.report.plots import Line, Mark, curves, inline_svg, intervals, stacked
from recipe.rows import from_json
from recipe.stats import Interval

try:
    from matplotlib.figure import Figure as Drawing
except ModuleNotFoundError as error:
    raise MissingExtra("the audit's page", "report") from error

DATA, PAGE = "audit.json", "audit.html"
KIND_COLOURS: dict[str, str] = dict(zip(KINDS, (GREEN, VERMILION, GREY, PURPLE, BLUE, SPARE[0]), strict=True))
"""Kinds of steps of an attack."""


def _shares_figure(rewards: Sequence[RewardAudit]) -> Drawing:
    """How often each reward prefers the true continuation: its mean with the interval, and its worst class."""
    marks = []
    for reward in rewards:
        marks.append(Mark(reward.name, in_percent(reward.mean)))
        worst = reward.worst_class.replace("_", " ")
        marks.append(Mark(reward.name, Interval(100 * reward.worst.mean), hollow=True, note=worst))
    colours = {reward.name: GREY if reward.name in (LENGTH, RELEVANCE) else BLUE for reward in rewards}
    unit = "percent of comparisons in which the true continuation earns more (dashed: chance)"
    return intervals(marks, colours=colours, xlim=(0, 100), unit=unit, line=50)


def _filler_figure(rewards: Sequence[RewardAudit]) -> Drawing:
    """Mean reward and its interval against the number of generic steps after the true plan, one panel a reward."""
    lines, levels = [], {}
    for reward in rewards:
        steps = [point.steps for point in reward.filler_curve]
        lines.append(Line(reward.name, "", steps, [point.reward for point in reward.filler_curve]))
        levels[reward.name] = [("", reward.filler_curve[0].reward.mean)]
    return curves(lines, colours={"": BLUE}, xlabel="generic steps after the true continuation", levels=levels)


def _attack_figure(
    rewards: Sequence[RewardAudit], attack_of: Callable[[RewardAudit], AttackResult | None]
) -> Drawing | None:
    """Length of an attack's plans in true lengths, by kinds of steps; None where no reward was attacked."""
    attacked = {reward.name: attack for reward in rewards if (attack := attack_of(reward)) is not None}
    if not attacked:
        return None
    return stacked(
        {
            name: {kind: attack.length_ratio * share for kind, share in attack.composition.items()}
            for name, attack in attacked.items()
        },
        colours=KIND_COLOURS,
        unit="steps of the attack, in true lengths (dashed: the true continuation)",
        line=1,
        notes={name: f"earns more in {percent(attack.beats_true.mean)}%" for name, attack in attacked.items()},
    )


PLOTS: dict[str, Callable[[Sequence[RewardAudit]], Drawing | None]] = {
    "shares": _shares_figure,
    "filler": _filler_figure,
    "attack": lambda rewards: _attack_figure(rewards, lambda reward: reward.attack),
    "best_of": lambda rewards: _attack_figure(rewards, lambda reward: reward.best_of),
}
"""Figures by the names of their files."""
CAPTIONS = {
    "shares": "Filled: mean over all classes of corrupted plans, with its 95% interval. Hollow: the class where the "
    "reward is worst. Grey: controls that read no corpus.",
    "filler": "Mean reward with its 95% interval; dashed: the true continuation by itself.",
    "attack": "Mean length of the greedy optimum, by the kinds of its steps; how often it earns more than the truth.",
    "best_of": f"The same of the best of {BEST_OF} plans that are composed at random, of one step to two true lengths.",
}


def _render_audit(audit: Audit) -> str:
    """The whole page; the same audit gives the same page."""
    figures = {
        name: Figure(inline_svg(drawing, name, caption), caption)
        for (name, draw), caption in zip(PLOTS.items(), CAPTIONS.values(), strict=True)
        if (drawing := draw(audit.rewards)) is not None
    }
    counts = ", ".join(f"{count} {source}" for source, count in audit.procedures.items())
    settings = NamedValues(tuple(_named(audit.settings)))
    sections = [
        _classes_section(audit),
        _measures_section(audit),
        Section("filler", "Padding the true continuation", "Padding", blocks=(figures["filler"],)),
        *_attack_section(audit, figures),
        Section("run", "How it was run", "How it was run", blocks=(settings,), folded=True),
    ]
    findings = (audit.answer, *audit.findings)
    subtitle = f"{sum(audit.procedures.values())} procedures: {counts}"
    return render("What these rewards can tell apart", subtitle, findings, sections, lead=(figures["shares"],))


def _classes_section(audit: Audit) -> Section:
    """Shares of every class and group by reward, and of samples and of another video of the goal."""
    rewards = audit.rewards
    members = list[TableRow]()
    rows = [
        row("mean", *(_share(reward.mean) for reward in rewards), kind="total", about="over the classes"),
        row(
            "worst class",
            *(_least(reward.worst.mean, reward.worst_class) for reward in rewards),
            kind="total",
        ),
    ]
    known = {name for reward in rewards for name in reward.classes}
    for group in GROUPS:
        classes = {name: CORRUPTIONS[name] for name in CORRUPTIONS if name in known and GROUP_OF[name] == group}
        if not classes:
            continue
        about = f"mean of {len(classes)} {'class' if len(classes) == 1 else 'classes'}"
        rows.append(row(group, *(_share(reward.groups.get(group)) for reward in rewards), about=about))
        for name, meaning in classes.items():
            cells = (_share(reward.classes.get(name)) for reward in rewards)
            members.append(row(name.replace("_", " "), *cells, about=meaning, section=group))
    for system in dict.fromkeys(system for reward in rewards for system in reward.samples):
        own = next(reward.samples[system] for reward in rewards if system in reward.samples)
        length, empty = format_number(own.length_ratio, 1), percent(own.without_steps)
        cells = (_share(reward.samples[system].true_wins if system in reward.samples else None) for reward in rewards)
        about = f"its samples: {length} true lengths, {empty}% without steps; in no mean"
        rows.append(row(system, *cells, kind="published", about=about))
    cells = (_share(reward.alternative) for reward in rewards)
    rows.append(row("alternative", *cells, kind="published", about="another video of the goal: 50 is fair"))
    paragraph = (
        "Percent of prompts in which the true continuation earns more than the corrupted one, ties half; small, the "
        "95% interval, clustered by goal, where the prompts differ enough for one. 50 is chance; blue lies above it, "
        "orange below. length rewards the number of steps, relevance nearness to goal and history and novelty; neither "
        "reads the corpus."
    )
    names = headings(*(reward.name for reward in rewards))
    tables = (
        Table("The true continuation earns more", "plans corrupted in", names, tuple(rows), "percent"),
        Table("Each class of corrupted plans", "class", names, tuple(members), "percent", folded=True),
    )
    return Section("classes", "True against corrupted", "Classes", (paragraph,), tables)


def _measures_section(audit: Audit) -> Section:
    """Length, gate and coverage by reward."""
    rewards = audit.rewards
    rows = [
        row(
            "mean against relevance, points",
            *(Cell(reward.over_relevance and in_percent(reward.over_relevance), 0, signed=True) for reward in rewards),
        ),
        row("correlation with length", *(Cell(reward.length_correlation, 2, signed=True) for reward in rewards)),
        row("true continuations gated, percent", *(Cell(100 * reward.gated, 0) for reward in rewards)),
        row("corrupted ones gated, percent", *(Cell(100 * reward.gated_corrupted, 0) for reward in rewards)),
    ]
    if any(reward.coverage is not None for reward in rewards):
        rows.append(row("coverage, as it reports", *(Cell(reward.coverage, 2) for reward in rewards)))
    if rewards[0].mean_by_coverage:
        for index, third in enumerate(("least", "medium", "most")):
            means = (
                Cell(100 * reward.mean_by_coverage[index] if reward.mean_by_coverage else None, 0) for reward in rewards
            )
            rows.append(row(f"mean where the corpus covers {third}", *means))
    rows.append(row("seconds", *(Cell(reward.seconds, 1) for reward in rewards)))
    notes: tuple[str, ...] = ()
    if audit.coverage is not None:
        notes = (
            "Coverage: the steps of a procedure match the ten narrations nearest to them in order better than random "
            f"ones by {format_number(audit.coverage.kappa)} a step, steps mixed from other tasks by "
            f"{format_number(audit.coverage.mixed)}.",
        )
    names = headings(*(reward.name for reward in rewards))
    table = Table("Length, gate, coverage", "measure", names, tuple(rows), notes=notes)
    return Section("measures", "Length, gate, coverage", "Measures", blocks=(table,))


def _attack_section(audit: Audit, figures: Mapping[str, Figure]) -> Iterator[Section]:
    """Plans that are grown or chosen for a reward; nothing where none was attacked."""
    attacks = [(reward, reward.attack) for reward in audit.rewards if reward.attack is not None]
    if not attacks:
        return
    first = attacks[0][1]
    others = (
        ", the history in other words, and lines that restate the goal"
        if "goal" in first.composition
        else (", and the history in other words")
    )
    paragraphs = [
        "A plan is grown step by step by whichever step raises the reward most, out of the true steps, those of "
        f"another goal, generic ones, the history{others}, on {first.prompts} prompts."
    ]
    if "best_of" in figures:
        paragraphs.append(
            f"The best of {BEST_OF} composed plans takes no search: plans are composed of the same steps at "
            "random, and the one with the highest reward is set against the truth. Where it often earns more, the "
            "reward is not fit to choose among samples."
        )
    rows = []
    for title, own in (
        ("greedy", [attack for _, attack in attacks]),
        (f"best of {BEST_OF}", [reward.best_of for reward, _ in attacks]),
    ):
        wins = (Cell(None if result is None else in_percent(result.beats_true), 0) for result in own)
        rows.append(row(f"{title}: earns more than the truth, percent", *wins))
        lengths = (Cell(None if result is None else result.length_ratio, 1) for result in own)
        rows.append(row(f"{title}: length, in true lengths", *lengths))
        true = (Cell(None if result is None else 100 * result.composition.get("true", 0), 0) for result in own)
        rows.append(row(f"{title}: true steps, percent", *true))
    names = headings(*(reward.name for reward, _ in attacks))
    table = Table("Plans against the truth", "attack", names, tuple(rows))
    examples = Plans(
        tuple(
            PlanColumn(
                reward.name,
                tuple(MarkedStep(step, about=kind) for step, kind in attack.example),
                f"{attack.example_goal}, its longest attack for its prompt; {percent(attack.repeated)}% of all steps "
                f"repeat one of the plan, {percent(attack.at_limit)}% of plans end at the limit",
            )
            for reward, attack in attacks
        ),
        "One greedy plan of each",
    )
    drawn = [figures[name] for name in ("attack", "best_of") if name in figures]
    title = "What each reward draws a policy to"
    yield Section("attack", title, "Attack", tuple(paragraphs), (*drawn, table, examples))


def write_audit(audit: Audit, folder: Path | str) -> list[Path]:
    """Write data, page and plots into a folder, each all or nothing; returns the files."""
    folder = Path(folder)
    written = [folder / DATA, folder / PAGE]
    write_json(written[0], to_json(audit), sort_keys=False)  # tables show names in the order of the run
    write_text(written[1], _render_audit(audit))
    for name, draw in PLOTS.items():
        if (figure := draw(audit.rewards)) is not None:
            written.append(folder / f"{name}.png")
            with atomic_path(written[-1]) as partial:
                figure.savefig(partial, format="png", dpi=160, facecolor="white", metadata={"Software": None})
    return written


def rerender(folder: Path) -> Path:
    """Write the page and the plots of an audit again from its data; returns the page. Raises InputError."""
    return write_audit(from_json(read_json(folder / DATA), Audit, str(folder / DATA)), folder)[1]


def _named(settings: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, str]]:
    """Settings by their names, those of a table of settings each with its own."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _named(value, f"{within}{name}.")
        else:
            yield f"{within}{name}", ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _share(share: Interval | None) -> Cell:
    """A share in percent, coloured by how far it is from 50."""
    if share is None:
        return Cell(None, hint="could not be made")
    why = f"; no interval: {share.reason}" if share.reason else ""
    hint = f"{share.observations} prompts, {share.clusters} goals{why}"
    # 200 (share - 1/2): from -100 for a share of 0 by way of no colour at chance to 100.
    # The reason in every cell would make the table wider than a phone.
    part: Literal["all", "mean"] = "mean" if share.reason else "all"
    return Cell(in_percent(share), 0, shade=round(200 * (share.mean - 0.5)), hint=hint, part=part)


def _least(share: float | None, name: str | None) -> Cell:
    """The lowest share and its class."""
    if share is None or name is None:
        return Cell(None)
    return Cell(100 * share, 0, note=name.replace("_", " "), shade=round(200 * (share - 0.5)))
