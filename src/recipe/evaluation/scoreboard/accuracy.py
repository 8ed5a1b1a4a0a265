"""Accuracy by judge: its systems, its controls, and published figures where they belong."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from recipe.data.benchmarks import BENCHMARKS
from recipe.evaluation.judge.verdicts import CRITERIA, HIGHEST
from recipe.evaluation.published import JUDGE, PublishedRow, PublishedTable, published
from recipe.evaluation.scoreboard.sources import Board, judge_key
from recipe.evaluation.scores import Counts, DatasetScores, JudgeIdentity, JudgeScores
from recipe.report.elements import NONE, Cell, Figure, Heading, Row, Section, Table, count, measured, plain
from recipe.stats import Interval

# Which judge a figure is by, and whether the paper's figures may stand beside it.


SPLIT_NAMES = {"in-domain": "In-domain", "zero-shot": "Zero-shot", "all": "All datasets"}
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
    what = {"proxy": "a proxy computed on this machine", "human": "a person", "llm": "another model"}[judge.kind]
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


# Accuracy by judge: a section for each, with its systems, its controls, and published figures where they belong.


SPLIT_ORDER = ("in-domain", "zero-shot")
CRITERION_NAMES = {name: name.replace("_", " ") for name in CRITERIA}
_COUNT_NAMES = {"plans": "plans scored"}
_COUNTS = ("plans", "videos", "unscored", "missing", "empty", "shortened")


@dataclass(frozen=True, slots=True)
class Bench:
    """One judge and every system that it scored."""

    judge: JudgeIdentity
    name: str
    """The judge's name, told from others of the same name."""
    scores: tuple[JudgeScores, ...]

    @property
    def datasets(self) -> tuple[tuple[str, str], ...]:
        """Every dataset with its split: the paper's in the paper's order, then others as they come."""
        found = dict.fromkeys((one.dataset, one.split) for system in self.scores for one in system.datasets)
        order = [column.key for column in published("per_dataset").columns]
        known = {key: place for place, key in enumerate(order)}
        return tuple(sorted(found, key=lambda one: known.get(normal(one[0]), len(known))))

    @property
    def splits(self) -> tuple[str, ...]:
        """Every split with a macro average, the paper's first."""
        found = dict.fromkeys(one.split for system in self.scores for one in system.macro)
        return tuple(sorted(found, key=lambda split: SPLIT_ORDER.index(split) if split in SPLIT_ORDER else 2))


def benches(board: Board) -> tuple[Bench, ...]:
    """The judges of a board with their systems, in order of first appearance."""
    groups: dict[str, list[JudgeScores]] = {}
    for _, scores in board.of(JudgeScores):
        groups.setdefault(judge_key(scores.judge), []).append(scores)
    names = [group[0].judge.name for group in groups.values()]
    return tuple(
        Bench(group[0].judge, _told_apart(group[0].judge, names, number), tuple(group))
        for number, group in enumerate(groups.values(), start=1)
    )


def _told_apart(judge: JudgeIdentity, names: Sequence[str], number: int) -> str:
    return judge.name if names.count(judge.name) == 1 else f"{judge.name} (setting {number})"


def accuracy_section(bench: Bench, number: int, figures: Sequence[Figure]) -> Section:
    """Everything that one judge says; `number` tells its section's address from others'."""
    tables = [
        _headline(bench),
        *_published(bench, "main", "Published macro accuracy"),
        *_per_dataset(bench),
        *_published(bench, "per_dataset", "Published accuracy on each dataset"),
        _criteria(bench),
        *_criteria_by_dataset(bench),
        *_plans(bench),
        *_repeats(bench),
    ]
    return Section(
        name=f"accuracy-{number}",
        title=f"Accuracy by {bench.name}",
        short=f"Accuracy: {bench.name}",
        paragraphs=tuple(_paragraphs(bench)),
        blocks=(tables[0], *figures, *tables[1:]),
        warnings=(comparability(bench.judge),),
        findings=tuple(dict.fromkeys(sentence for system in bench.scores for sentence in system.findings)),
    )


def _paragraphs(bench: Bench) -> Iterable[str]:
    judge = bench.judge
    kind = {"llm": "a language model", "proxy": "a proxy computed on this machine", "human": "a person"}[judge.kind]
    settings = ", ".join(f"{name} {value}" for name, value in judge.settings.items())
    model = f", model {judge.model}" if judge.model and judge.model != judge.name else ""
    prompt = f", prompt {judge.prompt[:12]}" if judge.prompt else ""
    yield f"Judge: {bench.name}, {kind}{model}{prompt}{'; ' if settings else ''}{settings}."
    yield (
        "Six criteria from 0 to 5 add up to 30; accuracy is their sum in percent of 30. Macro accuracy is the mean "
        "over the datasets of a split. Intervals are 95%, clustered by video. A plan without a verdict is in no mean."
    )
    if any(system.controls for system in bench.scores):
        yield (
            "Controls are plans written on purpose and shown to the same judge: read the systems between them. "
            "A judge that pays them well can be fooled."
        )


