"""`recipe evaluate judge`: plans by the paper's rubric."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer
from rich.markup import escape
from rich.table import Table

from recipe.cli import console
from recipe.cli import endpoint_options as endpoints
from recipe.cli.evaluate import judge_options as options
from recipe.errors import ComputeError, InputError

if TYPE_CHECKING:
    from recipe.config import JudgeConfig
    from recipe.evaluation.cases import Case
    from recipe.evaluation.judge import Estimate
    from recipe.evaluation.results import Interval
    from recipe.evaluation.scores import ControlScores, DatasetScores, JudgeScores
    from recipe.types import Example


def judge(
    predictions: Annotated[Path, typer.Argument(help="Predictions, JSON lines.")],
    examples: Annotated[Path, typer.Option(help="The examples that were planned for.")],
    split: Annotated[str, typer.Option(help="Only predictions for examples of this split.")] = "",
    output: Annotated[Path | None, typer.Option(help="Scores file to write, JSON; verdicts lie beside it.")] = None,
    system: Annotated[str, typer.Option(help="Name of what planned. Default: the file's.")] = "",
    judge: options.Who = "",
    encoder: options.Encoder = "minilm",
    samples: Annotated[
        Literal["first", "all"], typer.Option(help="The first sample of each example (Score@1), or every one.")
    ] = "first",
    missing: Annotated[
        Literal["zero", "refuse"], typer.Option(help="Examples without a prediction: empty plans, or an error.")
    ] = "zero",
    controls: Annotated[int, typer.Option(min=0, help="Examples whose control plans are judged, too.")] = 50,
    repeats: options.Repeats = 1,
    reasks: options.Reasks = 1,
    temperature: options.Temperature = 0.0,
    max_tokens: options.MaxTokens = 512,
    seed: Annotated[int, typer.Option(help="Of the judge's samples, the controls and the bootstrap.")] = 0,
    max_calls: options.MaxCalls = None,
    cache: options.Cache = None,
    revision: options.Revision = None,
    device: options.Device = None,
    batch_size: options.BatchSize = 16,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would be asked, and ask nothing.")] = False,
    show_prompt: Annotated[bool, typer.Option("--show-prompt", help="Print the first prompt, and ask nothing.")] = (
        False
    ),
    endpoint: endpoints.Url = None,
    key_variable: endpoints.KeyVariable = None,
    concurrency: endpoints.Concurrency = 16,
    timeout: endpoints.Timeout = 180.0,
    tries: endpoints.Tries = 6,
    token_limit: endpoints.TokenLimit = "max_tokens",
    no_seed: endpoints.NoSeed = False,
    structured: endpoints.Structured = "auto",
    price_in: endpoints.PriceIn = None,
    price_out: endpoints.PriceOut = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge plans by six criteria against the reference, beside control plans that tell how far to trust the judge.

    Example: recipe evaluate judge plans.jsonl --examples test.jsonl --endpoint http://localhost:8000/v1 --output j.json

    Example: recipe evaluate judge plans.jsonl --examples test.jsonl --judge proxy --output proxy.json
    """
    from recipe.artifacts import require_writable
    from recipe.config import JudgeConfig
    from recipe.evaluation.scores import rows_path

    config = JudgeConfig(
        temperature=temperature,
        max_tokens=max_tokens,
        seed=seed,
        repeats=repeats,
        reasks=reasks,
        batch_size=batch_size,
    )
    asks = not (dry_run or show_prompt)
    if asks and output is None:
        raise InputError("--output is missing: the scores file to write; or give --dry-run or --show-prompt.")
    if output is not None:
        require_writable(output)
        require_writable(rows_path(output))
    asked = _read(predictions, examples, split, samples, missing, controls, config)
    if not asks:
        _foretell(asked.cases, config, show_prompt, price_in, json)
        return
    assert output is not None
    told_by = None
    if endpoint is not None:
        told_by = endpoints.Asked(
            endpoint,
            key_variable,
            concurrency,
            timeout,
            tries,
            "images",
            token_limit,
            no_seed,
            price_in,
            price_out,
            structured,
        )
    who = options.Asked(
        judge, encoder, told_by, config, endpoints.cache_folder(cache, output), revision, device, max_calls
    )
    scores = _judge(asked, who, output, system or predictions.stem)
    if json:
        from recipe.evaluation.results import to_json

        console.print_json(to_json(scores))
    else:
        _show(scores, rows_path(output))


class _Read(NamedTuple):
    """What is to be judged."""

    examples: "list[Example]"
    cases: "list[Case]"
    left_out: dict[str, int]


def _read(
    predictions: Path,
    examples: Path,
    split: str,
    samples: Literal["first", "all"],
    missing: Literal["zero", "refuse"],
    controls: int,
    config: "JudgeConfig",
) -> _Read:
    from recipe.data.examples import read_examples
    from recipe.evaluation.cases import cases_of
    from recipe.evaluation.controls import control_cases
    from recipe.planning.predictions import read_predictions

    asked = read_examples(examples, split)
    known = read_examples(examples) if split else asked
    own = cases_of(asked, read_predictions(predictions), known, missing, samples, config)
    left_out = {"other splits": own.elsewhere, "further samples": own.unused}
    return _Read(asked, own.cases + control_cases(asked, controls, config.seed), left_out)


