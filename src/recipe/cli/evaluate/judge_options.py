"""The options of whatever asks a judge, and the judge that they open."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from recipe.cli import endpoint_options as endpoints
from recipe.cli.local_model import model_identity

if TYPE_CHECKING:
    from recipe.config import JudgeConfig
    from recipe.engines.ledger import Ledger
    from recipe.evaluation.judge import Judge

PROXY = "proxy"
"""The judge that needs no model to ask."""

Who = Annotated[
    str,
    typer.Option("--judge", help="Judge: its name at the endpoint, a model folder or hub id, or `proxy`."),
]
Encoder = Annotated[str, typer.Option(help="With `--judge proxy`: encoder, minilm, hash:256, hub id or folder.")]
Repeats = Annotated[int, typer.Option(min=1, help="Verdicts asked for each plan.")]
Reasks = Annotated[int, typer.Option(min=0, help="How often an answer that cannot be read is asked for again.")]
Temperature = Annotated[float, typer.Option(min=0, help="Of the judge; 0 is greedy.")]
MaxTokens = Annotated[int, typer.Option(min=1, help="Longest answer; a judge that thinks aloud needs more.")]
Cache = Annotated[Path | None, typer.Option(help="Folder of answers, shared by systems. Default: OUTPUT.cache.")]
Revision = Annotated[str | None, typer.Option(help="Revision of a judge that is a hub id.")]
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


class Opened(NamedTuple):
    """A judge that is ready, and its ledger, if it keeps one."""

    judge: "Judge"
    ledger: "Ledger | None" = None

    def spent(self) -> dict[str, float | None]:
        """Answers, tokens and cost so far, empty where nothing is asked."""
        told = {} if self.ledger is None else self.ledger.to_json()
        return {name: value for name, value in told.items() if name != "structured"}


@contextmanager
def opened(asked: Asked) -> Iterator[Opened]:
    """The judge that the options name."""
    if asked.judge == PROXY:
        from recipe.config import EncoderConfig
        from recipe.corpus.encoders import open_encoder
        from recipe.evaluation.proxy import ProxyJudge

        encode = open_encoder(EncoderConfig(name=asked.encoder)).encode
        yield Opened(ProxyJudge(encode, asked.encoder))
        return
    from recipe.evaluation.judge import LlmJudge

    if asked.endpoint is None:
        from recipe.engines.cache import AnswerCache
        from recipe.engines.kept import KeptEngine
        from recipe.engines.local import LocalEngine

        engine = LocalEngine(asked.judge, asked.revision, asked.device)
        identity = model_identity(asked.judge, asked.revision, AnswerCache(asked.cache))
        local = LlmJudge(KeptEngine(engine, identity, asked.cache), asked.judge, asked.config)
        yield Opened(local, local.ledger)
        return
    from recipe.engines.endpoint import EndpointEngine

    with EndpointEngine(asked.endpoint.config(asked.judge), asked.cache) as remote:
        yield Opened(LlmJudge(remote, asked.judge, asked.config, remote.ledger), remote.ledger)
