"""The options of whatever asks a judge, and the judge that they open."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from recipe.cli import endpoint_options as endpoints
from recipe.cli.local_model import model_identity
from recipe.errors import InputError

if TYPE_CHECKING:
    from recipe.config import JudgeConfig
    from recipe.engines.ledger import Ledger
    from recipe.engines.protocol import Engine
    from recipe.evaluation.judge import Judge

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
        from recipe.evaluation.proxy import ProxyJudge

        encode = open_encoder(EncoderConfig(name=asked.encoder)).encode
        yield Opened(ProxyJudge(encode, asked.encoder))
        return
    from recipe.evaluation.judge import LlmJudge

    with asking(asked) as model:
        judge = LlmJudge(model.engine, asked.judge or PAPERS, asked.config, model.ledger)
        yield Opened(judge, judge.ledger)


@contextmanager
def asking(asked: Asked) -> Iterator[Model]:
    """The model that the options name, within the budget that they give; raises InputError where they name none."""
    from recipe.engines.budget import Budget, BudgetEngine

    budget = None if asked.max_calls is None else Budget(calls=asked.max_calls)
    with _model(asked) as model:
        yield model if budget is None else model._replace(engine=BudgetEngine(model.engine, budget))


@contextmanager
def _model(asked: Asked) -> Iterator[Model]:
    if asked.endpoint is not None:
        from recipe.engines.endpoint import EndpointEngine

        with EndpointEngine(asked.endpoint.config(asked.judge or PAPERS), asked.cache) as remote:
            yield Model(remote, remote.ledger)
    elif asked.judge not in ("", PAPERS):
        from recipe.engines.cache import AnswerCache
        from recipe.engines.kept import KeptEngine
        from recipe.engines.local import LocalEngine

        engine = LocalEngine(asked.judge, asked.revision, asked.device)
        identity = model_identity(asked.judge, asked.revision, AnswerCache(asked.cache))
        yield Model(KeptEngine(engine, identity, asked.cache))
    else:
        raise InputError("--endpoint is missing: the judge's address; or give --judge proxy, or a model folder.")
