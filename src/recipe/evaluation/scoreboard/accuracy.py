"""Accuracy by judge: systems, controls, and the paper's figures, apart unless the judge is the paper's."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from recipe.artifacts import fingerprint
from recipe.data.roles import TITLES, role_of
from recipe.evaluation.judge.verdicts import CRITERIA, HIGHEST
from recipe.evaluation.measures import Measure
from recipe.evaluation.metrics import regime_colours
from recipe.evaluation.published import JUDGE, PublishedTable, published
from recipe.evaluation.scores import Group, JudgeIdentity, Scores
from recipe.report.elements import Cell, Figure, Heading, Section, Table, TableRow, row
from recipe.report.plots import Mark, inline_svg, intervals
from recipe.stats import Interval

SPLIT_NAMES = {"in-domain": "In-domain", "zero-shot": "Zero-shot", "all": "All datasets"}
SPLIT_ORDER = ("in-domain", "zero-shot")
_KINDS = {
    "llm": "a language model",
    "proxy": "a proxy computed on this machine",
    "function": "a function of one's own",
    "human": "a person",
}
_COUNTS = ("plans", "videos", "unscored", "missing", "empty", "shortened")


def comparability(judge: JudgeIdentity, model: str = JUDGE) -> str:
    """The sentence that stands wherever published figures are near those of a judge."""
    if judge.is_model(model):
        return (
            f"Published figures are by {model} too, but its prompt here is rebuilt from the paper's description, and "
            "the paper's list of test examples is not known: compare with care."
        )
    if rubric := judge.settings.get("rubric"):
        return (
            f"{judge.name} judges by another rubric than the paper's, {rubric}: its figures are not comparable with "
            "published ones, nor with those by another rubric."
        )
    description = "another model" if judge.kind == "llm" else _KINDS[judge.kind]
    return (
        f"{judge.name} is {description}, and not the paper's judge, {model}: its figures are not comparable with "
        "published ones, which stand in tables of their own."
    )


def normal(dataset: str) -> str:
    """A dataset's name as published tables key it.

    >>> normal("Ego-Exo4D"), normal("NIV")
    ('egoexo4d', 'niv')
    """
    return "".join(char for char in dataset.lower() if char.isalnum())


def dataset_name(dataset: str) -> str:
    """A dataset's name as tables show it.

    >>> dataset_name("egoexo4d"), dataset_name("my kitchen")
    ('Ego-Exo4D', 'my kitchen')
    """
    return TITLES.get(normal(dataset), dataset)


@dataclass(frozen=True, slots=True)
class JudgeResults:
    """One judge and every system that it scored."""

    judge: JudgeIdentity
    name: str
    """The judge's name, with a number where two judges have the same."""
    scores: tuple[Scores, ...]

    @property
    def criteria(self) -> tuple[str, ...]:
        """The criteria of the rubric, in its order."""
        groups = [group for system in self.scores for group in system.groups]
        return tuple(dict.fromkeys(name for group in groups for name in group.values if name != "accuracy")) or CRITERIA

    @property
    def scale(self) -> tuple[int, int]:
        """Lowest and highest score of a criterion."""
        lowest, _, highest = self.judge.settings.get("scale", f"0 to {HIGHEST}").partition(" to ")
        return int(lowest), int(highest)

    @property
    def datasets(self) -> tuple[tuple[str, str], ...]:
        """Every dataset with its split: the paper's in the paper's order, then others as they come."""
        present = dict.fromkeys(
            (group.name, role_of(group.name)) for system in self.scores for group in system.of("dataset")
        )
        order = {column.key: index for index, column in enumerate(published("per_dataset").columns)}
        return tuple(sorted(present, key=lambda pair: order.get(normal(pair[0]), len(order))))

    @property
    def splits(self) -> tuple[str, ...]:
        """Every split with a macro average, the paper's first."""
        present = dict.fromkeys(group.name for system in self.scores for group in system.of("split"))
        return tuple(sorted(present, key=lambda split: SPLIT_ORDER.index(split) if split in SPLIT_ORDER else 2))


