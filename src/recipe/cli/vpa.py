"""Commands of `recipe vpa`: Visual Planning for Assistance."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from rich.markup import escape
from rich.table import Table

from recipe.cli import console
from recipe.cli import models as endpoints
from recipe.cli.console import out, print_json
from recipe.cli.data import AsJson
from recipe.cli.models import model_identity
from recipe.errors import ComputeError, InputError, listed
from recipe.prompting import visible

if TYPE_CHECKING:
    from recipe.data.crosstask import StepOrder
    from recipe.evaluation.vpa.protocol import Protocol, Release, Rule
    from recipe.evaluation.vpa.run import Task
    from recipe.models.protocol import Engine
    from recipe.models.wrappers import Budget
    from recipe.planning.vidassist.methods import Models, VidAssistConfig
    from recipe.planning.vidassist.models import Demonstrations
    from recipe.planning.vidassist.search import ActionsOf, PartialPlan
    from recipe.planning.vidassist.trace import TracedCandidate, TracedStep
    from recipe.types import Example

# Options that say how CrossTask is cut for Visual Planning for Assistance, the same in every command.


_PANEL = "Protocol"

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


# The models that plan next actions: each on this machine or at an endpoint, with kept answers and one budget.


class Named(NamedTuple):
    """A model and where it is."""

    name: str
    endpoint: endpoints.Asked | None
    revision: str | None = None
    device: str | None = None

    @contextmanager
    def engine(self, cache: Path) -> "Iterator[Engine]":
        """The engine that asks it and keeps its answers."""
        if self.endpoint is not None:
            from recipe.models.endpoint import EndpointEngine

            with EndpointEngine(self.endpoint.config(self.name), cache) as remote:
                yield remote
            return
        from recipe.models.local import LocalEngine
        from recipe.models.wrappers import AnswerCache, KeptEngine

        identity = model_identity(self.name, self.revision, AnswerCache(cache))
        yield KeptEngine(LocalEngine(self.name, self.revision, self.device), identity, cache)

    def told(self) -> dict[str, Any]:
        """What a manifest says of it."""
        address = None if self.endpoint is None else self.endpoint.url
        return {"model": self.name, "revision": self.revision, "endpoint": address}


class Asked(NamedTuple):
    """Who is asked, where answers are kept, and what they may cost."""

    model: Named
    recipe: Named | None
    cache: Path
    budget: "Budget"

    @contextmanager
    def opened(self) -> "Iterator[Models]":
        """The models, ready to be asked; the same one is opened once."""
        from recipe.models.wrappers import BudgetEngine
        from recipe.planning.vidassist.methods import Models

        with ExitStack() as stack:
            engines = {
                named: BudgetEngine(stack.enter_context(named.engine(self.cache)), self.budget)
                for named in dict.fromkeys(filter(None, (self.model, self.recipe)))
            }
            yield Models(engines[self.model], None if self.recipe is None else engines[self.recipe])


# What next actions are planned for: samples of the protocol, the closed set of actions, and what may be shown.


class Source(NamedTuple):
    """Where samples and actions come from."""

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
    """What is planned for."""

    examples: "list[Example]"
    actions: "ActionsOf"
    shown: "Demonstrations"


def read_samples(source: Source, config: "VidAssistConfig") -> Samples:
    """Read what the options name. Raises InputError for options that do not go together."""
    from recipe.evaluation.vpa.protocol import read_release
    from recipe.planning.vidassist.models import demonstrations

    if source.root is None and (source.examples is None or source.actions is None):
        raise InputError("give --root, CrossTask as published; or --examples with --actions, a file of actions.")
    if source.root is None and (source.card or config.few_shot):
        raise InputError("--card and --few-shot need --root, whose cards and training videos they take.")
    release = None if source.root is None else read_release(source.root, source.order)
    examples = _spread(_examples(source, release, config.horizon), source.limit)
    shown: Demonstrations = {}
    if release is not None and config.few_shot:
        goals = [example.goal for example in examples]
        shown = demonstrations(release.split("train", "val"), goals, config.few_shot, config.seed)
    return Samples(examples, _actions(source, release, examples), shown)


def _examples(source: Source, release: "Release | None", horizon: int) -> "list[Example]":
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


def _spread(examples: "list[Example]", limit: int | None) -> "list[Example]":
    """So many examples, evenly taken from all."""
    if limit is None or limit >= len(examples):
        return examples
    return [examples[place * len(examples) // limit] for place in range(limit)]


def _actions(source: Source, release: "Release | None", examples: "list[Example]") -> "ActionsOf":
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


def _listed(source: Source, release: "Release | None") -> tuple[str, ...]:
    if source.actions is None:
        assert release is not None
        return release.taxonomy().actions
    try:
        lines = source.actions.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InputError.at(source.actions, "the text is not UTF-8", "convert the file to UTF-8") from None
    actions = tuple(line.strip() for line in lines if line.strip())
    if not actions:
        raise InputError.at(source.actions, "it holds no action", "give one action a line")
    return actions


# Plans from samples, with an error that says what a failed run keeps.


def planned(samples: Samples, config: "VidAssistConfig", models: "Models") -> "list[PartialPlan]":
    """A plan for each sample. Raises what the engines raise."""
    from recipe.planning.vidassist.methods import plan_actions
    from recipe.planning.vidassist.search import State

    starts = [State(example.goal, example.history) for example in samples.examples]
    try:
        return plan_actions(starts, config, models, samples.actions, samples.shown, console.progress())
    except ComputeError as error:
        kept = "answers that came are kept, and the same command goes on from there"
        raise ComputeError(f"{str(error).removesuffix('.')}; {kept}.") from error


# What `recipe vpa plan` writes: predictions, the trace, and a manifest that tells how they were made.


class Files(NamedTuple):
    """Where it goes."""

    output: Path
    trace: Path


def write_plans(
    plans: "Sequence[PartialPlan]",
    samples: Samples,
    config: "VidAssistConfig",
    source: Source,
    asked: Asked,
    files: Files,
) -> dict[str, Any]:
    """Write the files, each all or nothing; returns the manifest with what was asked now."""
    from recipe.artifacts import fingerprint, write_json
    from recipe.planning.predictions import write_predictions
    from recipe.planning.vidassist.models import prompts_sha256
    from recipe.planning.vidassist.trace import predicted, summarize, write_trace

    pairs = [(example.example_id, plan) for example, plan in zip(samples.examples, plans, strict=True)]
    manifest: dict[str, Any] = {
        "output": files.output.name,
        "trace": files.trace.name,
        "settings": config.model_dump(mode="json"),
        "values": list(config.active) if config.method == "vidassist" else [],
        "model": asked.model.told(),
        "recipe_model": None if asked.recipe is None else asked.recipe.told(),
        "encoder": source.encoder,
        "history": "oracle" if source.histories is None else source.histories.name,
        "actions": "goal card" if source.card else "all",
        "prompts": prompts_sha256(),
        "few_shot": fingerprint(samples.shown) if samples.shown else None,
        "samples": len(pairs),
        "counts": asdict(summarize(plans, config.horizon, assessed=config.method != "llm")),
    }
    write_trace(files.trace, pairs)
    write_predictions(files.output, (predicted(example_id, plan) for example_id, plan in pairs))
    write_json(files.output.with_name(f"{files.output.name}.manifest.json"), manifest)
    now = {"output": str(files.output), "trace": str(files.trace), "asked": asked.budget.to_json()}
    return manifest | now


# `recipe vpa plan --ablations`: the settings beside a setting on the same samples, and one table of them all.


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


class _Variant(NamedTuple):
    """One row of the table."""

    name: str
    config: "VidAssistConfig"
    source: Source


def run_ablations(source: Source, config: "VidAssistConfig", asked: Asked, output: Path) -> list[dict[str, Any]]:
    """Plan by each setting, write each one's files beside `output`, and score them all.

    Answers are shared, so that what two settings ask is paid for once. Raises InputError without CrossTask, whose
    samples are scored.
    """
    if source.root is None or config.horizon < _HORIZON:
        raise InputError("--ablations scores plans of 4 actions on CrossTask; give --root and --horizon 4.")
    rows = []
    variants = _variants(source, config)
    samples = {one: read_samples(one, config) for one in dict.fromkeys(variant.source for variant in variants)}
    with asked.opened() as models:
        for variant in variants:
            read = samples[variant.source]
            plans = planned(read, variant.config, models)
            files = _files(output, variant.name)
            result = write_plans(plans, read, variant.config, variant.source, asked, files)
            rows.append({"name": variant.name, "predictions": str(files.output), "counts": result["counts"]})
    return _scored(rows, source)


def _variants(source: Source, config: "VidAssistConfig") -> list[_Variant]:
    from recipe.planning.vidassist.methods import ablations

    found = [_Variant(name, changed, source) for name, changed in ablations(config).items()]
    if source.histories is not None:
        found.append(_Variant("oracle history", config, source._replace(histories=None)))
    return found


def _files(output: Path, name: str) -> Files:
    """`plans.jsonl` for the given setting, `plans.beam-2.jsonl` for another."""
    stem = output.stem if name == "as given" else f"{output.stem}.{name.replace(' ', '-')}"
    return Files(output.with_name(f"{stem}{output.suffix}"), output.with_name(f"{stem}.trace.jsonl"))


def _scored(rows: list[dict[str, Any]], source: Source) -> list[dict[str, Any]]:
    """The rows with their figures in percent, behind a row of what chance gives on the same samples."""
    from recipe.evaluation.vpa.baselines import expected_figures
    from recipe.evaluation.vpa.run import figures_of, run_predictions
    from recipe.planning.predictions import read_predictions

    predictions = {row["name"]: read_predictions(Path(row["predictions"])) for row in rows}
    task = _task(source, {one.example_id for one in predictions["as given"]})
    chance = expected_figures(task.samples, task.ids, _COLUMNS, with_goal=True)
    scored: list[dict[str, Any]] = [{"name": "random-goal, expected", "figures": chance}]
    for row in rows:
        scores = run_predictions(task, predictions[row["name"]], _no_encoder, row["name"]).scores
        scored.append(row | {"figures": figures_of(scores.horizons), "samples": len(task.samples)})
    return scored


def _no_encoder() -> Any:
    raise InputError("a planned step is no action of CrossTask; give --root without --actions.")


def _task(source: Source, planned_for: set[str]) -> "Task":
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


# `recipe vpa examples`: the samples of the protocol as examples that any planner reads.


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


# `recipe vpa trace`: why each action of a plan was chosen.


def trace(
    file: Annotated[Path, typer.Argument(help="Trace that `recipe vpa plan` wrote.")],
    example: Annotated[str, typer.Option(help="Id of the example.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the candidates of each action of a plan: who proposed them, in which words, and how they scored.

    Example: recipe vpa trace predictions.trace.jsonl --example crosstask/-9lVZgN7pGE/3
    """
    from recipe.planning.vidassist.trace import read_trace

    steps = read_trace(file, example)
    if json:
        console.print_json([step.model_dump() for step in steps])
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
    return "untold" if score is None else f"{score:.2f}"


