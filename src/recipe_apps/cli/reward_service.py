"""`recipe reward serve`: the reward over HTTP."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from recipe.cli.reward_options import Config, Folder, Method, Pool, service_token, settings


def serve(
    folder: Folder,
    method: Method = None,
    pool: Pool = None,
    config: Config = None,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 is all interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 takes a free one.")] = 8000,
    devices: Annotated[str, typer.Option(help="GPUs that hold the corpus and search it: cuda:0,cuda:1.")] = "",
    warm: Annotated[
        Path | None, typer.Option(help="Examples or procedures whose steps and pools are computed at the start.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token that clients must show; or set RECIPE_TOKEN.")
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Answer other machines without a token: only behind a proxy that asks for a login."
        ),
    ] = False,
    max_steps: Annotated[int, typer.Option(min=1, help="Steps of a plan or a history.")] = 200,
    max_completion: Annotated[int, typer.Option(min=1, help="Characters of a completion or a whole plan.")] = 200_000,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds in which a request must be scored.")] = 60.0,
) -> None:
    """Serve rewards over HTTP to trainers: our own /score, OpenRLHF's /get_reward, NeMo-Gym's /verify.

    If the corpus changes meanwhile, later requests use the new one.

    Example: recipe reward serve --corpus corpora/mine --port 8000
    """
    from recipe_apps.service.messages import ServiceSettings

    limits = ServiceSettings(max_steps=max_steps, max_completion=max_completion, timeout=timeout)
    token = service_token(token_file)
    reward = settings(config, method, pool)
    from functools import partial

    from recipe.cli.corpus import names
    from recipe.data.examples import read_training_examples
    from recipe.errors import require_packages

    examples = [] if warm is None else read_training_examples(warm)
    require_packages({"serve": "the reward service", "cpu": "corpus search"})
    from recipe.corpus.store import Corpus
    from recipe.reward.scorer import PromptGroup
    from recipe_apps.service.app import create_app
    from recipe_apps.service.process import ScoringProcess
    from recipe_apps.service.server import open_beside, open_verifier
    from recipe_apps.service.server import serve as run
    from recipe_apps.web.process import LOG_FORMAT, address_of, listen, require_guarded

    groups = [PromptGroup(example.goal, example.history, [example.continuation]) for example in examples]
    require_guarded(host, token is not None, insecure)
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    log = logging.getLogger(__name__)
    with listen(host, port) as bound:
        corpus = Corpus.open(folder)
        identity = corpus.manifest["id"]
        scorer = ScoringProcess(partial(open_verifier, folder, identity, reward, names(devices), groups))
        reopen = partial(open_beside, folder, reward, names(devices), groups)
        app = create_app(scorer, limits, token=token, warm=scorer.start, corpus=corpus, config=reward, reopen=reopen)
        log.info("serving %s (%s) at %s", folder, identity, address_of(host, bound))
        if problem := reward.contrast_problem(len(corpus)):
            log.warning("%s", problem)
        try:
            run(app, bound)
        finally:
            app.state.service.batcher.close()