def judge_results(scores: Iterable[Scores]) -> tuple[JudgeResults, ...]:
    """The judges by the paper's rubric with their systems, in order of first appearance."""
    groups: dict[str, list[Scores]] = {}
    judges: dict[str, JudgeIdentity] = {}
    for scored in scores:
        if scored.measure == "judge" and scored.judge is not None:
            key = fingerprint(scored.identity)
            groups.setdefault(key, []).append(scored)
            judges[key] = scored.judge
    names = [judge.name for judge in judges.values()]
    return tuple(
        JudgeResults(
            judge, judge.name if names.count(judge.name) == 1 else f"{judge.name} (setting {number})", tuple(group)
        )
        for number, (judge, group) in enumerate(zip(judges.values(), groups.values(), strict=True), start=1)
    )


def accuracy_sections(scores: Sequence[Scores], measure: type[Measure]) -> list[Section]:
    """All figures by each judge, a section each; `measure` is that of the scores."""
    sections = []
    for number, results in enumerate(judge_results(scores), start=1):
        judge = results.judge
        settings = ", ".join(f"{name} {value}" for name, value in judge.settings.items())
        model = f", model {judge.model}" if judge.model and judge.model != judge.name else ""
        prompt = f", prompt {judge.prompt[:12]}" if judge.prompt else ""
        measured = "Six criteria from 0 to 5 add up to 30; accuracy is their sum in percent of 30."
        if "rubric" in judge.settings:
            (lowest, highest), named = results.scale, ", ".join(results.criteria).replace("_", " ")
            measured = f"Criteria {named}, from {lowest} to {highest}; accuracy is their mean in percent of this scale."
        paragraphs = [
            f"Judge: {results.name}, {_KINDS[judge.kind]}{model}{prompt}{'; ' if settings else ''}{settings}.",
            f"{measured} Macro accuracy is the mean over the datasets of a split. Intervals are 95%, clustered by "
            "video. A plan without a verdict is left out; where there is one, a table says what difference that can "
            "make.",
        ]
        if any(system.of("control") for system in results.scores):
            paragraphs.append(
                "Controls are plans written on purpose and shown to the same judge: read the systems between them. "
                "A judge that gives them high scores can be deceived."
            )
        headline, *others = _tables(results)
        sections.append(
            Section(
                name=f"accuracy-{number}",
                title=f"Accuracy by {results.name}",
                short=f"Accuracy: {results.name}",
                paragraphs=tuple(paragraphs),
                blocks=(
                    headline,
                    *_figures(results, number),
                    *others,
                    *measure.group_tables(results.scores, f"Every group · judge: {results.name}"),
                ),
                warnings=(comparability(judge),),
                findings=tuple(dict.fromkeys(sentence for system in results.scores for sentence in system.findings)),
            )
        )
    return sections


def _figures(results: JudgeResults, number: int) -> list[Figure]:
    """Accuracy by dataset, macro averages and controls; and the six criteria."""
    colours = regime_colours(system.system for system in results.scores)
    marks = [
        Mark(dataset_name(dataset), group.values.get("accuracy"), system.system)
        for dataset, _ in results.datasets
        for system in results.scores
        for group in system.of("dataset")
        if group.name == dataset
    ]
    marks += [
        Mark(f"{SPLIT_NAMES.get(split, split)}, macro", group.values["accuracy"], system.system)
        for split in results.splits
        for system in results.scores
        for group in system.of("split")
        if group.name == split and len(results.datasets) > 1
    ]
    # From the last to the first, so that of a control in several files the first one stays.
    controls = {group.name: group for system in reversed(results.scores) for group in system.of("control")}
    order = dict.fromkeys(group.name for system in results.scores for group in system.of("control"))
    marks += [Mark(f"control: {name}", controls[name].values.get("accuracy")) for name in order]
    hollow = ""
    if results.judge.is_model(JUDGE):  # the paper's values of the rows that it prints
        hollow = "; hollow: published, by the same judge"
        rows = {normal(mark.row): mark.row for mark in marks}
        rows |= {split: row for split in SPLIT_ORDER if (row := f"{SPLIT_NAMES[split]}, macro") in rows.values()}
        table = published("per_dataset")
        for index, column in enumerate(table.columns):
            if column.key in rows:
                marks += [
                    Mark(rows[column.key], Interval(value), hollow=True)
                    for line in table.rows
                    if (value := line.values[index]) is not None
                ]
    criteria = []
    for system in results.scores:
        scored = [group.values for group in system.of("dataset") if group.values]
        for name in results.criteria:  # means over the datasets that have one
            values = [means[name].mean for means in scored]
            criteria.append(
                Mark(name.replace("_", " "), Interval(sum(values) / len(values)) if values else None, system.system)
            )
    caption = f"Accuracy by dataset, percent, judge {results.name}: mean and 95% interval{hollow}."
    means = f"Criteria, {results.scale[0]} to {results.scale[1]}, judge {results.name}: mean over datasets."
    accuracy = intervals(marks, colours=colours, xlim=(0, 100), unit="percent")
    return [
        Figure(inline_svg(accuracy, f"accuracy{number}", caption), caption),
        Figure(inline_svg(intervals(criteria, colours=colours, xlim=results.scale), f"criteria{number}", means), means),
    ]


def accuracy_by_system(results: JudgeResults, dataset: str = "") -> dict[str, float]:
    """Accuracy by system: on one dataset where it is known, else over all plans."""
    accuracies = {}
    for system in results.scores:
        on_dataset = [group for group in system.of("dataset") if normal(group.name) == dataset]
        value = overall(on_dataset or system.of("dataset"))
        if value is not None:
            accuracies[system.system] = value
    return accuracies


