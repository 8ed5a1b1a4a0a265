"""`recipe serve`: the planner page."""

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import Field

from recipe.cli.flags import SettingsTable, with_settings
from recipe.cli.models import ASKED, FLAGS, SEARCH, open_for_command, phi_settings, require_searchable
from recipe.cli.reward_options import Method, service_token, settings
from recipe.config import FrameConfig, ModelConfig, PhiConfig, SamplingConfig, SearchConfig, Settings
from recipe.errors import InputError, require_packages

if TYPE_CHECKING:
    from recipe.models.model import Model

# Where `make demo` writes.
_DEMO = Path("runs/demo")
# Goals that the page offers.
_OFFERED = 6
# Parameters below which several threads only slow each other down on a processor.
_SMALL = 200_000_000


class PageSettings(Settings):
    """How much one visitor may take."""

    per_address: Annotated[int, Field(ge=0)] = 0
    """Readers of events and runs that wait, of one address at once; 0: half of all. Behind a proxy all visitors share
    one address."""


@with_settings(
    model=SettingsTable(ModelConfig, FLAGS, ASKED, defaults={"model": ""}),
    sampling=SettingsTable(SamplingConfig, ("temperature", "max_tokens", "seed"), "How plans are sampled"),
    search=SEARCH,
    frames=SettingsTable(FrameConfig),
    page=SettingsTable(PageSettings),
)
def serve(
    corpus: Annotated[Path | None, typer.Option(help="Corpus folder: each step is shown with its narrations.")] = None,
    method: Method = None,
    config: Annotated[
        Path | None, typer.Option(help="Reward settings, a TOML file. Default: the grounded reward.")
    ] = None,
    phi: Annotated[str | None, typer.Option(help="Model that reads clips for a planner that reads text.")] = None,
    phi_endpoint: Annotated[str | None, typer.Option(help="Address of the endpoint that serves --phi.")] = None,
    reads_video: Annotated[
        bool, typer.Option("--reads-video", help="The planner at --endpoint takes clips, such as a Qwen2.5-VL.")
    ] = False,
    prompt: Annotated[
        str,
        typer.Option(help="plain, one-example or a file (docs/planning.md). Default: what the model was trained with."),
    ] = "",
    examples: Annotated[
        Path | None, typer.Option(help="Examples or procedures whose goals and histories the page offers.")
    ] = None,
    link: Annotated[
        str, typer.Option(help="Links to videos, as in `recipe reward explain`; by source if left out.")
    ] = "",
    keep: Annotated[
        Path | None, typer.Option(help="Folder for what people say of plans; without it nothing is kept.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 is all interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 takes a free one.")] = 8001,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token that visitors must give; or set RECIPE_TOKEN.")
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Answer other machines without a token: only behind a proxy that asks for a login."
        ),
    ] = False,
    *,
    model: ModelConfig,
    sampling: SamplingConfig,
    search: SearchConfig,
    frames: FrameConfig,
    page: PageSettings,
) -> None:
    """Serve the planner page: type a goal, watch the plan being written, see which narrations support each step.

    Without --model it runs on the planner and the corpus that `make demo` left in runs/demo. If the corpus changes
    meanwhile, later runs use the new one.

    Example: recipe serve --model runs/mine/model --corpus corpora/mine --port 8001
    """

    require_packages({"serve": "the planner page", "report": "the planner page", "cpu": "corpus search"})
    from recipe.corpus.store import Corpus
    from recipe_apps.serving.app import DRAIN_SECONDS, Served, create_app
    from recipe_apps.serving.feedback import FeedbackStore
    from recipe_apps.web.process import LOG_FORMAT, LOOPBACK, address_of, listen, require_guarded, run_service

    describing = phi_settings(model, phi, phi_endpoint)
    if describing is not None:  # smaller frames than a planner's, unless the size is given
        frames = PhiConfig().frames.model_copy(update=frames.model_dump(exclude_unset=True))
    if corpus is None and (method or config):
        raise InputError("--verifier and --config go with --corpus; give the corpus folder.")
    reward = settings(config, method or ("grounded" if config is None else None), None)
    default = ""
    if not model.model:
        if corpus is not None:
            raise InputError("--corpus goes with --model; leave both out for the demo's.")
        model, corpus, examples, default = _of_demo(model, examples)
    require_searchable(search, corpus)
    token = service_token(token_file)
    require_guarded(host, token is not None, insecure)
    offered = [] if examples is None else _goals(examples)
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # a line for each request to an endpoint
    log = logging.getLogger(__name__)
    from recipe.artifacts import locked
    from recipe.perception.phi import Phi
    from recipe.planning.planner import Planner
    from recipe.planning.search import PlanSearch
    from recipe.prompting import open_prompt

    template = open_prompt(prompt) if prompt else None
    with ExitStack() as stack:
        if keep is not None:
            stack.enter_context(locked(keep))
        feedback = None if keep is None else FeedbackStore(keep)
        bound = stack.enter_context(listen(host, port))
        writer = stack.enter_context(open_for_command(model, frames))
        describer = None if describing is None else stack.enter_context(open_for_command(describing, frames))
        evidence = None
        if corpus is not None:
            from recipe.explain.records import Links
            from recipe_apps.serving.evidence import open_evidence

            evidence = open_evidence(Corpus.open(corpus), reward, Links(link))
        at_endpoint = model.endpoint is not None
        if not at_endpoint:
            _few_threads(writer)
        planner, searching = Planner(writer, sampling, template), None
        if search.search != "none" and evidence is not None:
            searching = PlanSearch(planner, evidence.verifier, search)
        served = Served(
            planner=planner,
            model=_shown_name(model.model),
            sees_video=writer.reads_video or reads_video,
            phi=None if describer is None else Phi(describer, PhiConfig(frames=frames)),
            phi_name=_shown_name(phi or ""),
            evidence=evidence,
            search=searching,
            frames=frames,
            default=default,
            examples=offered,
            writers=model.concurrency if at_endpoint else 1,
            room=1 if at_endpoint else sampling.batch_size,
        )
        app = create_app(
            served, per_address=page.per_address, token=token, feedback=feedback, local_only=host in LOOPBACK
        )
        log.info("open %s", address_of(host, bound))
        run_service(app, bound, app.state.page.runs.close, DRAIN_SECONDS)


