"""`recipe evaluate judge`: plans by the paper's rubric."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer
from rich.markup import escape
from rich.table import Table

from recipe.cli import console
from recipe.cli import models as endpoints
from recipe.cli.models import model_identity
from recipe.errors import ComputeError, InputError

if TYPE_CHECKING:
    from recipe.config import JudgeConfig
    from recipe.evaluation.judge.llm import Estimate, Judge
    from recipe.evaluation.judge.plans import Case
    from recipe.evaluation.scores import ControlScores, DatasetScores, JudgeScores
    from recipe.models.protocol import Engine
    from recipe.models.wrappers import Ledger
    from recipe.stats import Interval
    from recipe.types import Example

# The options of whatever asks a judge, and the judge that they open.


PROXY = "proxy"
"""The judge that needs no model to ask."""

Who = Annotated[
    str,
    typer.Option(
        "--judge",
        help="Judge: its name at the endpoint, a model folder or hub id, or `proxy`. "
        "Default at an endpoint: meta-llama/Llama-3.3-70B-Instruct, the paper's.",
    ),
]
Encoder = Annotated[str, typer.Option(help="With `--judge proxy`: encoder, minilm, hash:256, hub id or folder.")]
Repeats = Annotated[int, typer.Option(min=1, help="Verdicts asked for each plan.")]
Reasks = Annotated[int, typer.Option(min=0, help="How often an answer that cannot be read is asked for again.")]
Temperature = Annotated[float, typer.Option(min=0, help="Of the judge; 0 is greedy.")]
MaxTokens = Annotated[int, typer.Option(min=1, help="Longest answer; a judge that thinks aloud needs more.")]
Cache = Annotated[Path | None, typer.Option(help="Folder of answers, shared by systems. Default: OUTPUT.cache.")]
MaxCalls = Annotated[
    int | None, typer.Option(min=0, help="Answers to pay for at most; what came is kept for the next run.")
]
Revision = Annotated[str | None, typer.Option(help="Revision of a judge that is a hub id.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Prompts that a judge on this machine reads at once.")]
Device = Annotated[str | None, typer.Option(help="Where a judge on this machine computes, such as cuda:1.")]

PAPERS = "meta-llama/Llama-3.3-70B-Instruct"
"""The paper's judge."""


class Asked(NamedTuple):
    """Who judges, and how it is asked."""

    judge: str
    encoder: str
    endpoint: endpoints.Asked | None
    config: "JudgeConfig"
    cache: Path
    revision: str | None = None
    device: str | None = None
    max_calls: int | None = None


class Opened(NamedTuple):
    """A judge that is ready, and its ledger, if it keeps one."""

    judge: "Judge"
    ledger: "Ledger | None" = None

    def spent(self) -> dict[str, float | None]:
        """Answers, tokens and cost so far, empty where nothing is asked."""
        return spent(self.ledger)


def spent(ledger: "Ledger | None") -> dict[str, float | None]:
    """What a ledger counts, as numbers; empty without one."""
    told = {} if ledger is None else ledger.to_json()
    return {name: value for name, value in told.items() if name != "structured"}


class Model(NamedTuple):
    """The engine that asks the model of a judge, and its ledger, if it keeps one."""

    engine: "Engine"
    ledger: "Ledger | None" = None


@contextmanager
def opened(asked: Asked) -> Iterator[Opened]:
    """The judge that the options name; raises InputError where they name none."""
    if asked.judge == PROXY:
        from recipe.config import EncoderConfig
        from recipe.corpus.encoders import open_encoder
        from recipe.evaluation.judge.proxy import ProxyJudge

        encode = open_encoder(EncoderConfig(name=asked.encoder)).encode
        yield Opened(ProxyJudge(encode, asked.encoder))
        return
    from recipe.evaluation.judge.llm import LlmJudge

    with asking(asked) as model:
        judge = LlmJudge(model.engine, asked.judge or PAPERS, asked.config, model.ledger)
        yield Opened(judge, judge.ledger)


@contextmanager
def asking(asked: Asked) -> Iterator[Model]:
    """The model that the options name, within the budget that they give; raises InputError where they name none."""
    from recipe.models.wrappers import Budget, BudgetEngine

    budget = None if asked.max_calls is None else Budget(calls=asked.max_calls)
    with _model(asked) as model:
        yield model if budget is None else model._replace(engine=BudgetEngine(model.engine, budget))


