"""Commands of `recipe vpa`: next actions of a closed set, as Visual Planning for Assistance has it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from rich.markup import escape
from rich.table import Table

from recipe.cli import console
from recipe.cli.console import CommandGroup, out, print_json
from recipe.cli.data import AsJson
from recipe.cli.flags import with_flags
from recipe.cli.models import beside, model_flags, opened
from recipe.config import ModelConfig, parse_config
from recipe.config.planning import VALUES, VidAssistConfig
from recipe.errors import InputError, listed
from recipe.prompting import visible

if TYPE_CHECKING:
    from recipe.data.crosstask import StepOrder
    from recipe.evaluation.vpa.protocol import CrossTaskRelease, Protocol, Rule
    from recipe.evaluation.vpa.run import VpaTask
    from recipe.models.costs import Budget
    from recipe.planning.vidassist.methods import Demonstrations, Models
    from recipe.planning.vidassist.search import ActionsOf
    from recipe.planning.vidassist.trace import TracedCandidate, TracedStep
    from recipe.types import Example

_PANEL = "Protocol"
"""Flags that say how CrossTask is cut, the same in every command."""

CrossTask = Annotated[Path, typer.Option(help="CrossTask's folder, or the folder that holds it as crosstask/.")]
ProtocolName = Annotated[
    Literal["shared", "separate"],
    typer.Option("--protocol", help="One sample set for every T, or one for each.", rich_help_panel=_PANEL),
]
RuleName = Annotated[
    Literal["vlamp", "true-steps", "observed"],
    typer.Option(
        "--rule",
        help="Cuts that make samples: the end counts as an action (VLaMP), steps only, at least one step observed.",
        rich_help_panel=_PANEL,
    ),
]
Order = Annotated[
    Literal["file", "time"],
    typer.Option(
        "--order", help="Steps as the annotation files have them (VLaMP), or by time.", rich_help_panel=_PANEL
    ),
]
TaxonomyName = Annotated[
    Literal["105", "133"],
    typer.Option(
        "--taxonomy", help="Actions: 105 different strings, or the 133 steps of the 18 tasks.", rich_help_panel=_PANEL
    ),
]


class Source(NamedTuple):
    """The samples to plan for, the closed set of actions, and the videos that may be shown."""

    root: Path | None
    examples: Path | None
    actions: Path | None
    histories: Path | None
    limit: int | None
    card: bool
    """Only the actions of the goal's card are admissible: another, easier setting."""
    encoder: str
    protocol: "Protocol" = "shared"
    rule: "Rule" = "vlamp"
    order: "StepOrder" = "file"


class Samples(NamedTuple):
    """Examples to plan for, their admissible actions, and demonstrations."""

    examples: "list[Example]"
    actions: "ActionsOf"
    shown: "Demonstrations"