def _headline(bench: Bench) -> Table:
    headings = [Heading(split_name(split), "macro accuracy, %") for split in bench.splits]
    rows = [_headline_row(bench, system) for system in bench.scores]
    return Table(
        caption=f"Accuracy · judge: {bench.name}",
        about="percent, 95% interval below",
        first="system",
        headings=(
            *headings,
            Heading("all plans", "%"),
            *(Heading(_COUNT_NAMES.get(name, name), "counts") for name in _COUNTS),
        ),
        rows=(*rows, *_control_rows(bench, len(headings)), *_beside(bench, "main", bench.splits, len(_COUNTS) + 1)),
        notes=("All plans: the mean over plans, large datasets weighing more; controls are given so.", *_told(bench)),
    )


def _told(bench: Bench) -> Iterable[str]:
    """How verdicts were come by, and which predictions were not judged."""
    for system in bench.scores:
        if set(system.how) - {"json", "proxy"}:
            ways = ", ".join(f"{number:,} by {way}" for way, number in system.how.items())
            yield f"Verdicts on {system.system}: {ways}."
        if system.left_out:
            others = ", ".join(f"{number:,} of {reason}" for reason, number in system.left_out.items())
            yield f"Predictions of {system.system} that were not judged: {others}."


def _headline_row(bench: Bench, system: JudgeScores) -> Row:
    macro = {one.split: one.accuracy for one in system.macro}
    cells = [measured(macro.get(split)) for split in bench.splits]
    return Row(system.system, (*cells, plain(overall(system.datasets)), *_count_cells(total_counts(system.datasets))))


def _control_rows(bench: Bench, before: int) -> Iterable[Row]:
    """Each control once where every system's file says the same of it, else once for each system."""
    for system, control in _controls(bench):
        cells = (*[Cell(NONE)] * before, measured(control.accuracy), *_count_cells(control.counts))
        yield Row(f"control: {control.dataset}", cells, "control", system)


def _controls(bench: Bench) -> Iterable[tuple[str, DatasetScores]]:
    seen: dict[str, list[tuple[str, Interval | None]]] = {}
    for system in bench.scores:
        for control in system.controls:
            said = seen.setdefault(control.name, [])
            if all(accuracy != control.accuracy for _, accuracy in said):
                about = f"with {system.system}" if said else ""
                said.append((system.system, control.accuracy))
                yield about, DatasetScores(control.name, "", control.accuracy, control.criteria, control.counts)


def _count_cells(counts: Counts) -> tuple[Cell, ...]:
    return tuple(count(getattr(counts, name)) for name in _COUNTS)


def overall(datasets: Sequence[DatasetScores]) -> float | None:
    """The mean over plans of the accuracies of datasets, in percent; None where no plan was scored."""
    scored = [(one.accuracy.mean, one.counts.plans) for one in datasets if one.accuracy is not None]
    plans = sum(number for _, number in scored)
    return sum(mean * number for mean, number in scored) / plans if plans else None


def total_counts(datasets: Iterable[DatasetScores]) -> Counts:
    """The counts of several datasets added up."""
    found = [one.counts for one in datasets]
    return Counts(**{name: sum(getattr(counts, name) for counts in found) for name in _COUNTS})


def _per_dataset(bench: Bench) -> Iterable[Table]:
    datasets = bench.datasets
    if len(datasets) < 2:
        return
    rows = []
    for system in bench.scores:
        found = {(one.dataset, one.split): one.accuracy for one in system.datasets}
        rows.append(Row(system.system, tuple(measured(found.get(one)) for one in datasets)))
    controls = [
        Row(row.name, (*[Cell(NONE)] * len(datasets), row.cells[0]), "control", row.about)
        for row in _control_rows(bench, 0)
    ]
    rows = [
        Row(row.name, (*row.cells, plain(overall(system.datasets))))
        for row, system in zip(rows, bench.scores, strict=True)
    ]
    yield Table(
        caption=f"Accuracy on each dataset · judge: {bench.name}",
        about="percent, 95% interval below",
        first="system",
        headings=(*(Heading(dataset_name(name), split_name(split)) for name, split in datasets), Heading("all plans")),
        rows=(*rows, *controls, *_beside(bench, "per_dataset", [normal(name) for name, _ in datasets], 1)),
    )


