"""`recipe vpa plan`: the next actions of CrossTask's samples, by VidAssist or a baseline beside it."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from recipe.cli import console
from recipe.cli import endpoint_options as endpoints
from recipe.cli.vpa.ablations import run_ablations, show_ablations
from recipe.cli.vpa.models import Asked, Named
from recipe.cli.vpa.planned import planned
from recipe.cli.vpa.protocol_options import Order, ProtocolName, RuleName
from recipe.cli.vpa.samples import Source, read_samples
from recipe.cli.vpa.written import Files, write_plans
from recipe.errors import InputError

_SEARCH, _SAMPLES, _COST = "How actions are chosen", "What is planned for", "Bounds and kept answers"


def _search(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_SEARCH, **more)


def _samples(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_SAMPLES, **more)


def _cost(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_COST, **more)


def _left(without: list[str]) -> list[str]:
    """The value functions that are not left out."""
    from recipe.planning.vidassist.settings import VALUES

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
    from recipe.engines.budget import Budget
    from recipe.planning.vidassist.settings import VidAssistConfig

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