def _judge(asked: _Read, who: options.Asked, output: Path, system: str) -> "JudgeScores":
    """Ask the judge, and write scores and verdicts."""
    from recipe.evaluation.judged import judge_scores
    from recipe.evaluation.scores import rows_path, write_scores
    from recipe.evaluation.verdicts import write_verdicts

    with options.opened(who) as opened:
        try:
            judged = opened.judge.judge(asked.cases, console.progress())
        except ComputeError as error:
            kept = "answers that came are kept, and the same command goes on from there"
            raise ComputeError(f"{str(error).removesuffix('.')}; {kept}.") from error
        scores = judge_scores(
            system, opened.judge.identity, asked.examples, judged, who.config.seed, opened.spent(), asked.left_out
        )
    write_verdicts(rows_path(output), judged)
    write_scores(output, scores)
    return scores


def _foretell(cases: "list[Case]", config: "JudgeConfig", whole: bool, price: float | None, json: bool) -> None:
    """Show what an LLM would be asked: the first prompt, or how much it is."""
    from recipe.engines.ledger import Prices
    from recipe.evaluation.judge import estimate

    found = estimate(cases, config)
    if whole:
        if json:
            console.print_json(found.first)
            return
        for message in found.first:
            console.out.print(f"--- {message['role']} ---", markup=False, highlight=False)
            console.out.print(message["content"], markup=False, highlight=False, soft_wrap=True)
        return
    cost = Prices(price).cost(found.prompt_tokens, 0)
    if json:
        counted = {"calls": found.calls, "prompt_tokens": found.prompt_tokens, "by_rule": found.by_rule}
        console.print_json(counted | {"cost": cost})
        return
    console.out.print(_foretold(found, cost), highlight=False, soft_wrap=True)


def _foretold(found: "Estimate", cost: float | None) -> str:
    priced = "" if cost is None else f", at a cost of about {cost:,.2f} before answers"
    return (
        f"{found.calls:,} calls, about {found.prompt_tokens:,} tokens of prompts{priced}; "
        f"{found.by_rule:,} plans score 0 by rule."
    )


_HEADINGS = ("logic", "time", "space", "continue", "clarity", "semantics")
"""The criteria, in a table that fits a terminal."""


def _show(scores: "JudgeScores", rows: Path) -> None:
    repeats = f", {scores.repeats} verdicts each" if scores.repeats > 1 else ""
    accuracy = _table(
        f"{scores.system}, judged by {scores.judge.name}{repeats}: percent",
        ("accuracy", "95% interval", "plans", "unscored"),
    )
    criteria = _table("The six criteria: 0 to 5", _HEADINGS)
    for dataset in scores.datasets:
        name = dataset.dataset or "no dataset"
        accuracy.add_row(escape(f"{name}{f' ({dataset.split})' if dataset.split else ''}"), *_accuracy(dataset))
        criteria.add_row(escape(name), *_criteria(dataset))
    for macro in scores.macro:
        accuracy.add_row(f"macro: {macro.split}", *_interval(macro.accuracy), style="bold")
    accuracy.add_section()
    criteria.add_section()
    for control in scores.controls:
        accuracy.add_row(f"control: {control.name}", *_accuracy(control))
        criteria.add_row(f"control: {control.name}", *_criteria(control))
    console.out.print(accuracy, criteria)
    for line in _lines(scores, rows):
        console.out.print(line, highlight=False, markup=False, soft_wrap=True)


def _table(title: str, headings: tuple[str, ...]) -> Table:
    table = Table(title=escape(title))
    table.add_column("")
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _interval(value: "Interval | None") -> list[str]:
    from recipe.evaluation.formats import format_number

    if value is None:
        return ["none", ""]
    if value.low is None or value.high is None:
        return [format_number(value.mean, 1), ""]
    return [format_number(value.mean, 1), f"{format_number(value.low, 1)} to {format_number(value.high, 1)}"]


def _accuracy(row: "DatasetScores | ControlScores") -> list[str]:
    return [*_interval(row.accuracy), f"{row.counts.plans:,}", f"{row.counts.unscored:,}"]


def _criteria(row: "DatasetScores | ControlScores") -> list[str]:
    from recipe.evaluation.formats import format_number

    return [format_number(value.mean, 1) for value in row.criteria.values()]


def _lines(scores: "JudgeScores", rows: Path) -> list[str]:
    """What the table does not say: counts, the controls' findings, cost."""
    total = {
        name: sum(getattr(dataset.counts, name) for dataset in scores.datasets)
        for name in ("missing", "empty", "shortened", "unscored")
    }
    lines = [
        f"{total['missing']:,} missing and {total['empty']:,} empty plans score 0 by rule; "
        f"{total['shortened']:,} were shown shortened."
    ]
    if total["unscored"]:
        lines.append(f"{total['unscored']:,} are unscored, which is not 0: {rows.name} tells why.")
    if scores.left_out:
        lines.append(f"Not judged: {', '.join(f'{count:,} of {name}' for name, count in scores.left_out.items())}.")
    if scores.repeat_deviation is not None:
        lines.append(f"Standard deviation of a plan's repeats: {scores.repeat_deviation:.1f} points.")
    lines += scores.findings
    told = [
        f"{name.replace('_', ' ')} {f'{value:,.4f}' if isinstance(value, float) else f'{value:,}'}"
        for name, value in scores.ledger.items()
        if value is not None
    ]
    return [*lines, f"Asked: {', '.join(told)}."] if told else lines