def _beside(bench: Bench, name: str, keys: Sequence[str], after: int) -> Iterable[Row]:
    """Published rows for the same table: only where the judge is the paper's."""
    table = published(name)
    places = {column.key: place for place, column in enumerate(table.columns)}
    if not is_papers(bench.judge) or not places.keys() & set(keys):
        return
    for row in table.rows:
        cells = [plain(row.values[places[key]]) if key in places else Cell(NONE) for key in keys]
        yield Row(f"{row.group} {row.name}", (*cells, *[Cell(NONE)] * after), "published", "the paper")


def _published(bench: Bench, name: str, title: str) -> Iterable[Table]:
    """For other judges, the paper's table by itself and headed by its judge; none without a dataset in common."""
    if not is_papers(bench.judge) and {split for _, split in bench.datasets} & set(SPLIT_ORDER):
        yield published_table(published(name), title, (f"By another judge than {bench.name}: not comparable.",))


def published_table(table: PublishedTable, title: str, notes: Sequence[str] = ()) -> Table:
    """A table of the paper, its judge in the heading."""
    groups = {"macro": "macro average"}
    headings = (Heading(one.heading, groups.get(one.group, split_name(one.group))) for one in table.columns)
    return Table(
        caption=f"{title}{f' · judge: {table.judge}' if table.judge else ''}",
        about=f"published, {table.label} of the paper",
        first="system",
        headings=tuple(headings),
        rows=tuple(_published_row(table, row) for row in table.rows),
        notes=(*notes, *table.notes),
    )


def _published_row(table: PublishedTable, row: PublishedRow) -> Row:
    """A row with the digits that the paper prints; a model's size is part of its name."""
    columns = zip(*(other.values for other in table.rows), strict=True)
    digits = [1 if all(value is None or round(value, 1) == value for value in column) else 3 for column in columns]
    cells = tuple(plain(value, places) for value, places in zip(row.values, digits, strict=True))
    model = row.group.startswith("Qwen")
    return Row(f"{row.group} {row.name}" if model else row.name, cells, "published", "" if model else row.group)


def _criteria(bench: Bench) -> Table:
    headings = tuple(Heading(CRITERION_NAMES[name], f"0 to {HIGHEST}") for name in CRITERIA)
    rows = [Row(system.system, tuple(plain(value, 2) for value in criteria_means(system))) for system in bench.scores]
    controls = [
        Row(f"control: {control.dataset}", tuple(_criterion(control, name) for name in CRITERIA), "control", about)
        for about, control in _controls(bench)
    ]
    return Table(
        caption=f"Criteria · judge: {bench.name}",
        about="mean over datasets of their means; intervals by dataset below",
        first="system",
        headings=headings,
        rows=(*rows, *controls),
    )


def criteria_means(system: JudgeScores) -> tuple[float | None, ...]:
    """Each criterion's mean over the datasets that have one, in the rubric's order."""
    found = [[one.criteria[name].mean for one in system.datasets if name in one.criteria] for name in CRITERIA]
    return tuple(sum(values) / len(values) if values else None for values in found)


def _criterion(scores: DatasetScores, name: str) -> Cell:
    return measured(scores.criteria.get(name), 2)


def _criteria_by_dataset(bench: Bench) -> Iterable[Table]:
    rows = [
        Row(system.system, (Cell(dataset_name(one.dataset)), *(_criterion(one, name) for name in CRITERIA)))
        for system in bench.scores
        for one in system.datasets
    ]
    if rows:
        headings = (Heading("dataset"), *(Heading(CRITERION_NAMES[name], f"0 to {HIGHEST}") for name in CRITERIA))
        caption = f"Criteria on each dataset · judge: {bench.name}"
        yield Table(caption, "system", headings, tuple(rows), "95% interval below", folded=True)


def _plans(bench: Bench) -> Iterable[Table]:
    rows = [
        Row(system.system, (Cell(dataset_name(one.dataset)), *_count_cells(one.counts)))
        for system in bench.scores
        for one in system.datasets
    ]
    if len(bench.datasets) > 1:
        headings = (Heading("dataset"), *(Heading(_COUNT_NAMES.get(name, name)) for name in _COUNTS))
        caption = f"Plans of each dataset · judge: {bench.name}"
        notes = (
            "Unscored plans are in no mean. Missing predictions and plans without an actionable step count as 0 by "
            "rule. Shortened plans were too long to be shown to the judge whole.",
        )
        yield Table(caption, "system", headings, tuple(rows), notes=notes, folded=True)


def _repeats(bench: Bench) -> Iterable[Table]:
    rows = [
        Row(system.system, (count(system.repeats), plain(system.repeat_deviation, 2)))
        for system in bench.scores
        if system.repeats > 1
    ]
    if rows:
        headings = (Heading("verdicts a plan"), Heading("standard deviation, percent"))
        caption = f"Repeated verdicts · judge: {bench.name}"
        yield Table(caption, "system", headings, tuple(rows), "mean over plans of the deviation of their repeats")
