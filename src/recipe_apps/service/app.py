"""The endpoints of the reward service (docs/service.md), its token, and the watch over the corpus on disk.

The service maps the corpus's files and keeps them when the folder is replaced: rewards stay those of the corpus that it
began with, whatever lies in the folder later.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import from_json

from recipe import __version__
from recipe.config import RewardConfig
from recipe.corpus.layout import MANIFEST, open_manifest
from recipe.corpus.store import Corpus
from recipe.errors import CorpusError, MissingExtra
from recipe.reward.scorer import PromptGroup, Scorer
from recipe.reward.trainers.openrlhf import answer as openrlhf_answer
from recipe.types import Reward
from recipe_apps.service import nemo_gym, openrlhf
from recipe_apps.service.batching import Batcher
from recipe_apps.service.messages import ScoreRequest, ServiceSettings
from recipe_apps.service.metrics import ServiceMetrics
from recipe_apps.web.guard import Intake, body_schema, client_of, json_response, protect
from recipe_apps.web.refusals import FAILURES, Refusal, read

try:
    from fastapi import FastAPI, Request, Response
    from starlette.concurrency import run_in_threadpool
except ModuleNotFoundError as error:
    raise MissingExtra("the reward service", "serve") from error

_LOG = logging.getLogger(__name__)
_DEFAULTS = ServiceSettings()
_LOOK = 10.0
"""Seconds between two looks at the corpus's folder."""


class OnDisk(NamedTuple):
    """What the folder holds now."""

    id: str | None
    """None where there is no corpus that can be read."""
    replaced: bool


class RewardService:
    """What the endpoints share: the batcher, the limits, the counters, and the corpus that is served."""

    def __init__(
        self,
        scorer: Scorer,
        settings: ServiceSettings,
        warm: Callable[[], object] | None,
        corpus: Corpus | None,
        config: RewardConfig | None,
    ) -> None:
        self.settings, self.config = settings, config
        self.metrics, self.intake = ServiceMetrics(), Intake(settings.max_body)
        self.batcher = Batcher(scorer, settings, self.metrics, warm)
        self.draining = False
        self._corpus = corpus
        self._watch = None if corpus is None else CorpusWatch(corpus.folder, corpus.manifest["id"])
        if corpus is not None:
            self.metrics.corpus(corpus.manifest["id"])
        self.metrics.follow(lambda: self.batcher.waiting, lambda: float(self.unready is None))

    @property
    def unready(self) -> str | None:
        """Why requests should go elsewhere; None where they are welcome."""
        return "Draining: accepted requests are being finished." if self.draining else self.batcher.unready

    async def rewards(self, request: Request, groups: Sequence[PromptGroup]) -> list[list[Reward]]:
        """The rewards of each group's plans. Raises Refusal."""
        client = client_of(request.client)
        return await self.batcher.rewards(groups, request.is_disconnected, client) if groups else []

    def on_disk(self) -> OnDisk | None:
        """What the corpus's folder holds now; None where there is no corpus."""
        held = None if self._watch is None else self._watch.look()
        if held is not None:
            self.metrics.replaced.set(held.replaced)
        return held

    async def keep_watch(self) -> None:
        """Look at the folder at intervals, so that a change is logged also where nobody asks."""
        while True:
            await asyncio.sleep(_LOOK)
            await run_in_threadpool(self.on_disk)

    def info(self) -> dict[str, Any]:
        """What is served, and by what settings."""
        about: dict[str, Any] = {
            "version": __version__,
            "verifier": None if self.config is None else self.config.model_dump(mode="json"),
            "limits": self.settings.model_dump(mode="json", exclude={"token"}),
            "corpus": None,
            "encoder": None,
        }
        held = self.on_disk()
        if self._corpus is None or held is None:
            return about
        manifest = self._corpus.manifest
        counts: dict[str, Any] = {name: manifest[name] for name in ("id", "narrations", "segments")}
        on_disk = held._asdict()
        folder = str(self._corpus.folder)
        counts["too_small"] = None if self.config is None else self.config.contrast_problem(manifest["narrations"])
        return about | {"corpus": {"folder": folder, **counts, "on_disk": on_disk}, "encoder": manifest["encoder"]}