def read_samples(source: Source, config: VidAssistConfig) -> Samples:
    """Read what the options name. Raises InputError for options that do not go together."""
    from recipe.evaluation.vpa.protocol import read_release
    from recipe.planning.vidassist.methods import demonstrations

    if source.root is None and (source.examples is None or source.actions is None):
        raise InputError("give --root, CrossTask as published; or --examples with --actions, a file of actions.")
    if source.root is None and (source.card or config.few_shot):
        raise InputError("--card and --few-shot need --root, whose cards and training videos they take.")
    release = None if source.root is None else read_release(source.root, source.order)
    examples = _examples(source, release, config.horizon)
    if source.limit is not None and source.limit < len(examples):  # evenly taken from all
        examples = [examples[place * len(examples) // source.limit] for place in range(source.limit)]
    shown: Demonstrations = {}
    if release is not None and config.few_shot:
        goals = [example.goal for example in examples]
        shown = demonstrations(release.split("train", "val"), goals, config.few_shot, config.seed)
    return Samples(examples, _actions(source, release, examples), shown)


def _examples(source: Source, release: "CrossTaskRelease | None", horizon: int) -> "list[Example]":
    from recipe.data.examples import read_examples
    from recipe.data.histories import read_histories, with_histories
    from recipe.evaluation.vpa.protocol import HORIZONS, cut_samples

    if source.examples is not None:
        examples = read_examples(source.examples)
    else:
        assert release is not None
        horizons = sorted({*HORIZONS, horizon})
        samples = cut_samples(release.split("test"), release.cards, source.protocol, source.rule, horizons)
        examples = [sample.example() for sample in samples]
    return examples if source.histories is None else with_histories(examples, read_histories(source.histories))


def _actions(source: Source, release: "CrossTaskRelease | None", examples: "list[Example]") -> "ActionsOf":
    from recipe.config import EncoderConfig
    from recipe.corpus.encoders import open_encoder
    from recipe.planning.admissible import AdmissibleActions

    embed = open_encoder(EncoderConfig(name=source.encoder)).encode
    if not source.card:
        every = AdmissibleActions(embed, _listed(source, release))
        return lambda goal: every
    assert release is not None
    taxonomy = release.taxonomy()
    goals = dict.fromkeys(example.goal for example in examples)
    if unknown := [goal for goal in goals if goal not in taxonomy.cards]:
        raise InputError(f"no card of CrossTask is for {listed(unknown)}; leave out --card.")
    by_goal = {goal: AdmissibleActions(embed, taxonomy.card(goal)) for goal in goals}
    return by_goal.__getitem__


def _listed(source: Source, release: "CrossTaskRelease | None") -> tuple[str, ...]:
    if source.actions is None:
        assert release is not None
        return release.taxonomy().actions
    try:
        lines = source.actions.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise InputError.at(source.actions, "the text is not UTF-8", "convert the file to UTF-8") from None
    actions = tuple(line.strip() for line in lines if line.strip())
    if not actions:
        raise InputError.at(source.actions, "it holds no action", "give one action a line")
    return actions


@contextmanager
def opened_models(settings: ModelConfig, recipe: ModelConfig | None, budget: "Budget") -> "Iterator[Models]":
    """The models, ready to be asked within one budget; equal ones are opened once."""
    from recipe.planning.vidassist.methods import with_planner

    # The sentence of `opened` serves errors of both models.
    with opened(settings, budget=budget) as model, with_planner(model, settings, recipe, budget) as models:
        yield models


def planned(
    samples: Samples,
    config: VidAssistConfig,
    models: "Models",
    source: Source,
    settings: Sequence[ModelConfig | None],
    output: Path,
    trace: Path,
) -> dict[str, Any]:
    """Plan for each sample; write predictions, trace and manifest; return the manifest with the paths.

    `settings` are those of the model that proposes and assesses, and of the planner that proposes, too.
    """
    from recipe.planning.vidassist.methods import write_plans

    model, recipe = (one and one.model_dump(include={"model", "revision", "endpoint"}) for one in settings)
    about = {
        "model": model,
        "recipe_model": recipe,
        "encoder": source.encoder,
        "history": "oracle" if source.histories is None else source.histories.name,
        "actions": "goal card" if source.card else "all",
    }
    manifest = write_plans(
        samples.examples, config, models, samples.actions, samples.shown, output, trace, about, console.progress()
    )
    return manifest | {"output": str(output), "trace": str(trace)}


_HORIZON = 4
_MEASURES = ("success_rate", "accuracy", "iou")


class _Group(NamedTuple):
    """Columns of one horizon."""

    title: str
    names: tuple[str, ...]
    keys: tuple[str, ...]


_GROUPS = (
    _Group("T=1", ("mAcc",), ("1.accuracy",)),
    *(
        _Group(f"T={horizon}", ("SR", "mAcc", "mIoU"), tuple(f"{horizon}.{key}" for key in _MEASURES))
        for horizon in (3, 4)
    ),
)
_COLUMNS = [key for group in _GROUPS for key in group.keys]


def run_ablations(
    source: Source,
    config: VidAssistConfig,
    settings: ModelConfig,
    recipe: ModelConfig | None,
    budget: "Budget",
    output: Path,
) -> list[dict[str, Any]]:
    """Plan by each setting, write each one's files beside `output`, and score them all on the same samples.

    Answers are shared, so that a request of two settings is paid for once. Raises InputError without CrossTask, whose
    samples are scored.
    """
    from recipe.planning.vidassist.methods import ablations
    from recipe.planning.vidassist.trace import trace_of

    if source.root is None or config.horizon < _HORIZON:
        raise InputError("--ablations scores plans of 4 actions on CrossTask; give --root and --horizon 4.")
    variants = [(name, changed, source) for name, changed in ablations(config).items()]
    if source.histories is not None:
        variants.append(("oracle history", config, source._replace(histories=None)))
    samples = {one: read_samples(one, config) for one in dict.fromkeys(one for _, _, one in variants)}
    rows = []
    with opened_models(settings, recipe, budget) as models:
        for name, changed, of in variants:
            # `plans.jsonl` for the given setting, `plans.beam-2.jsonl` for another.
            stem = output.stem if name == "as given" else f"{output.stem}.{name.replace(' ', '-')}"
            file = output.with_name(f"{stem}{output.suffix}")
            result = planned(samples[of], changed, models, of, (settings, recipe), file, trace_of(file))
            rows.append({"name": name, "predictions": str(file), "counts": result["counts"]})
    return _scored(rows, source)


def _scored(rows: list[dict[str, Any]], source: Source) -> list[dict[str, Any]]:
    """The rows with their figures in percent, behind a row of what chance gives on the same samples."""
    from recipe.evaluation.measures import summarise
    from recipe.evaluation.vpa.baselines import expected_figures
    from recipe.evaluation.vpa.run import VpaMeasure
    from recipe.planning.predictions import read_predictions

    predictions = {row["name"]: read_predictions(Path(row["predictions"])) for row in rows}
    task = _task(source, {one.example_id for one in predictions["as given"]})
    chance = expected_figures(task.samples, task.ids, _COLUMNS, with_goal=True)
    scored: list[dict[str, Any]] = [{"name": "random-goal, expected", "figures": chance}]
    examples, measure = [one.example() for one in task.samples], VpaMeasure(task, _no_encoder, source.encoder)
    for row in rows:
        scores = summarise(measure, row["name"], measure.rows(examples, predictions[row["name"]]), examples)
        figures = {name: value.mean for name, value in scores.overall.values.items()}
        scored.append(row | {"figures": figures, "samples": len(task.samples)})
    return scored


def _no_encoder() -> Any:
    raise InputError("a planned step is no action of CrossTask; give --root without --actions.")


def _task(source: Source, planned_for: set[str]) -> "VpaTask":
    """The samples that were planned for, as the protocol cuts them."""
    from dataclasses import replace

    from recipe.evaluation.vpa.run import open_task

    assert source.root is not None
    task = open_task(source.root, source.protocol, source.rule, source.order)
    return replace(task, samples=[one for one in task.samples if one.sample_id in planned_for])


def show_ablations(rows: list[dict[str, Any]]) -> None:
    """The table."""
    table = Table(title=f"{rows[-1]['samples']:,} samples of CrossTask, percent")
    table.add_column("setting", no_wrap=True)
    for group in _GROUPS:
        table.add_column(f"{group.title}\n{_cells(group.names)}", justify="right", no_wrap=True)
    table.add_column("short", justify="right")
    for row in rows:
        figures = row["figures"]
        groups = (_cells([f"{figures[key]:.1f}" for key in group.keys]) for group in _GROUPS)
        table.add_row(row["name"], *groups, f"{row['counts']['short']:,}" if "counts" in row else "")
    console.out.print(table)


def _cells(texts: Sequence[str]) -> str:
    return "".join(f"{text:>5}" for text in texts)


def examples(
    root: CrossTask,
    output: Annotated[Path, typer.Option(help="Examples file to write, JSON lines.")],
    split: Annotated[Literal["train", "val", "test"], typer.Option(help="Videos of this list.")] = "test",
    protocol: ProtocolName = "shared",
    rule: RuleName = "vlamp",
    order: Order = "file",
    as_json: AsJson = False,
) -> None:
    """Write the samples of Visual Planning for Assistance for `recipe plan --examples` and `recipe perceive`.

    A sample of a video that has only begun has an empty history. The same options always give the same bytes.

    Example: recipe vpa examples --root data --output vpa.jsonl
    """
    from recipe.artifacts import require_writable
    from recipe.data.examples import write_examples
    from recipe.evaluation.vpa.protocol import cut_samples, read_release

    require_writable(output)
    release = read_release(root, order)
    samples = cut_samples(release.split(split), release.cards, protocol, rule)
    written = write_examples(output, (one.example() for one in samples))
    videos = len({one.video_id for one in samples})
    start = sum(not one.history for one in samples)
    if as_json:
        print_json({"output": str(output), "examples": written, "videos": videos, "without_history": start})
        return
    line = f"{written:,} examples of {videos:,} videos written to {output}; {start:,} of them have no history"
    out.print(line, highlight=False, markup=False, soft_wrap=True)


def trace(
    file: Annotated[Path, typer.Argument(help="Trace that `recipe vpa plan` wrote.")],
    example: Annotated[str, typer.Option(help="Id of the example.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the candidates of each action of a plan: who proposed them, in which words, and how they scored.

    Example: recipe vpa trace predictions.trace.jsonl --example crosstask/-9lVZgN7pGE/3
    """
    from recipe.artifacts import to_json
    from recipe.planning.vidassist.trace import read_trace

    steps = read_trace(file, example)
    if json:
        console.print_json(to_json(steps))
        return
    first = steps[0]
    done = ", ".join(first.done) or "nothing yet"
    console.out.print(f"{first.goal}. Done: {done}.", highlight=False, markup=False, soft_wrap=True)
    for step in steps:
        console.out.print(_table(step))
        for lost in step.lost:
            console.out.print(f"no action in: {visible(lost)}", highlight=False, markup=False, soft_wrap=True)


def _table(step: "TracedStep") -> Table:
    names = list(dict.fromkeys(name for candidate in step.candidates for name in candidate.scores))
    table = Table(title=escape(f"{step.step}. {step.action}"), title_justify="left")
    table.add_column("candidate")
    table.add_column("proposed as (cosine, margin)")
    for name in (*names, "total"):
        table.add_column(name.replace("_", " "), justify="right")
    for candidate in step.candidates:
        scores = [_number(candidate.scores.get(name)) for name in names]
        mark = "→ " if candidate.chosen else "  "
        row = [escape(mark + candidate.action), escape(_proposed(candidate)), *scores, _number(candidate.total)]
        table.add_row(*row, style="bold" if candidate.chosen else None)
    return table


def _proposed(candidate: "TracedCandidate") -> str:
    return "\n".join(
        f"{one.source}: {visible(one.text)} ({one.cosine:.2f}, {one.margin:.2f})" for one in candidate.proposals
    )


def _number(score: float | None) -> str:
    return "none" if score is None else f"{score:.2f}"


_SEARCH, _SAMPLES = "How actions are chosen", "The samples to plan for"


def _samples(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_SAMPLES, **more)


@with_flags(VidAssistConfig, "config", _SEARCH)
@model_flags
def plan(
    output: Annotated[Path, typer.Option(help="Predictions file to write.")],
    recipe_model: Annotated[str | None, typer.Option(help="Second proposer: a planner such as RECIPE.")] = None,
    recipe_endpoint: Annotated[str | None, typer.Option(help="Address of the endpoint that serves it.")] = None,
    recipe_revision: Annotated[str | None, typer.Option(help="Revision of --recipe-model on its hub.")] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Why each action was chosen. Default: OUTPUT's name with .trace.jsonl.")
    ] = None,
    root: Annotated[Path | None, _samples(help="Folder of CrossTask as published, or of all benchmarks.")] = None,
    examples: Annotated[
        Path | None, _samples(help="Examples to plan for. Default: the protocol's, cut from --root.")
    ] = None,
    actions: Annotated[Path | None, _samples(help="With --examples: admissible actions, one a line.")] = None,
    histories: Annotated[
        Path | None, _samples(help="Histories of `recipe perceive`. Default: annotated steps.")
    ] = None,
    limit: Annotated[int | None, _samples(min=1, help="Only so many samples, evenly taken from all.")] = None,
    card: Annotated[bool, _samples("--card", help="Only the actions of the goal's card: easier, not comparable.")] = (
        False
    ),
    encoder: Annotated[str, _samples(help="Maps words to actions: minilm, hash:256, hub id or folder.")] = "minilm",
    protocol: ProtocolName = "shared",
    rule: RuleName = "vlamp",
    order: Order = "file",
    without: Annotated[
        list[str] | None,
        typer.Option(
            help="Leave out generation, mapping, evaluation or task_graph; repeat for several.", rich_help_panel=_SEARCH
        ),
    ] = None,
    ablations: Annotated[
        bool,
        typer.Option(
            "--ablations",
            help="Also each value function left out, other proposers and beams, baselines.",
            rich_help_panel=_SEARCH,
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    *,
    model_settings: ModelConfig,
    config: VidAssistConfig,
) -> None:
    """Plan the next actions by propose, assess and search, or by a baseline; no answer is paid for twice.

    Example: recipe vpa plan --root data --model m --endpoint http://localhost:8000/v1 --output predictions.jsonl

    Example: recipe vpa plan --root data --model base --recipe-model runs/grpo/model --beam 2 --output predictions.jsonl
    """
    from recipe.artifacts import require_writable
    from recipe.models.costs import Budget
    from recipe.planning.vidassist.trace import trace_of

    config = _completed(config, without or [], recipe_model is not None)
    if recipe_endpoint and recipe_model is None:
        raise InputError("--recipe-endpoint goes with --recipe-model; give the planner's name there.")
    if ablations and trace:
        raise InputError("--ablations writes a trace for each setting beside --output; leave out --trace.")
    target = trace or trace_of(output)
    require_writable(output)
    require_writable(target)
    source = Source(root, examples, actions, histories, limit, card, encoder, protocol, rule, order)
    settings = beside(model_settings, output)
    recipe = None
    if recipe_model is not None:
        named = {"model": recipe_model, "endpoint": recipe_endpoint, "revision": recipe_revision}
        recipe = settings.model_copy(update=named)
    budget = Budget(settings.max_calls, settings.max_tokens_total)
    if ablations:
        rows = run_ablations(source, config, settings, recipe, budget, output)
        if json:
            console.print_json(rows)
        else:
            show_ablations(rows)
        return
    samples = read_samples(source, config)
    with opened_models(settings, recipe, budget) as models:
        result = planned(samples, config, models, source, (settings, recipe), output, target)
    result["asked"] = budget.to_json()
    if json:
        console.print_json(result)
    else:
        _show(result)


def _completed(config: VidAssistConfig, without: Sequence[str], with_recipe: bool) -> VidAssistConfig:
    """The settings without some value functions, and by default with the proposers that there are."""
    for name in without:
        if name not in VALUES:
            known = f"{name!r} is no value function; known are {', '.join(VALUES)}."
            raise typer.BadParameter(known, param_hint="--without")
    changed: dict[str, Any] = {"values": [name for name in VALUES if name not in without]}
    if "proposers" not in config.model_fields_set:
        changed["proposers"] = "both" if with_recipe else "original"
    return parse_config(config.model_dump() | changed, VidAssistConfig, "the options")


def _show(result: dict[str, Any]) -> None:
    from recipe.planning.vidassist.trace import count_sentences

    counts = result["counts"]
    sources = ", ".join(f"{count:,} by {name}" for name, count in counts["chosen_from"].items())
    lines = [
        f"{counts['plans']:,} plans of {counts['actions']:,} actions in {result['output']}, why in {result['trace']}",
        f"actions proposed: {sources or 'none'}",
        f"{result['asked']['calls_spent']:,} answers were paid for now, "
        f"with {result['asked']['tokens_spent']:,} tokens read and written",
    ]
    lines += count_sentences(counts)
    for line in lines:
        console.out.print(line, highlight=False, markup=False, soft_wrap=True)


app = CommandGroup(help="Plan the next actions of a closed set, as work on CrossTask does.")


@app.callback()
def vpa() -> None:
    """Plan the next actions of a closed set, as work on CrossTask does."""


app.command("examples")(examples)
app.command("plan")(plan)
app.command("trace")(trace)
