"""Accuracy by judge: systems, controls, and the paper's figures, apart unless the judge is the paper's."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from recipe.artifacts import fingerprint
from recipe.data.benchmarks import BENCHMARKS
from recipe.evaluation.judge.measures import RubricMeasure
from recipe.evaluation.judge.verdicts import CRITERIA, HIGHEST
from recipe.evaluation.measures import role_of
from recipe.evaluation.metrics import regime_colours
from recipe.evaluation.published import JUDGE, PublishedTable, published
from recipe.evaluation.scores import Counts, Group, JudgeIdentity, Scores
from recipe.report.elements import Cell, Figure, Heading, Row, Section, Table, row
from recipe.report.plots import Mark, inline_svg, intervals
from recipe.stats import Interval

SPLIT_NAMES = {"in-domain": "In-domain", "zero-shot": "Zero-shot", "all": "All datasets"}
SPLIT_ORDER = ("in-domain", "zero-shot")
CRITERION_NAMES = {name: name.replace("_", " ") for name in CRITERIA}
_KINDS = {"llm": "a language model", "proxy": "a proxy computed on this machine", "human": "a person"}
_COUNT_NAMES = {"plans": "plans scored"}
_COUNTS = ("plans", "videos", "unscored", "missing", "empty", "shortened")
_TITLES = {name: benchmark.title for name, benchmark in BENCHMARKS.items()}


def is_papers(judge: JudgeIdentity, model: str = JUDGE) -> bool:
    """Whether a judge is the paper's model itself: no quantised or sped-up variant, no proxy, nobody else.

    >>> is_papers(JudgeIdentity("a judge", "llm", "meta-llama/Llama-3.3-70B-Instruct"))
    True
    >>> is_papers(JudgeIdentity("Llama-3.3-70B-Instruct", "proxy"))
    False
    """
    return judge.kind == "llm" and (judge.model or judge.name).rsplit("/", 1)[-1].lower() == model.lower()


def comparability(judge: JudgeIdentity, model: str = JUDGE) -> str:
    """The sentence that stands wherever published figures are near those of a judge."""
    if is_papers(judge, model):
        return (
            f"Published figures are by {model} too, but its prompt here is rebuilt from the paper's description, and "
            "the paper's list of test examples is not known: compare with care."
        )
    what = "another model" if judge.kind == "llm" else _KINDS[judge.kind]
    return (
        f"{judge.name} is {what}, and not the paper's judge, {model}: its figures are not comparable with published "
        "ones, which stand in tables of their own."
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
    return _TITLES.get(normal(dataset), dataset)


def split_name(split: str) -> str:
    """A split's name as tables show it."""
    return SPLIT_NAMES.get(split, split)


@dataclass(frozen=True, slots=True)
class JudgeResults:
    """One judge and every system that it scored."""

    judge: JudgeIdentity
    name: str
    """The judge's name, with a number where two judges have the same."""
    scores: tuple[Scores, ...]

    @property
    def datasets(self) -> tuple[tuple[str, str], ...]:
        """Every dataset with its split: the paper's in the paper's order, then others as they come."""
        present = dict.fromkeys((one.name, role_of(one.name)) for system in self.scores for one in system.of("dataset"))
        order = {column.key: place for place, column in enumerate(published("per_dataset").columns)}
        return tuple(sorted(present, key=lambda one: order.get(normal(one[0]), len(order))))

    @property
    def splits(self) -> tuple[str, ...]:
        """Every split with a macro average, the paper's first."""
        present = dict.fromkeys(one.name for system in self.scores for one in system.of("split"))
        return tuple(sorted(present, key=lambda split: SPLIT_ORDER.index(split) if split in SPLIT_ORDER else 2))


def judge_results(scores: Iterable[Scores]) -> tuple[JudgeResults, ...]:
    """The judges by the paper's rubric with their systems, in order of first appearance."""
    groups: dict[str, list[Scores]] = {}
    judges: dict[str, JudgeIdentity] = {}
    for one in scores:
        if one.measure == "judge" and one.judge is not None:
            key = fingerprint(one.identity)
            groups.setdefault(key, []).append(one)
            judges[key] = one.judge
    names = [judge.name for judge in judges.values()]
    return tuple(
        JudgeResults(
            judge, judge.name if names.count(judge.name) == 1 else f"{judge.name} (setting {number})", tuple(group)
        )
        for number, (judge, group) in enumerate(zip(judges.values(), groups.values(), strict=True), start=1)
    )


def accuracy_sections(scores: Sequence[Scores]) -> list[Section]:
    """All figures by each judge, a section each."""
    return [
        Section(
            name=f"accuracy-{number}",
            title=f"Accuracy by {results.name}",
            short=f"Accuracy: {results.name}",
            paragraphs=tuple(_paragraphs(results)),
            blocks=(
                _headline(results),
                *_figures(results, number),
                *_published(results, "main", "Published macro accuracy"),
                *_per_dataset(results),
                *_published(results, "per_dataset", "Published accuracy on each dataset"),
                *RubricMeasure.group_tables(results.scores, f"Every group · judge: {results.name}"),
            ),
            warnings=(comparability(results.judge),),
            findings=tuple(dict.fromkeys(sentence for system in results.scores for sentence in system.findings)),
        )
        for number, results in enumerate(judge_results(scores), start=1)
    ]