def create_app(
    scorer: Scorer,
    settings: ServiceSettings = _DEFAULTS,
    *,
    warm: Callable[[], object] | None = None,
    corpus: Corpus | None = None,
    config: RewardConfig | None = None,
) -> FastAPI:
    """The service of a scorer, which begins to work when the application is started.

    `warm` is run before the service is ready; `/info` reports `corpus` and `config`, and the corpus's folder is
    watched.
    """
    service = RewardService(scorer, settings, warm, corpus, config)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.batcher.start()
        watching = asyncio.create_task(service.keep_watch())
        yield
        watching.cancel()
        await service.batcher.stop()

    app = FastAPI(title="recipe reward", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service
    _add_rewards(app, service)
    _add_state(app, service)
    protect(app, service.metrics, settings.token, "docs/service.md")
    return app


def _add_rewards(app: FastAPI, service: RewardService) -> None:
    intake = service.intake

    @app.post("/score", openapi_extra=body_schema(ScoreRequest.model_json_schema()))
    async def score(request: Request) -> Response:
        """The reward of one plan, or of several plans of one prompt, with all parts."""

        def understand() -> tuple[PromptGroup, bool]:
            asked = read(body, ScoreRequest)
            return asked.group(service.settings), asked.continuations is None

        async with intake.body(request) as body:
            group, single = await intake.work(understand, len(body))
        [rewards] = await service.rewards(request, [group]) if group.plans else [[]]
        return json_response({"reward": rewards[0]} if single else {"rewards": rewards})

    @app.post("/get_reward", openapi_extra=body_schema(openrlhf.GetReward.model_json_schema()))
    async def get_reward(request: Request) -> Response:
        """OpenRLHF's remote reward."""

        def understand() -> list[PromptGroup]:
            return openrlhf.groups(read(body, openrlhf.GetReward), service.settings)

        async with intake.body(request) as body:
            groups = await intake.work(understand, len(body))
        rewards = await service.rewards(request, groups)
        return json_response(openrlhf_answer([reward for [reward] in rewards]))

    @app.post("/verify", openapi_extra=body_schema(nemo_gym.VerifyRequest.model_json_schema()))
    async def verify(request: Request) -> Response:
        """NeMo-Gym's verification of a rollout; one that cannot be computed is marked as failed."""

        def understand() -> PromptGroup:
            return nemo_gym.group(read(body, nemo_gym.VerifyRequest), service.settings)

        def answer() -> Response:
            rollout = from_json(body)
            if isinstance(outcome, Refusal):
                return json_response(nemo_gym.failure(rollout, outcome))
            return json_response(nemo_gym.verdict(rollout, outcome))

        async with intake.body(request) as body:
            group = await intake.work(understand, len(body))
            outcome: Reward | Refusal
            try:
                [[outcome]] = await service.rewards(request, [group])
            except Refusal as refusal:
                if refusal.code not in FAILURES:
                    raise
                service.metrics.failed(refusal.code)
                outcome = refusal
            return await intake.work(answer, len(body))

    @app.post("/seed_session")
    async def seed_session() -> dict[str, str]:
        """NeMo-Gym's start of a rollout: this service keeps no sessions."""
        return {}

    @app.get("/reverify_mode")
    async def reverify_mode() -> str:
        """A stored rollout may be verified again at any time."""
        return "stateless"


def _add_state(app: FastAPI, service: RewardService) -> None:
    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process answers."""
        return {"status": "alive"}

    @app.get("/readyz")
    async def readyz() -> dict[str, str]:
        """Requests are welcome; 503 with the reason where they are not."""
        if service.unready is not None:
            raise Refusal("not_ready", service.unready)
        return {"status": "ready"}

    @app.get("/metrics")
    async def metrics() -> Response:
        """Counters in Prometheus's format."""
        await run_in_threadpool(service.on_disk)
        return service.metrics.response()

    @app.get("/info")
    async def info() -> Response:
        """What is served, by what settings, and whether the folder on disk holds another corpus now."""
        return json_response(await run_in_threadpool(service.info))


class CorpusWatch:
    """Compares the corpus in a folder with the one that was opened there, reading the manifest when it has changed."""

    def __init__(self, folder: Path, served: str) -> None:
        self.folder, self.served = folder, served
        self._stamp = self._stat()
        self._held = OnDisk(served, False)

    def look(self) -> OnDisk:
        """What the folder holds now; a change is logged once."""
        if (stamp := self._stat()) == self._stamp:
            return self._held
        self._stamp, before = stamp, self._held
        try:
            identity: str | None = open_manifest(self.folder)["id"]
        except (CorpusError, OSError):
            identity = None
        self._held = OnDisk(identity, identity != self.served)
        if self._held == before:
            return self._held
        if not self._held.replaced:
            _LOG.warning("%s holds the corpus that is served again", self.folder)
        else:
            held = "no readable corpus" if identity is None else f"corpus {identity}"
            advice = "restart it to serve the corpus that is there now"
            _LOG.warning("%s now holds %s; the service continues with %s: %s", self.folder, held, self.served, advice)
        return self._held

    def _stat(self) -> tuple[int, int, int] | None:
        try:
            status = (self.folder / MANIFEST).stat()
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns
