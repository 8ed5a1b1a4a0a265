"""`recipe evaluate judge` and `diversity`: measures that ask a judge, by a model's verdicts or the proxy."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from recipe.artifacts import fingerprint, require_writable
from recipe.cli import console
from recipe.cli.console import CommandOutput
from recipe.cli.evaluate.runner import PlanOptions, measure_command, open_embed
from recipe.cli.flags import SettingsTable
from recipe.cli.models import JUDGE, open_for_command, with_cache
from recipe.config import FUNCTION_NAME, JudgeConfig, ModelConfig
from recipe.errors import InputError

if TYPE_CHECKING:
    from recipe.models.model import Model
    from recipe.types import Example

PROXY = "proxy"
"""The judge that needs no model to ask."""
SIX = "six-criteria"
"""The paper's rubric."""
PAPERS = "meta-llama/Llama-3.3-70B-Instruct"
"""The paper's judge, and the default at an endpoint."""
_PANEL = "How the judge is asked"

Encoder = Annotated[str, typer.Option(help="With `--judge proxy`: encoder, minilm, hash:256, hub id or folder.")]
Histories = Annotated[
    Path | None,
    typer.Option(help="With --history perceived: Phi's histories, JSON lines. Default: told_history of --examples."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be asked, and ask nothing.")]


@contextmanager
def _asked_model(settings: ModelConfig) -> "Iterator[Model]":
    """The model of a judge; raises InputError where the options name none."""
    if settings.endpoint is None and settings.model in ("", PAPERS) and not settings.replay:
        raise InputError("--endpoint is missing: the judge's address; or give --judge proxy, or a model folder.")
    with open_for_command(settings.model_copy(update={"model": settings.model or PAPERS})) as model:
        yield model


def _read_judged(examples: Path, split: str, histories: Path | None, history: str) -> "list[Example]":
    """The examples of a file, with Phi's histories of another as `told_history`. Raises InputError."""
    from recipe.data.examples import read_examples
    from recipe.data.histories import read_histories, with_histories

    chosen = read_examples(examples, split)
    if histories is None:
        return chosen
    if history != "perceived":
        raise InputError("--histories goes with --history perceived; the judge reads the annotated history without it.")
    read = with_histories(chosen, read_histories(histories))
    return [replace(example, told_history=of.history) for example, of in zip(chosen, read, strict=True)]


@measure_command(
    "seed",
    model=JUDGE,
    judge=SettingsTable(JudgeConfig, ("temperature", "max_tokens", "seed", "repeats", "reasks", "history"), _PANEL),
)
def judge(
    plans: PlanOptions,
    rubric: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE.toml",
            help="six-criteria, the paper's; or a file with criteria, scale and prompt of your own (docs/own.md).",
        ),
    ] = "six-criteria",
    encoder: Encoder = "minilm",
    samples: Annotated[
        Literal["first", "all"], typer.Option(help="The first sample of each example (Score@1), or every one.")
    ] = "first",
    histories: Histories = None,
    controls: Annotated[int, typer.Option(min=0, help="Examples whose control plans are judged, too.")] = 50,
    dry_run: DryRun = False,
    show_prompt: Annotated[bool, typer.Option("--show-prompt", help="Print the first prompt, and ask nothing.")] = (
        False
    ),
    *,
    model: ModelConfig,
    judge: JudgeConfig,
) -> CommandOutput:
    """Judge plans by six criteria against the reference, and control plans that show how far to trust the judge.

    `--judge module:function` asks a function of yours, `--rubric FILE.toml` by criteria of your own.

    Example: recipe evaluate judge plans.jsonl --examples test.jsonl --endpoint http://localhost:8000/v1 --output j.json

    Example: recipe evaluate judge plans.jsonl --examples test.jsonl --judge proxy --output proxy.json
    """
    from recipe.data.examples import read_examples
    from recipe.evaluation.judge.llm import Judge, JudgingCost, LlmJudge
    from recipe.evaluation.judge.measures import RubricMeasure
    from recipe.evaluation.judge.own import FunctionJudge
    from recipe.evaluation.judge.plans import cases_of, control_cases
    from recipe.evaluation.judge.proxy import ProxyJudge
    from recipe.evaluation.judge.rubric import read_rubric, six_criteria
    from recipe.evaluation.judge.verdicts import verdict_rows, write_verdicts
    from recipe.evaluation.measures import summarise
    from recipe.evaluation.scores import rows_path
    from recipe.models.costs import Prices
    from recipe.models.sampling import distinct_decodings
    from recipe.planning.prediction_files import read_predictions

    asks = not (dry_run or show_prompt)
    # A model at an endpoint may have such a name, too.
    is_function = model.endpoint is None and not model.replay and FUNCTION_NAME.fullmatch(model.model) is not None
    if is_function and not asks:
        raise InputError(
            f"--judge {model.model} is a function and gets no prompt; leave --dry-run or --show-prompt out."
        )
    criteria = six_criteria() if rubric == SIX else read_rubric(Path(rubric))
    if model.model == PROXY and not criteria.is_papers:
        raise InputError(
            f"--judge proxy computes the six criteria; leave --rubric {rubric} out, or name another judge."
        )
    if asks and plans.output is None:
        raise InputError("--output is missing: the scores file to write; or give --dry-run or --show-prompt.")
    chosen = _read_judged(plans.examples, plans.split, histories, judge.history)
    known = read_examples(plans.examples) if plans.split else chosen
    planned = read_predictions(plans.predictions)
    own = cases_of(chosen, planned, known, plans.missing, samples, judge)
    chosen = list({case.example.example_id: case.example for case in own.cases}.values())  # with the history shown
    cases = own.cases + control_cases(chosen, controls, judge.seed)
    if not asks:
        costs = JudgingCost.of(cases, judge, criteria)
        if show_prompt:
            parts = (part for message in costs.first for part in (f"--- {message['role']} ---", message["content"]))
            return CommandOutput(costs.first, parts)
        cost = Prices(model.price_in).cost(costs.prompt_tokens, 0)
        priced = "" if cost is None else f", at a cost of about {cost:,.2f} before answers"
        line = (
            f"{costs.calls:,} calls, about {costs.prompt_tokens:,} tokens of prompts{priced}; "
            f"{costs.by_rule:,} plans get the lowest score by rule."
        )
        counted = {"calls": costs.calls, "prompt_tokens": costs.prompt_tokens, "by_rule": costs.by_rule, "cost": cost}
        return CommandOutput(counted, [line])

    assert plans.output is not None
    spent: dict[str, float | None] = {}
    asking: Judge
    if model.model == PROXY:
        asking = ProxyJudge(open_embed(encoder), encoder, judge.history)
        judged = asking.judge(cases, console.progress())
    elif is_function:
        asking = FunctionJudge(model.model, criteria, judge.history)
        judged = asking.judge(cases, console.progress())
    else:
        with _asked_model(with_cache(model, plans.output)) as engine:
            asking = LlmJudge(engine, model.model or PAPERS, judge, criteria)
            judged = asking.judge(cases, console.progress())
            spent = engine.ledger.numbers()
    identity = asking.identity
    if any(example.worded for example in chosen):
        # Verdicts on other references, in a model's words, are not comparable with these.
        texts = [[example.example_id, example.goal, example.history, example.continuation] for example in chosen]
        identity = replace(identity, settings=identity.settings | {"worded references": fingerprint(texts)[:12]})
    measure = RubricMeasure(identity)
    left_out = {"other splits": own.other_splits, "further samples": own.unused}
    decoding = distinct_decodings(plan.decoding for plan in planned)
    system = plans.system or plans.predictions.stem
    scores = summarise(measure, system, verdict_rows(judged), chosen, judge.seed, spent, left_out, decoding)
    write_verdicts(rows_path(plans.output), judged)
    return plans.show(scores)


@measure_command(
    "predictions",
    "missing",
    "seed",
    model=JUDGE,
    judge=SettingsTable(JudgeConfig, ("temperature", "max_tokens", "seed", "reasks", "history"), _PANEL),
)
def diversity(
    plans: PlanOptions,
    predictions: Annotated[Path | None, typer.Argument(help="Predictions, JSON lines, several samples each.")] = None,
    chosen: Annotated[
        Path | None, typer.Option(help="Write the chosen examples, JSON lines, to plan for; needs no predictions.")
    ] = None,
    encoder: Encoder = "minilm",
    histories: Histories = None,
    prompts: Annotated[int, typer.Option(min=1, help="Prompts, chosen by a hash; all where there are fewer.")] = 100,
    samples: Annotated[int, typer.Option(min=2, help="Samples of a prompt, the first by their numbers.")] = 10,
    fewer: Annotated[bool, typer.Option("--fewer", help="Take prompts with fewer samples as they are.")] = False,
    order_check: Annotated[
        float, typer.Option(min=0, max=1, help="Share of pairs also shown the other way round; 1 averages both.")
    ] = 0.1,
    dry_run: DryRun = False,
    *,
    model: ModelConfig,
    judge: JudgeConfig,
) -> CommandOutput:
    """Compare all pairs of a prompt's samples, and take the mean: different procedures count, other words do not.

    Example: recipe evaluate diversity plans.jsonl --examples test.jsonl --judge gemini --endpoint URL --output d.json

    Example: recipe evaluate diversity plans.jsonl --examples test.jsonl --judge proxy --output diversity.json
    """
    from recipe.data.examples import read_examples, write_examples
    from recipe.evaluation.diversity.judges import DiversityJudge, LlmDiversityJudge, ProxyDiversityJudge, render
    from recipe.evaluation.diversity.plans import chosen_prompts, sampled_plans
    from recipe.evaluation.diversity.scores import DiversityMeasure, compare_plans, questions
    from recipe.evaluation.measures import summarise
    from recipe.models.sampling import distinct_decodings
    from recipe.planning.prediction_files import read_predictions

    if chosen is not None:
        require_writable(chosen)
    seed = judge.seed
    to_plan = chosen_prompts(_read_judged(plans.examples, plans.split, histories, judge.history), prompts, seed)
    if chosen is not None:
        write_examples(chosen, to_plan)
    if predictions is None:
        if chosen is None:
            raise InputError("the predictions are missing: give their file, or --chosen to write what to plan for.")
        written = {"prompts": len(to_plan), "chosen": str(chosen)}
        return CommandOutput(written, [f"{len(to_plan):,} prompts to plan for: {chosen}"])
    planned = read_predictions(predictions)
    sampled = sampled_plans(to_plan, planned, read_examples(plans.examples), samples, fewer, judge)
    if dry_run:
        pairs_asked = questions(sampled, order_check, seed)
        tokens = sum(len(message["content"]) for pair in pairs_asked for message in render(pair)) // 4
        value = {"prompts": len(sampled), "calls": len(pairs_asked), "prompt_tokens": tokens}
        calls = f"{len(pairs_asked):,} calls, about {tokens:,} tokens of prompts."
        return CommandOutput(value, [f"{len(sampled):,} prompts: {calls}"])
    if plans.output is None:
        raise InputError("--output is missing: the scores file to write; or give --dry-run.")
    if not model.model:
        raise InputError(
            "--judge is missing: name the model at the endpoint (the paper's is Gemini-3.1-Pro), or proxy."
        )
    spent: dict[str, float | None] = {}
    asking: DiversityJudge
    if model.model == PROXY:
        asking = ProxyDiversityJudge(open_embed(encoder), encoder)
        pairs = compare_plans(asking, sampled, order_check, seed, console.progress())
    else:
        with _asked_model(with_cache(model, plans.output)) as engine:
            asking = LlmDiversityJudge(engine, model.model, judge)
            pairs = compare_plans(asking, sampled, order_check, seed, console.progress())
            spent = engine.ledger.numbers()
    identity = replace(asking.identity, settings=asking.identity.settings | {"history": judge.history})
    measure = DiversityMeasure(identity, samples)
    settings = {"prompts": prompts, "samples": samples, "order_check": order_check, "seed": seed}
    measure.settings = {name: str(value) for name, value in settings.items()}
    fewer_plans = sum(len(prompt.plans) < samples for prompt in sampled)
    lost = len(to_plan) - len(sampled)
    left_out = {"prompts with fewer samples": fewer_plans, "prompts without two samples": lost}
    rows, planned_for = [pair.row() for pair in pairs], [prompt.example for prompt in sampled]
    decoding = distinct_decodings(plan.decoding for plan in planned)
    system = plans.system or predictions.stem
    scores = summarise(measure, system, rows, planned_for, seed, spent, left_out, decoding)
    return plans.show(scores, rows)