@contextmanager
def _model(asked: Asked) -> Iterator[Model]:
    if asked.endpoint is not None:
        from recipe.models.endpoint import EndpointEngine

        with EndpointEngine(asked.endpoint.config(asked.judge or PAPERS), asked.cache) as remote:
            yield Model(remote, remote.ledger)
    elif asked.judge not in ("", PAPERS):
        from recipe.models.local import LocalEngine
        from recipe.models.wrappers import AnswerCache, KeptEngine

        engine = LocalEngine(asked.judge, asked.revision, asked.device)
        identity = model_identity(asked.judge, asked.revision, AnswerCache(asked.cache))
        yield Model(KeptEngine(engine, identity, asked.cache))
    else:
        raise InputError("--endpoint is missing: the judge's address; or give --judge proxy, or a model folder.")


# `recipe evaluate judge`: plans by the paper's rubric.


def judge(
    predictions: Annotated[Path, typer.Argument(help="Predictions, JSON lines.")],
    examples: Annotated[Path, typer.Option(help="The examples that were planned for.")],
    split: Annotated[str, typer.Option(help="Only predictions for examples of this split.")] = "",
    output: Annotated[Path | None, typer.Option(help="Scores file to write, JSON; verdicts lie beside it.")] = None,
    system: Annotated[str, typer.Option(help="Name of what planned. Default: the file's.")] = "",
    judge: Who = "",
    encoder: Encoder = "minilm",
    samples: Annotated[
        Literal["first", "all"], typer.Option(help="The first sample of each example (Score@1), or every one.")
    ] = "first",
    missing: Annotated[
        Literal["zero", "refuse"], typer.Option(help="Examples without a prediction: empty plans, or an error.")
    ] = "zero",
    controls: Annotated[int, typer.Option(min=0, help="Examples whose control plans are judged, too.")] = 50,
    repeats: Repeats = 1,
    reasks: Reasks = 1,
    temperature: Temperature = 0.0,
    max_tokens: MaxTokens = 512,
    seed: Annotated[int, typer.Option(help="Of the judge's samples, the controls and the bootstrap.")] = 0,
    max_calls: MaxCalls = None,
    cache: Cache = None,
    revision: Revision = None,
    device: Device = None,
    batch_size: BatchSize = 16,
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
    who = Asked(judge, encoder, told_by, config, endpoints.cache_folder(cache, output), revision, device, max_calls)
    scores = _judge(asked, who, output, system or predictions.stem)
    if json:
        from recipe.artifacts import to_json

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
    from recipe.evaluation.judge.plans import cases_of, control_cases
    from recipe.planning.predictions import read_predictions

    asked = read_examples(examples, split)
    known = read_examples(examples) if split else asked
    own = cases_of(asked, read_predictions(predictions), known, missing, samples, config)
    left_out = {"other splits": own.elsewhere, "further samples": own.unused}
    return _Read(asked, own.cases + control_cases(asked, controls, config.seed), left_out)


def _judge(asked: _Read, who: Asked, output: Path, system: str) -> "JudgeScores":
    """Ask the judge, and write scores and verdicts."""
    from recipe.evaluation.judge.verdicts import judge_scores, write_verdicts
    from recipe.evaluation.scores import rows_path, write_scores

    with opened(who) as model:
        try:
            judged = model.judge.judge(asked.cases, console.progress())
        except ComputeError as error:
            kept = "answers that came are kept, and the same command goes on from there"
            raise ComputeError(f"{str(error).removesuffix('.')}; {kept}.") from error
        scores = judge_scores(
            system, model.judge.identity, asked.examples, judged, who.config.seed, model.spent(), asked.left_out
        )
    write_verdicts(rows_path(output), judged)
    write_scores(output, scores)
    return scores


def _foretell(cases: "list[Case]", config: "JudgeConfig", whole: bool, price: float | None, json: bool) -> None:
    """Show what an LLM would be asked: the first prompt, or how much it is."""
    from recipe.evaluation.judge.llm import estimate
    from recipe.models.wrappers import Prices

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
    from recipe.report.numbers import format_number

    if value is None:
        return ["none", ""]
    if value.low is None or value.high is None:
        return [format_number(value.mean, 1), ""]
    return [format_number(value.mean, 1), f"{format_number(value.low, 1)} to {format_number(value.high, 1)}"]


def _accuracy(row: "DatasetScores | ControlScores") -> list[str]:
    return [*_interval(row.accuracy), f"{row.counts.plans:,}", f"{row.counts.unscored:,}"]


def _criteria(row: "DatasetScores | ControlScores") -> list[str]:
    from recipe.report.numbers import format_number

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