def _of_demo(given: ModelConfig, examples: Path | None) -> tuple[ModelConfig, Path, Path | None, str]:
    """Model, corpus, examples and a sentence about them, of the demo's run. Raises InputError where there is none."""
    model, corpus = _DEMO / "grpo" / "model", _DEMO / "corpus"
    if not model.is_dir() or not corpus.is_dir():
        raise InputError(f"there is no demo in {_DEMO}; run `make demo` first, or give --model and --corpus.")
    said = (
        "This is the demo's planner: a model of two million parameters that knows the tasks of a made-up world. "
        "A program wrote the narrations."
    )
    return given.model_copy(update={"model": str(model)}), corpus, examples or _DEMO / "data" / "test.jsonl", said


def _shown_name(model: str) -> str:
    """The name of a model for visitors: of a folder its last two parts, since the rest tells of this machine."""
    return "/".join(Path(model).parts[-2:]) if Path(model).is_dir() else model


def _goals(file: Path) -> list[tuple[str, tuple[str, ...]]]:
    """A few goals of a file of examples, each with the history of its first example."""
    from recipe.data.examples import read_examples

    first: dict[str, tuple[str, ...]] = {}
    for example in read_examples(file, questions=True):
        first.setdefault(example.goal, example.history)
    return list(first.items())[:_OFFERED]


def _few_threads(model: "Model") -> None:
    """One thread for a small model on a processor, unless the environment says how many."""
    import os

    import torch

    module = getattr(model.engine, "module", None)
    if module is None or "OMP_NUM_THREADS" in os.environ or module.device.type != "cpu":
        return
    if sum(parameter.numel() for parameter in module.parameters()) < _SMALL:
        torch.set_num_threads(1)
