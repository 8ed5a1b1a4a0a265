"""Commands of `recipe vpa`: next actions of a closed set, as Visual Planning for Assistance has it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from recipe.artifacts import read_text, require_writable, to_json
from recipe.cli import console
from recipe.cli.console import CommandGroup, CommandOutput, shows
from recipe.cli.flags import SettingsTable, with_settings
from recipe.cli.models import MODEL, open_for_command, with_cache
from recipe.config import EncoderConfig, ModelConfig, VidAssistConfig
from recipe.errors import InputError, listed
from recipe.prompting import visible

if TYPE_CHECKING:
    from recipe.planning.vidassist.methods import Demonstrations, Models
    from recipe.planning.vidassist.search import ActionsOf
    from recipe.types import Example

    Samples = tuple[list[Example], ActionsOf, Demonstrations]

_SAMPLES = "The samples to plan for"
# The largest T of the paper.
_LONGEST_HORIZON = 4

CrossTask = Annotated[Path, typer.Option(help="CrossTask's folder, or the folder that holds it as crosstask/.")]


class SampleSource(NamedTuple):
    """The samples to plan for, the closed set of actions, and the videos that may be shown."""

    root: Path | None
    examples: Path | None
    actions: Path | None
    histories: Path | None
    limit: int | None
    card: bool
    """Only the actions of the goal's card are admissible: another, easier setting."""
    encoder: str

    def read(self, config: VidAssistConfig) -> "Samples":
        """The examples to plan for, their admissible actions, and demonstrations.

        Raises InputError for options that do not go together.
        """
        from recipe.corpus.encoders import open_encoder
        from recipe.data.examples import read_examples
        from recipe.data.histories import read_histories, with_histories
        from recipe.evaluation.vpa.protocol import cut_samples, read_release
        from recipe.planning.admissible import AdmissibleActions
        from recipe.planning.vidassist.methods import demonstrations

        if self.root is None and (self.examples is None or self.actions is None):
            raise InputError("give --root, CrossTask as published; or --examples with --actions, a file of actions.")
        if self.root is None and (self.card or config.few_shot):
            raise InputError("--card and --few-shot need --root, whose cards and training videos they take.")
        release = None if self.root is None else read_release(self.root)
        if self.examples is not None:
            examples = read_examples(self.examples)
        else:
            assert release is not None
            samples = cut_samples(release.split("test"), release.cards, max(_LONGEST_HORIZON, config.horizon))
            examples = [sample.example() for sample in samples]
        if self.histories is not None:
            examples = with_histories(examples, read_histories(self.histories))
        if self.limit is not None and self.limit < len(examples):  # evenly taken from all
            examples = [examples[index * len(examples) // self.limit] for index in range(self.limit)]
        goals = [example.goal for example in examples]

        shown: Demonstrations = {}
        if release is not None and config.few_shot:
            shown = demonstrations(release.split("train", "val"), goals, config.few_shot, config.seed)

        embed = open_encoder(EncoderConfig(name=self.encoder)).encode
        if self.card and release is not None:
            cards = release.taxonomy().cards
            if unknown := [goal for goal in dict.fromkeys(goals) if goal not in cards]:
                raise InputError(f"no card of CrossTask is for {listed(unknown)}; leave out --card.")
            by_goal = {goal: AdmissibleActions(embed, cards[goal]) for goal in dict.fromkeys(goals)}
            return examples, by_goal.__getitem__, shown
        if self.actions is None:
            assert release is not None
            listed_actions = release.taxonomy().actions
        else:
            lines = read_text(self.actions).split("\n")
            listed_actions = tuple(line.strip() for line in lines if line.strip())
            if not listed_actions:
                raise InputError.at(self.actions, "it holds no action", "give one action a line")
        every = AdmissibleActions(embed, listed_actions)
        return examples, lambda goal: every, shown


def _planned(
    samples: "Samples",
    source: SampleSource,
    config: VidAssistConfig,
    models: "Models",
    settings: tuple[ModelConfig, ModelConfig | None],
    output: Path,
    trace: Path,
) -> dict[str, Any]:
    """Plan for each sample; write predictions, trace and manifest; return the manifest with the paths.

    `settings` are those of the model that proposes and assesses, and of the planner that proposes, too.
    """
    from recipe.planning.vidassist.methods import write_plans

    examples, actions, shown = samples
    model, recipe = (of and of.model_dump(include={"model", "revision", "endpoint"}) for of in settings)
    about = {
        "model": model,
        "recipe_model": recipe,
        "encoder": source.encoder,
        "history": "oracle" if source.histories is None else source.histories.name,
        "actions": "goal card" if source.card else "all",
    }
    manifest = write_plans(examples, config, models, actions, shown, output, trace, about, console.progress())
    return manifest | {"output": str(output), "trace": str(trace)}


def _ablations(
    samples: "dict[SampleSource, Samples]",
    config: VidAssistConfig,
    models: "Models",
    settings: tuple[ModelConfig, ModelConfig | None],
    output: Path,
) -> CommandOutput:
    """Plan by each setting, write each one's files next to `output`, and score them all on the same samples.

    Answers are shared, so that a request that two settings make is paid for once.
    """
    from dataclasses import replace

    from recipe.evaluation.measures import summarise
    from recipe.evaluation.vpa.baselines import expected_figures
    from recipe.evaluation.vpa.protocol import HORIZONS
    from recipe.evaluation.vpa.run import VpaMeasure, open_task
    from recipe.planning.prediction_files import read_predictions
    from recipe.planning.vidassist.methods import ablations
    from recipe.planning.vidassist.trace import trace_of
    from recipe.report.elements import Cell, Heading, Table, row

    source, *oracle = samples
    assert source.root is not None
    variants = [(name, changed, source) for name, changed in ablations(config).items()]
    variants += [("oracle history", config, of) for of in oracle]
    results = list[dict[str, Any]]()
    for name, changed, of in variants:
        # `plans.jsonl` for the given setting, `plans.beam-2.jsonl` for another.
        stem = output.stem if name == "as given" else f"{output.stem}.{name.replace(' ', '-')}"
        file = output.with_name(f"{stem}{output.suffix}")
        manifest = _planned(samples[of], of, changed, models, settings, file, trace_of(file))
        results.append({"name": name, "predictions": str(file), "counts": manifest["counts"]})

    # The figures in percent, below what chance gives on the same samples.
    short = {"success_rate": "SR", "accuracy": "mAcc", "iou": "mIoU"}
    columns = [f"{horizon}.{name}" for horizon in HORIZONS for name in short if horizon > 1 or name == "accuracy"]
    predictions = {result["name"]: read_predictions(Path(result["predictions"])) for result in results}
    planned_for = {plan.example_id for plan in predictions["as given"]}
    task = open_task(source.root)
    task = replace(task, samples=[sample for sample in task.samples if sample.sample_id in planned_for])
    if not task.samples:
        raise InputError("none of --examples is a sample of the protocol; make them by `recipe vpa examples`.")
    examples = [sample.example() for sample in task.samples]

    def no_encoder() -> Any:
        raise InputError("a planned step is no action of CrossTask; give --root without --actions.")

    measure = VpaMeasure(task, no_encoder, source.encoder)
    chance = expected_figures(task.samples, task.ids, columns, with_goal=True)
    scored: list[dict[str, Any]] = [{"name": "random-goal, expected", "figures": chance}]
    for result in results:
        scores = summarise(measure, result["name"], measure.rows(examples, predictions[result["name"]]), examples)
        figures = {name: value.mean for name, value in scores.overall.values.items()}
        scored.append(result | {"figures": figures, "samples": len(task.samples)})
    headings = (*(Heading(short[key[2:]], f"T={key[0]}") for key in columns), Heading("short"))
    rows = tuple(
        row(
            of["name"],
            *(Cell(of["figures"][key], 1) for key in columns),
            of["counts"]["short"] if "counts" in of else "",
        )
        for of in scored
    )
    return CommandOutput(scored, [Table(f"{len(examples):,} samples of CrossTask, percent", "setting", headings, rows)])


app = CommandGroup(help="Plan the next actions of a closed set, as work on CrossTask does.")


@app.command("examples")
@shows
def examples(
    root: CrossTask,
    output: Annotated[Path, typer.Option(help="Examples file to write, JSON lines.")],
    split: Annotated[Literal["train", "val", "test"], typer.Option(help="Videos of this list.")] = "test",
) -> CommandOutput:
    """Write the samples of Visual Planning for Assistance for `recipe plan --examples` and `recipe perceive`.

    A sample of a video that has only begun has an empty history. The same options always give the same bytes.

    Example: recipe vpa examples --root data --output vpa.jsonl
    """
    from recipe.data.examples import write_examples
    from recipe.evaluation.vpa.protocol import cut_samples, read_release

    require_writable(output)
    release = read_release(root)
    samples = cut_samples(release.split(split), release.cards)
    written = write_examples(output, (sample.example() for sample in samples))
    videos = len({sample.video_id for sample in samples})
    start = sum(not sample.history for sample in samples)
    return CommandOutput(
        {"output": str(output), "examples": written, "videos": videos, "without_history": start},
        [f"{written:,} examples of {videos:,} videos written to {output}; {start:,} of them have no history"],
    )


def _sample_option(help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_SAMPLES, **more)


@app.command("plan")
@with_settings(
    model=MODEL,
    vidassist=SettingsTable(VidAssistConfig, ("method", "horizon", "beam", "few_shot"), "How actions are chosen"),
)
@shows
def plan(
    output: Annotated[Path, typer.Option(help="Predictions file to write.")],
    recipe_model: Annotated[str | None, typer.Option(help="Second proposer: a planner such as RECIPE.")] = None,
    recipe_endpoint: Annotated[str | None, typer.Option(help="Address of the endpoint that serves it.")] = None,
    recipe_revision: Annotated[str | None, typer.Option(help="Revision of --recipe-model on its hub.")] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Why each action was chosen. Default: OUTPUT's name with .trace.jsonl.")
    ] = None,
    root: Annotated[Path | None, _sample_option("Folder of CrossTask as published, or of all benchmarks.")] = None,
    examples: Annotated[
        Path | None, _sample_option("Examples to plan for. Default: the protocol's, cut from --root.")
    ] = None,
    actions: Annotated[Path | None, _sample_option("With --examples: admissible actions, one a line.")] = None,
    histories: Annotated[
        Path | None, _sample_option("Histories of `recipe perceive`. Default: annotated steps.")
    ] = None,
    limit: Annotated[int | None, _sample_option("Only so many samples, evenly taken from all.", min=1)] = None,
    card: Annotated[
        bool, _sample_option("Only the actions that CrossTask lists for the goal: easier, not comparable.", "--card")
    ] = False,
    encoder: Annotated[str, _sample_option("Maps words to actions: minilm, hash:256, hub id or folder.")] = "minilm",
    ablations: Annotated[
        bool,
        typer.Option("--ablations", help="Also each value function left out, other proposers and beams, baselines."),
    ] = False,
    *,
    model: ModelConfig,
    vidassist: VidAssistConfig,
) -> CommandOutput:
    """Plan the next actions by propose, assess and search, or by a baseline; no answer is paid for twice.

    Example: recipe vpa plan --root data --model m --endpoint http://localhost:8000/v1 --output predictions.jsonl

    Example: recipe vpa plan --root data --model base --recipe-model runs/grpo/model --beam 2 --output predictions.jsonl
    """
    from recipe.models.costs import Budget
    from recipe.planning.vidassist.methods import with_planner
    from recipe.planning.vidassist.trace import count_sentences, trace_of

    if "proposers" not in vidassist.model_fields_set:
        proposers = "original" if recipe_model is None else "both"
        vidassist = vidassist.model_copy(update={"proposers": proposers})
    if recipe_endpoint and recipe_model is None:
        raise InputError("--recipe-endpoint goes with --recipe-model; give the planner's name there.")
    if ablations and trace:
        raise InputError("--ablations writes a trace for each setting next to --output; leave out --trace.")
    target = trace or trace_of(output)
    require_writable(output)
    require_writable(target)
    source = SampleSource(root, examples, actions, histories, limit, card, encoder)
    settings, recipe = with_cache(model, output), None
    if recipe_model is not None:
        named = {"model": recipe_model, "endpoint": recipe_endpoint, "revision": recipe_revision}
        recipe = settings.model_copy(update=named)
    budget = Budget(settings.max_calls, settings.max_tokens_total)
    if ablations and (root is None or vidassist.horizon < _LONGEST_HORIZON):
        raise InputError(
            f"--ablations scores plans of {_LONGEST_HORIZON} actions on CrossTask; give --root and --horizon 4."
        )
    sources = [source, *([source._replace(histories=None)] if ablations and histories else [])]
    samples = {of: of.read(vidassist) for of in sources}
    # The sentence of `opened` serves errors of both models, which share one budget.
    with open_for_command(settings, budget=budget) as first, with_planner(first, settings, recipe, budget) as models:
        if ablations:
            return _ablations(samples, vidassist, models, (settings, recipe), output)
        result = _planned(samples[source], source, vidassist, models, (settings, recipe), output, target)
    result["asked"] = budget.to_json()
    counts = result["counts"]
    proposed = ", ".join(f"{count:,} by {name}" for name, count in counts["chosen_from"].items())
    spent = result["asked"]
    lines = [
        f"{counts['plans']:,} plans of {counts['actions']:,} actions in {output}, why in {target}",
        f"actions proposed: {proposed or 'none'}",
        f"{spent['calls_spent']:,} answers were paid for now, with {spent['tokens_spent']:,} tokens read and written",
    ]
    return CommandOutput(result, [*lines, *count_sentences(counts)])


@app.command("trace")
@shows
def trace(
    file: Annotated[Path, typer.Argument(help="Trace that `recipe vpa plan` wrote.")],
    example: Annotated[str, typer.Option(help="Id of the example.")],
) -> CommandOutput:
    """Show the candidates of each action of a plan: who proposed them, in which words, and how they scored.

    Example: recipe vpa trace predictions.trace.jsonl --example crosstask/-9lVZgN7pGE/3
    """
    from recipe.planning.vidassist.trace import read_trace
    from recipe.report.elements import Cell, Table, headings, row

    steps = read_trace(file, example)
    lines: list[str | Table] = [f"{steps[0].goal}. Done: {', '.join(steps[0].done) or 'nothing yet'}."]
    for step in steps:
        names = list(dict.fromkeys(name for candidate in step.candidates for name in candidate.scores))
        rows = []
        for candidate in step.candidates:
            proposed = "\n".join(
                f"{proposal.source}: {visible(proposal.text)} ({proposal.cosine:.2f}, {proposal.margin:.2f})"
                for proposal in candidate.proposals
            )
            scores = [*(candidate.scores.get(name) for name in names), candidate.total]
            cells = ("none" if score is None else Cell(score, 2) for score in scores)
            rows.append(row(("→ " if candidate.chosen else "  ") + candidate.action, proposed, *cells))
        columns = headings("proposed as (cosine, margin)", *(name.replace("_", " ") for name in names), "total")
        lines.append(Table(f"{step.step}. {step.action}", "candidate", columns, tuple(rows)))
        lines += [f"no action in: {visible(lost)}" for lost in step.lost]
    return CommandOutput(to_json(steps), lines)
