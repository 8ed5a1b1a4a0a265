"""`recipe evaluate judge`: plans by the paper's rubric, or by their critical failures."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from recipe.cli import console
from recipe.cli.evaluate import runner
from recipe.cli.flags import with_flags
from recipe.cli.models import beside, judge_flags, opened
from recipe.config import JudgeConfig, ModelConfig
from recipe.errors import InputError

if TYPE_CHECKING:
    from recipe.evaluation.judge.critical import FailurePrompt
    from recipe.evaluation.judge.llm import Judge
    from recipe.evaluation.judge.plans import Case
    from recipe.evaluation.scores import JudgeIdentity
    from recipe.models.costs import Ledger
    from recipe.models.model import Model
    from recipe.types import Example

PROXY = "proxy"
"""The judge that needs no model to ask."""
FAILURES = "critical-failures"
"""The rubric of How2Score."""
PAPERS = "meta-llama/Llama-3.3-70B-Instruct"
"""The paper's judge, and the default at an endpoint."""

Encoder = Annotated[str, typer.Option(help="With `--judge proxy`: encoder, minilm, hash:256, hub id or folder.")]


@contextmanager
def asked_model(settings: ModelConfig) -> "Iterator[Model]":
    """The model of a judge; raises InputError where the flags name none."""
    if settings.endpoint is None and settings.model in ("", PAPERS) and not settings.replay:
        raise InputError("--endpoint is missing: the judge's address; or give --judge proxy, or a model folder.")
    with opened(settings.model_copy(update={"model": settings.model or PAPERS})) as model:
        yield model


@contextmanager
def opened_judge(
    settings: ModelConfig, encoder: str, config: JudgeConfig, prompt: "FailurePrompt | None" = None
) -> "Iterator[tuple[Judge, Ledger | None]]":
    """The judge that the flags name, and the ledger of its model, if it asks one; by critical failures with a prompt.

    Raises InputError where they name none.
    """
    if prompt is not None:
        from recipe.evaluation.judge.critical import CriticalFailureJudge

        with asked_model(settings) as model:
            yield CriticalFailureJudge(model, settings.model or PAPERS, prompt, config), model.ledger
        return
    if settings.model == PROXY:
        from recipe.config import EncoderConfig
        from recipe.corpus.encoders import open_encoder
        from recipe.evaluation.judge.proxy import ProxyJudge

        yield ProxyJudge(open_encoder(EncoderConfig(name=encoder)).encode, encoder, config.history), None
        return
    from recipe.evaluation.judge.llm import LlmJudge

    with asked_model(settings) as model:
        yield LlmJudge(model, settings.model or PAPERS, config), model.ledger


@with_flags(JudgeConfig, "config", "How the judge is asked")
@judge_flags
def judge(
    predictions: Annotated[Path, typer.Argument(help="Predictions, JSON lines.")],
    examples: runner.Examples,
    split: runner.Split = "",
    output: Annotated[Path | None, typer.Option(help="Scores file to write, JSON; verdicts go beside it.")] = None,
    system: runner.System = "",
    rubric: Annotated[
        Literal["six-criteria", "critical-failures"],
        typer.Option(help="The paper's six criteria, or How2Score: the share of plans without a critical failure."),
    ] = "six-criteria",
    prompt: Annotated[
        Path | None,
        typer.Option(help="With critical-failures: the publisher's prompt file, prompts/judge.txt (docs/judge.md)."),
    ] = None,
    encoder: Encoder = "minilm",
    samples: Annotated[
        Literal["first", "all"], typer.Option(help="The first sample of each example (Score@1), or every one.")
    ] = "first",
    missing: runner.MissingPlans = "zero",
    histories: Annotated[
        Path | None,
        typer.Option(
            help="With --history perceived: Phi's histories, JSON lines. Default: told_history of --examples."
        ),
    ] = None,
    controls: Annotated[int, typer.Option(min=0, help="Examples whose control plans are judged, too.")] = 50,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be asked, and ask nothing.")] = False,
    show_prompt: Annotated[bool, typer.Option("--show-prompt", help="Print the first prompt, and ask nothing.")] = (
        False
    ),
    json: runner.AsJson = False,
    *,
    model_settings: ModelConfig,
    config: JudgeConfig,
) -> None:
    """Judge plans by six criteria against the reference, beside control plans that show how far to trust the judge.

    Example: recipe evaluate judge plans.jsonl --examples test.jsonl --endpoint http://localhost:8000/v1 --output j.json

    Example: recipe evaluate judge plans.jsonl --examples test.jsonl --judge proxy --output proxy.json

    Example: recipe evaluate judge plans.jsonl --examples how2bench.jsonl --rubric critical-failures --prompt judge.txt
    --endpoint http://localhost:8000/v1 --judge how2everything/how2judge --output failures.json
    """
    from recipe.data.examples import read_examples
    from recipe.evaluation.judge.critical import MAX_TOKENS
    from recipe.evaluation.judge.measures import CriticalFailuresMeasure, RubricMeasure
    from recipe.evaluation.judge.plans import cases_of, control_cases
    from recipe.evaluation.judge.verdicts import verdict_rows, write_verdicts
    from recipe.evaluation.measures import summarise
    from recipe.evaluation.scores import rows_path, write_scores
    from recipe.models.sampling import distinct_decodings
    from recipe.planning.predictions import read_predictions

    asked_for = _failure_prompt(rubric, prompt, model_settings)
    if asked_for is not None and "max_tokens" not in config.model_fields_set:
        config = config.model_copy(update={"max_tokens": MAX_TOKENS})  # as long as the publisher allows
    asks = not (dry_run or show_prompt)
    if asks and output is None:
        raise InputError("--output is missing: the scores file to write; or give --dry-run or --show-prompt.")
    runner.require_outputs(output)
    wanted = read_judged(examples, split, histories, config.history)
    known = read_examples(examples) if split else wanted
    planned = read_predictions(predictions)
    own = cases_of(wanted, planned, known, missing, samples, config)
    wanted = list({case.example.example_id: case.example for case in own.cases}.values())  # with the history shown
    cases = own.cases + control_cases(wanted, controls, config.seed)
    if not asks:
        _estimate(cases, config, asked_for, show_prompt, model_settings.price_in, json)
        return
    assert output is not None
    left_out = {"other splits": own.other_splits, "further samples": own.unused}
    with opened_judge(beside(model_settings, output), encoder, config, asked_for) as (asked, ledger):
        judged = asked.judge(cases, console.progress())
        spent = {} if ledger is None else ledger.numbers()
        identity = _with_references(asked.identity, wanted)
    measure = RubricMeasure(identity) if asked_for is None else CriticalFailuresMeasure(identity)
    decoding = distinct_decodings(one.decoding for one in planned)
    named = system or predictions.stem
    scores = summarise(measure, named, verdict_rows(judged), wanted, config.seed, spent, left_out, decoding)
    write_verdicts(rows_path(output), judged)
    write_scores(output, scores)
    runner.show(scores, output, json)