def _figures(results: JudgeResults, number: int) -> list[Figure]:
    """Accuracy by dataset, macro averages and controls; and the six criteria."""
    colours = regime_colours(system.system for system in results.scores)
    marks = [
        Mark(dataset_name(dataset), one.values.get("accuracy"), system.system)
        for dataset, _ in results.datasets
        for system in results.scores
        for one in system.of("dataset")
        if one.name == dataset
    ]
    marks += [
        Mark(f"{split_name(split)}, macro", one.values["accuracy"], system.system)
        for split in results.splits
        for system in results.scores
        for one in system.of("split")
        if one.name == split and len(results.datasets) > 1
    ]
    controls = {one.name: one for system in reversed(results.scores) for one in system.of("control")}
    order = dict.fromkeys(one.name for system in results.scores for one in system.of("control"))
    marks += [Mark(f"control: {name}", controls[name].values.get("accuracy")) for name in order]
    hollow = ""
    if is_papers(results.judge):
        marks += _published_accuracy({mark.row for mark in marks})
        hollow = "; hollow: published, by the same judge"
    criteria = [
        Mark(name, None if value is None else Interval(value), system.system)
        for system in results.scores
        for name, value in zip(CRITERION_NAMES.values(), criteria_means(system), strict=True)
    ]
    caption = f"Accuracy by dataset, percent, judge {results.name}: mean and 95% interval{hollow}."
    means = f"Criteria, 0 to {HIGHEST}, judge {results.name}: mean over datasets."
    accuracy = intervals(marks, colours=colours, xlim=(0, 100), unit="percent")
    return [
        Figure(inline_svg(accuracy, f"accuracy{number}", caption), caption),
        Figure(inline_svg(intervals(criteria, colours=colours, xlim=(0, HIGHEST)), f"criteria{number}", means), means),
    ]


def _published_accuracy(rows: Collection[str]) -> Iterator[Mark]:
    """The paper's values of the rows that it prints."""
    table = published("per_dataset")
    names = {normal(name): name for name in rows} | {
        key: f"{split_name(key)}, macro" for key in ("in-domain", "zero-shot")
    }
    for place, column in enumerate(table.columns):
        if names.get(column.key) in rows:
            for line in table.rows:
                yield Mark(names[column.key], Interval(line.values[place] or 0.0), hollow=True)


def accuracy_by_system(results: JudgeResults, dataset: str = "") -> dict[str, float]:
    """Accuracy by system: on one dataset where it is known, else over all plans."""
    found = {}
    for system in results.scores:
        on_dataset = [one for one in system.of("dataset") if normal(one.name) == dataset]
        value = overall(on_dataset or system.of("dataset"))
        if value is not None:
            found[system.system] = value
    return found


def _paragraphs(results: JudgeResults) -> Iterable[str]:
    judge = results.judge
    settings = ", ".join(f"{name} {value}" for name, value in judge.settings.items())
    model = f", model {judge.model}" if judge.model and judge.model != judge.name else ""
    prompt = f", prompt {judge.prompt[:12]}" if judge.prompt else ""
    yield f"Judge: {results.name}, {_KINDS[judge.kind]}{model}{prompt}{'; ' if settings else ''}{settings}."
    yield (
        "Six criteria from 0 to 5 add up to 30; accuracy is their sum in percent of 30. Macro accuracy is the mean "
        "over the datasets of a split. Intervals are 95%, clustered by video. A plan without a verdict is "
        "left out; where there is one, a table says what difference that can make."
    )
    if any(system.of("control") for system in results.scores):
        yield (
            "Controls are plans written on purpose and shown to the same judge: read the systems between them. "
            "A judge that gives them high scores can be deceived."
        )


def _headline(results: JudgeResults) -> Table:
    splits = results.splits
    rows = []
    for system in results.scores:
        macro = {one.name: one.values["accuracy"] for one in system.of("split")}
        counts = system.overall.counts
        cells = (Cell(macro.get(split)) for split in splits)
        rows.append(row(system.system, *cells, overall(system.of("dataset")), *_counts(counts)))
    return Table(
        caption=f"Accuracy · judge: {results.name}",
        first="system",
        headings=(
            *(Heading(split_name(split), "macro accuracy, %") for split in splits),
            Heading("all plans", "%"),
            *(Heading(_COUNT_NAMES.get(name, name), "counts") for name in _COUNTS),
        ),
        rows=(
            *rows,
            *(_control_row(*one, [None] * len(splits), _counts(one[1].counts)) for one in _controls(results)),
            *_published_beside(results, "main", splits, len(_COUNTS) + 1),
        ),
        about="percent, 95% interval below",
        notes=(
            "All plans: the mean over plans, large datasets weighing more; controls are given so.",
            *_notes(results),
        ),
    )