def _tables(results: JudgeResults) -> list[Table]:
    """Macro averages with counts, then each dataset, each with the controls and the paper's figures.

    The paper's stand in the same table where the judge is the paper's, in a table of their own where another judges by
    the same rubric.
    """
    paper, of_papers = results.judge.is_model(JUDGE), {split for _, split in results.datasets} & set(SPLIT_ORDER)
    if "rubric" in results.judge.settings:  # the paper has no figures by it
        of_papers = set()
    # Each control once, with the system's name where its file gives it another accuracy than the files before.
    controls: list[tuple[str, Group]] = []
    accuracies: dict[str, list[Interval | None]] = {}
    for system in results.scores:
        for control in system.of("control"):
            before = accuracies.setdefault(control.name, [])
            if (accuracy := control.values.get("accuracy")) not in before:
                controls.append((f"with {system.system}" if before else "", control))
                before.append(accuracy)

    splits, datasets = results.splits, results.datasets
    macro_rows, dataset_rows = list[TableRow](), list[TableRow]()
    for system in results.scores:
        all_plans, counts = overall(system.of("dataset")), system.overall.counts
        macro = {group.name: group.values["accuracy"] for group in system.of("split")}
        by_dataset: dict[tuple[str, str], Interval | None] = {
            (group.name, role_of(group.name)): group.values.get("accuracy") for group in system.of("dataset")
        }
        cells = (Cell(macro.get(split)) for split in splits)
        macro_rows.append(row(system.system, *cells, all_plans, *(getattr(counts, name) for name in _COUNTS)))
        dataset_rows.append(row(system.system, *map(by_dataset.get, datasets), all_plans))
    for about, control in controls:
        name, accuracy = f"control: {control.name}", control.values.get("accuracy")
        numbers = (getattr(control.counts, count) for count in _COUNTS)
        macro_rows.append(row(name, *[None] * len(splits), accuracy, *numbers, kind="control", about=about))
        dataset_rows.append(row(name, *[None] * len(datasets), accuracy, kind="control", about=about))
    for table, keys, rows, after in (
        (published("main"), splits, macro_rows, len(_COUNTS) + 1),
        (published("per_dataset"), [normal(name) for name, _ in datasets], dataset_rows, 1),
    ):
        places = {column.key: index for index, column in enumerate(table.columns)}
        for line in table.rows if paper and places.keys() & set(keys) else ():
            values = (Cell(line.values[places[key]] if key in places else None, 1) for key in keys)
            name = f"{line.group} {line.name}"
            # The paper has neither a figure over all plans nor counts.
            rows.append(row(name, *values, *[None] * after, kind="published", about="the paper"))

    notes = ["All plans: the mean over plans, large datasets weighing more; controls are given so."]
    for system in results.scores:
        if set(system.extras["how"]) - {"json", "proxy", "function"}:
            ways = ", ".join(f"{number:,} by {way}" for way, number in system.extras["how"].items())
            notes.append(f"Verdicts on {system.system}: {ways}.")
        if (deviation := system.extras["repeat_deviation"]) is not None:
            repeats = f"{system.extras['repeats']} verdicts a plan"
            notes.append(f"{system.system} has {repeats}; they deviate by {deviation:.2f} points (standard deviation).")
        if left_out := system.extras["left_out"]:
            others = ", ".join(f"{number:,} of {reason}" for reason, number in left_out.items())
            notes.append(f"Predictions of {system.system} that were not judged: {others}.")
    headline = Table(
        caption=f"Accuracy · judge: {results.name}",
        first="system",
        headings=(
            *(Heading(SPLIT_NAMES.get(split, split), "macro accuracy, %") for split in splits),
            Heading("all plans", "%"),
            *(Heading("plans scored" if name == "plans" else name, "counts") for name in _COUNTS),
        ),
        rows=tuple(macro_rows),
        about="percent, 95% interval below",
        notes=tuple(notes),
    )
    apart = (f"By another judge than {results.name}: not comparable.",)
    tables = [headline]
    if not paper and of_papers:
        tables.append(published_table(published("main"), "Published macro accuracy", apart))
    if len(datasets) > 1:
        names = (Heading(dataset_name(name), SPLIT_NAMES.get(split, split)) for name, split in datasets)
        caption, about = f"Accuracy on each dataset · judge: {results.name}", "percent, 95% interval below"
        tables.append(Table(caption, "system", (*names, Heading("all plans")), tuple(dataset_rows), about))
    if not paper and of_papers:
        tables.append(published_table(published("per_dataset"), "Published accuracy on each dataset", apart))
    return tables


def overall(datasets: Sequence[Group]) -> float | None:
    """The mean over plans of the accuracies of datasets, in percent; None where no plan was scored."""
    scored = [(dataset.values["accuracy"].mean, dataset.counts.plans) for dataset in datasets if dataset.values]
    plans = sum(number for _, number in scored)
    return sum(mean * number for mean, number in scored) / plans if plans else None


def published_table(table: PublishedTable, title: str, notes: Sequence[str] = ()) -> Table:
    """A table of the paper with the digits that it prints, its judge in the heading."""
    columns = zip(*(line.values for line in table.rows), strict=True)
    # One decimal where no value of the column has more.
    digits = [1 if all(value is None or round(value, 1) == value for value in column) else 3 for column in columns]
    rows = []
    for line in table.rows:
        model = line.group.startswith("Qwen")  # a model's size is part of the name
        cells = (Cell(value, places) for value, places in zip(line.values, digits, strict=True))
        name, about = (f"{line.group} {line.name}", "") if model else (line.name, line.group)
        rows.append(row(name, *cells, kind="published", about=about))
    groups = SPLIT_NAMES | {"macro": "macro average"}
    return Table(
        caption=f"{title}{f' · judge: {table.judge}' if table.judge else ''}",
        first="system",
        headings=tuple(Heading(column.heading, groups.get(column.group, column.group)) for column in table.columns),
        rows=tuple(rows),
        about=f"published, {table.label} of the paper",
        notes=(*notes, *table.notes),
    )