# `recipe vpa plan`: the next actions of CrossTask's samples, by VidAssist or a baseline beside it.


_SEARCH, _SAMPLES, _COST = "How actions are chosen", "What is planned for", "Bounds and kept answers"


def _search(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_SEARCH, **more)


def _samples(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_SAMPLES, **more)


def _cost(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_COST, **more)


def _left(without: list[str]) -> list[str]:
    """The value functions that are not left out."""
    from recipe.planning.vidassist.methods import VALUES

    for name in without:
        if name not in VALUES:
            known = f"{name!r} is no value function; known are {', '.join(VALUES)}."
            raise typer.BadParameter(known, param_hint="--without")
    return [name for name in VALUES if name not in without]


def plan(
    model: Annotated[str, typer.Option(help="Proposer and assessor: model folder, hub id, or name at the endpoint.")],
    output: Annotated[Path, typer.Option(help="Predictions file to write.")],
    method: Annotated[
        Literal["vidassist", "agent", "llm"], typer.Option(help="VidAssist, or one of its two baselines.")
    ] = "vidassist",
    recipe_model: Annotated[str | None, typer.Option(help="Planner that proposes, too, such as RECIPE.")] = None,
    recipe_endpoint: Annotated[str | None, typer.Option(help="Address of the endpoint that serves it.")] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Why each action was chosen. Default: OUTPUT's name with .trace.jsonl.")
    ] = None,
    root: Annotated[Path | None, _samples(help="Folder of CrossTask as published, or of all benchmarks.")] = None,
    examples: Annotated[
        Path | None, _samples(help="Examples to plan for. Default: the protocol's, cut from --root.")
    ] = (None),
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
    horizon: Annotated[int, _search(min=1, help="T, actions of a plan.")] = 4,
    beam: Annotated[int, _search(min=1, help="Partial plans that are kept at each level.")] = 1,
    proposers: Annotated[
        Literal["both", "original", "recipe"] | None,
        _search(help="Who proposes. Default: both with --recipe-model, else original."),
    ] = None,
    candidates: Annotated[int, _search(min=1, help="Proposals of each proposer at each step.")] = 2,
    without: Annotated[
        list[str] | None,
        _search(help="Leave out generation, mapping, evaluation or task_graph; repeat for several."),
    ] = None,
    few_shot: Annotated[
        int, _search(min=0, help="Training videos of the goal that are shown; also the task graph.")
    ] = 0,
    temperature: Annotated[float, _search(min=0, help="Of proposals.")] = 0.7,
    max_tokens: Annotated[int, _search(min=1, help="Longest proposal or assessment.")] = 48,
    agent_samples: Annotated[int, _search(min=1, help="With --method agent: samples of each step.")] = 10,
    seed: Annotated[int, _search(help="Another seed gives other proposals and other few shots.")] = 0,
    ablations: Annotated[
        bool, _search("--ablations", help="Also each value function left out, other proposers and beams, baselines.")
    ] = False,
    max_calls: Annotated[int | None, _cost(min=0, help="Answers that may be paid for in this run.")] = None,
    max_tokens_total: Annotated[
        int | None, _cost(min=0, help="Tokens, read and written, that may be paid for.")
    ] = None,
    cache: Annotated[Path | None, _cost(help="Folder of answers. Default: OUTPUT.cache.")] = None,
    revision: Annotated[str | None, typer.Option(help="Revision of --model on its hub.")] = None,
    recipe_revision: Annotated[str | None, typer.Option(help="Revision of --recipe-model on its hub.")] = None,
    device: Annotated[str | None, typer.Option(help="Where models on this machine compute, such as cuda:1.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Answers that a model on this machine writes at once.")] = 64,
    endpoint: endpoints.Url = None,
    key_variable: endpoints.KeyVariable = None,
    concurrency: endpoints.Concurrency = 16,
    timeout: endpoints.Timeout = 180.0,
    tries: endpoints.Tries = 6,
    token_limit: endpoints.TokenLimit = "max_tokens",
    no_seed: endpoints.NoSeed = False,
    price_in: endpoints.PriceIn = None,
    price_out: endpoints.PriceOut = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Plan the next actions by propose, assess and search, or by a baseline; no answer is paid for twice.

    Example: recipe vpa plan --root data --model m --endpoint http://localhost:8000/v1 --output predictions.jsonl

    Example: recipe vpa plan --root data --model base --recipe-model runs/grpo/model --beam 2 --output predictions.jsonl
    """
    from recipe.artifacts import require_writable
    from recipe.config import parse_config
    from recipe.models.wrappers import Budget
    from recipe.planning.vidassist.methods import VidAssistConfig

    chosen = {
        "method": method,
        "horizon": horizon,
        "beam": beam,
        "proposers": proposers or ("original" if recipe_model is None else "both"),
        "candidates": candidates,
        "values": _left(without or []),
        "few_shot": few_shot,
        "temperature": temperature,
        "max_tokens": max_tokens,
        "agent_samples": agent_samples,
        "batch_size": batch_size,
        "seed": seed,
    }
    config = parse_config(chosen, VidAssistConfig, "the options")
    if recipe_endpoint and recipe_model is None:
        raise InputError("--recipe-endpoint goes with --recipe-model; give the planner's name there.")

    if ablations and trace:
        raise InputError("--ablations writes a trace for each setting beside --output; leave out --trace.")

    def named(name: str, url: str | None, revision: str | None) -> Named:
        asked = None
        if url is not None:
            asked = endpoints.Asked(
                url, key_variable, concurrency, timeout, tries, "images", token_limit, no_seed, price_in, price_out
            )
        return Named(name, asked, revision, device)

    target = trace or output.with_name(f"{output.stem}.trace.jsonl")
    require_writable(output)
    require_writable(target)
    source = Source(root, examples, actions, histories, limit, card, encoder, protocol, rule, order)
    asked = Asked(
        named(model, endpoint, revision),
        None if recipe_model is None else named(recipe_model, recipe_endpoint, recipe_revision),
        endpoints.cache_folder(cache, output),
        Budget(max_calls, max_tokens_total),
    )
    if ablations:
        rows = run_ablations(source, config, asked, output)
        if json:
            console.print_json(rows)
        else:
            show_ablations(rows)
        return
    samples = read_samples(source, config)
    with asked.opened() as models:
        plans = planned(samples, config, models)
    result = write_plans(plans, samples, config, source, asked, Files(output, target))
    if json:
        console.print_json(result)
    else:
        _show(result)


def _show(result: dict[str, Any]) -> None:
    counts = result["counts"]
    sources = ", ".join(f"{count:,} by {name}" for name, count in counts["chosen_from"].items())
    lines = [
        f"{counts['plans']:,} plans of {counts['actions']:,} actions in {result['output']}, why in {result['trace']}",
        f"actions proposed: {sources or 'none'}",
        f"{result['asked']['calls_spent']:,} answers were paid for now, "
        f"with {result['asked']['tokens_spent']:,} tokens read and written",
    ]
    told = {
        "short": "plans are shorter than the horizon: nothing more was proposed",
        "lost": "answers held no action",
        "unscored": "actions were chosen by order alone: no value function told anything",
    }
    lines += [f"{counts[name]:,} {reason}" for name, reason in told.items() if counts[name]]
    for name, count in counts["untold"].items():
        if count:
            lines.append(f"{name}: left out of the mean for {count:,} of {counts['candidates']:,} candidates, not told")
    for line in lines:
        console.out.print(line, highlight=False, markup=False, soft_wrap=True)


app = typer.Typer(no_args_is_help=True, help="Plan the next actions of a closed set, as work on CrossTask does.")


@app.callback()
def vpa() -> None:
    """Plan the next actions of a closed set, as work on CrossTask does."""


app.command("examples")(examples)
app.command("plan")(plan)
app.command("trace")(trace)