def _notes(results: JudgeResults) -> Iterable[str]:
    """How verdicts were parsed, and which predictions were not judged."""
    for system in results.scores:
        if set(system.extras["how"]) - {"json", "proxy"}:
            ways = ", ".join(f"{number:,} by {way}" for way, number in system.extras["how"].items())
            yield f"Verdicts on {system.system}: {ways}."
        if (deviation := system.extras["repeat_deviation"]) is not None:
            repeats = f"{system.extras['repeats']} verdicts a plan"
            yield f"{system.system} has {repeats}; they deviate by {deviation:.2f} points (standard deviation)."
        if left_out := system.extras["left_out"]:
            others = ", ".join(f"{number:,} of {reason}" for reason, number in left_out.items())
            yield f"Predictions of {system.system} that were not judged: {others}."


def _controls(results: JudgeResults) -> Iterable[tuple[str, Group]]:
    """Each control once, with the system's name where its file gives it another accuracy than the files before."""
    accuracies: dict[str, list[Interval | None]] = {}
    for system in results.scores:
        for control in system.of("control"):
            before = accuracies.setdefault(control.name, [])
            if (accuracy := control.values.get("accuracy")) not in before:
                yield f"with {system.system}" if before else "", control
                before.append(accuracy)


def _control_row(about: str, control: Group, before: Sequence[None], after: Iterable[int]) -> Row:
    return row(f"control: {control.name}", *before, control.values.get("accuracy"), *after, kind="control", about=about)


def _counts(counts: Counts) -> Iterable[int]:
    return (getattr(counts, name) for name in _COUNTS)


def overall(datasets: Sequence[Group]) -> float | None:
    """The mean over plans of the accuracies of datasets, in percent; None where no plan was scored."""
    scored = [(one.values["accuracy"].mean, one.counts.plans) for one in datasets if one.values]
    plans = sum(number for _, number in scored)
    return sum(mean * number for mean, number in scored) / plans if plans else None


def _per_dataset(results: JudgeResults) -> Iterable[Table]:
    datasets = results.datasets
    if len(datasets) < 2:
        return
    rows = []
    for system in results.scores:
        accuracy = {(one.name, role_of(one.name)): one.values.get("accuracy") for one in system.of("dataset")}
        rows.append(row(system.system, *map(accuracy.get, datasets), overall(system.of("dataset"))))
    yield Table(
        caption=f"Accuracy on each dataset · judge: {results.name}",
        first="system",
        headings=(*(Heading(dataset_name(name), split_name(split)) for name, split in datasets), Heading("all plans")),
        rows=(
            *rows,
            *(_control_row(*one, [None] * len(datasets), ()) for one in _controls(results)),
            *_published_beside(results, "per_dataset", [normal(name) for name, _ in datasets], 1),
        ),
        about="percent, 95% interval below",
    )


def _published_beside(results: JudgeResults, name: str, keys: Sequence[str], after: int) -> Iterable[Row]:
    """Published rows for the same table: only where the judge is the paper's."""
    table = published(name)
    places = {column.key: place for place, column in enumerate(table.columns)}
    if not is_papers(results.judge) or not places.keys() & set(keys):
        return
    for one in table.rows:
        values = (Cell(one.values[places[key]] if key in places else None, 1) for key in keys)
        yield row(f"{one.group} {one.name}", *values, *[None] * after, kind="published", about="the paper")


def _published(results: JudgeResults, name: str, title: str) -> Iterable[Table]:
    """For other judges, the paper's table by itself and headed by its judge; none without a dataset in common."""
    if not is_papers(results.judge) and {split for _, split in results.datasets} & set(SPLIT_ORDER):
        yield published_table(published(name), title, (f"By another judge than {results.name}: not comparable.",))


def published_table(table: PublishedTable, title: str, notes: Sequence[str] = ()) -> Table:
    """A table of the paper with the digits that it prints, its judge in the heading."""
    columns = zip(*(one.values for one in table.rows), strict=True)
    digits = [1 if all(value is None or round(value, 1) == value for value in column) else 3 for column in columns]
    rows = []
    for one in table.rows:
        model = one.group.startswith("Qwen")  # a model's size is part of the name
        cells = (Cell(value, places) for value, places in zip(one.values, digits, strict=True))
        name, about = (f"{one.group} {one.name}", "") if model else (one.name, one.group)
        rows.append(row(name, *cells, kind="published", about=about))
    groups = {"macro": "macro average"}
    return Table(
        caption=f"{title}{f' · judge: {table.judge}' if table.judge else ''}",
        first="system",
        headings=tuple(Heading(one.heading, groups.get(one.group, split_name(one.group))) for one in table.columns),
        rows=tuple(rows),
        about=f"published, {table.label} of the paper",
        notes=(*notes, *table.notes),
    )


def criteria_means(system: Scores) -> tuple[float | None, ...]:
    """Each criterion's mean over the datasets that have one, in the rubric's order."""
    every = [[one.values[name].mean for one in system.of("dataset") if one.values] for name in CRITERIA]
    return tuple(sum(values) / len(values) if values else None for values in every)