def read_judged(examples: Path, split: str, histories: Path | None, history: str) -> "list[Example]":
    """The examples of a file, with Phi's histories of another as `told_history`. Raises InputError."""
    from recipe.data.examples import read_examples
    from recipe.data.histories import read_histories, with_histories

    wanted = read_examples(examples, split)
    if histories is None:
        return wanted
    if history != "perceived":
        raise InputError("--histories goes with --history perceived; the judge reads the annotated history without it.")
    read = with_histories(wanted, read_histories(histories))
    return [replace(one, told_history=other.history) for one, other in zip(wanted, read, strict=True)]


def _with_references(identity: "JudgeIdentity", examples: "Sequence[Example]") -> "JudgeIdentity":
    """The identity with a hash of references in a model's words: verdicts on others are not comparable with these."""
    from recipe.artifacts import fingerprint

    if not any(one.worded for one in examples):
        return identity
    texts = [[one.example_id, one.goal, one.history, one.continuation] for one in examples]
    return replace(identity, settings=identity.settings | {"worded references": fingerprint(texts)[:12]})


def _failure_prompt(rubric: str, path: Path | None, settings: ModelConfig) -> "FailurePrompt | None":
    """The prompt of the rubric of critical failures; None for the six criteria. Raises InputError."""
    if rubric != FAILURES:
        if path is not None:
            raise InputError(f"--prompt goes with --rubric {FAILURES}; the prompt of the six criteria is fixed.")
        return None
    from recipe.evaluation.judge.critical import FailurePrompt

    if settings.model == PROXY:
        raise InputError(f"--judge proxy has no rubric {FAILURES}; name a model or an endpoint.")
    if path is None:
        remedy = "download prompts/judge.txt of github.com/lilakk/how2everything and give its path"
        raise InputError(f"--prompt is missing: the file that asks for critical failures; {remedy}.")
    return FailurePrompt.read(path)


def _estimate(
    cases: "list[Case]",
    config: JudgeConfig,
    prompt: "FailurePrompt | None",
    whole: bool,
    price: float | None,
    json: bool,
) -> None:
    """Show what an LLM would be asked: the first prompt, or how much it is."""
    from recipe.evaluation.judge.llm import estimate
    from recipe.models.costs import Prices

    found = estimate(cases, config) if prompt is None else estimate(cases, config, prompt.chat)
    if whole:
        if json:
            console.print_json(found.first)
            return
        for message in found.first:
            console.print_lines(f"--- {message['role']} ---", message["content"])
        return
    cost = Prices(price).cost(found.prompt_tokens, 0)
    if json:
        counted: dict[str, Any] = {
            "calls": found.calls, "prompt_tokens": found.prompt_tokens, "by_rule": found.by_rule, "cost": cost
        }  # fmt: skip
        console.print_json(counted)
        return
    priced = "" if cost is None else f", at a cost of about {cost:,.2f} before answers"
    line = (
        f"{found.calls:,} calls, about {found.prompt_tokens:,} tokens of prompts{priced}; "
        f"{found.by_rule:,} plans {'score 0' if prompt is None else 'fail'} by rule."
    )
    console.print_lines(line)
