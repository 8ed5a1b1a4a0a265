"""The endpoints of the reward service (docs/trainers.md), its token, and the watch over the corpus on disk.

When the folder holds another corpus, such as after `recipe corpus add`, a scoring process of its own opens that one
while the old one still serves. Once it is warm, new requests are scored with it, and those accepted before with the
old one, so that none mixes the two. If it cannot be served, the old one stays: its files are kept.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pydantic import SecretStr

from recipe import __version__
from recipe.config import RewardConfig
from recipe.corpus.store import Corpus
from recipe.errors import MissingExtra, RecipeError
from recipe.reward.scorer import PromptGroup, Scorer
from recipe.reward.trainers.openrlhf import answer as openrlhf_answer
from recipe.types import Reward
from recipe_apps.service import nemo_gym, openrlhf
from recipe_apps.service.batching import Batcher
from recipe_apps.service.messages import MAX_BODY, QUEUE, ScoreRequest, ServiceSettings, score_group
from recipe_apps.service.metrics import ServiceMetrics
from recipe_apps.web.corpora import LOOK, CorpusWatch
from recipe_apps.web.guard import Intake, body_schema, client_of, json_response, protect
from recipe_apps.web.refusals import FAILURES, Refusal

try:
    from fastapi import FastAPI, Request, Response
    from starlette.concurrency import run_in_threadpool
except ModuleNotFoundError as error:
    raise MissingExtra("the reward service", "serve") from error

_LOG = logging.getLogger(__name__)
_DEFAULTS = ServiceSettings()
Reopen = Callable[[str], Scorer]
"""Opens and warms up the scorer of the corpus with this id, from the folder that is served."""


class RewardService:
    """What the endpoints share: the batcher, the limits, the counters, and the corpus that is served."""

    def __init__(
        self,
        scorer: Scorer,
        settings: ServiceSettings,
        warm: Callable[[], object] | None,
        corpus: Corpus | None,
        reopen: Reopen | None,
    ) -> None:
        self.settings, self.corpus, self._reopen = settings, corpus, reopen
        self.metrics, self.intake = ServiceMetrics(), Intake(MAX_BODY)
        self.batcher = Batcher(scorer, settings.timeout, self.metrics, warm)
        self.draining = False
        # The corpus that is served, by its id.
        self.served: str | None = None
        self.watch = None if corpus is None else CorpusWatch(corpus)
        # The last corpus that could not be served.
        self._refused: str | None = None
        if corpus is not None:
            self.served = corpus.manifest["id"]
            self.metrics.corpus.labels(self.served).set(1)
        self.metrics.gauge("queue_plans", "Plans that wait.", follow=lambda: self.batcher.waiting)
        self.metrics.gauge("ready", "1 where requests are welcome.", follow=lambda: float(self.unready is None))

    @property
    def unready(self) -> str | None:
        """Why requests should go elsewhere; None where they are welcome."""
        return "Draining: accepted requests are being finished." if self.draining else self.batcher.unready

    async def rewards(self, request: Request, groups: Sequence[PromptGroup]) -> list[list[Reward]]:
        """The rewards of each group's plans. Raises Refusal."""
        return await self.batcher.rewards(groups, request.is_disconnected, client_of(request.client))

    @property
    def replaced(self) -> bool:
        """Whether the folder no longer holds the corpus that is served."""
        return self.watch is not None and self.watch.on_disk != self.served

    def look(self) -> None:
        """Look what the corpus's folder holds now; a change is logged once."""
        if self.watch is None:
            return
        changed, on_disk = self.watch.look(), self.watch.on_disk
        self.metrics.replaced.set(self.replaced)
        if not changed:
            return
        if on_disk == self.served:
            _LOG.warning("%s holds the corpus that is served again", self.watch.folder)
            return
        held = "no readable corpus" if on_disk is None else f"corpus {on_disk}"
        advice = "restart it to serve the corpus that is there now"
        if on_disk is None:
            advice = "it looks again every second"
        elif self._reopen is not None:
            advice = "the other one is opened, too"
        _LOG.warning("%s now holds %s; the service continues with %s: %s", self.watch.folder, held, self.served, advice)

    def take_over(self) -> None:
        """Serve the corpus that the folder holds now, where it is another; where it cannot be, say why, once."""
        watch, reopen = self.watch, self._reopen
        identity = None if watch is None else watch.on_disk
        if watch is None or reopen is None or identity in (None, self.served, self._refused) or self.draining:
            return
        try:
            scorer = reopen(identity)
            corpus = Corpus.open(watch.folder)
        except (RecipeError, OSError) as error:
            self._refused = identity
            _LOG.warning("%s: corpus %s cannot be served, and %s stays: %s", watch.folder, identity, self.served, error)
            return
        self.batcher.replace(scorer)
        self.metrics.corpus.labels(self.served).set(0)
        self.metrics.corpus.labels(identity).set(1)
        _LOG.warning("%s: corpus %s is served from now on, in place of %s", watch.folder, identity, self.served)
        self.corpus, self.served = corpus, identity
        self.metrics.replaced.set(self.replaced)

    async def keep_looking(self) -> None:
        """Look at the folder at intervals, and serve what it holds."""
        while True:
            await asyncio.sleep(LOOK)
            await run_in_threadpool(self.look)
            if self.unready is None:
                await run_in_threadpool(self.take_over)


def create_app(
    scorer: Scorer,
    settings: ServiceSettings = _DEFAULTS,
    *,
    token: SecretStr | None = None,
    warm: Callable[[], object] | None = None,
    corpus: Corpus | None = None,
    config: RewardConfig | None = None,
    reopen: Reopen | None = None,
) -> FastAPI:
    """The service of a scorer, which begins to work when the application is started.

    Clients must send `token`, where there is one. `warm` is run before the service is ready; `/info` reports `corpus`
    and `config`, and the corpus's folder is watched. `reopen` opens the scorer of another corpus there; without it the
    service keeps the one that it began with.
    """
    service = RewardService(scorer, settings, warm, corpus, reopen)
    intake = service.intake

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.batcher.start()
        looking = asyncio.create_task(service.keep_looking())
        yield
        looking.cancel()
        await service.batcher.stop()

    app = FastAPI(title="recipe reward", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service

    @app.post("/score", openapi_extra=body_schema(ScoreRequest))
    async def score(request: Request) -> Response:
        """The reward of one plan, or of several plans of one prompt, with all parts."""
        async with intake.body(request) as body:
            group, single = await intake.work(score_group, body, settings, size=len(body))
        [rewards] = await service.rewards(request, [group]) if group.plans else [[]]
        return json_response({"reward": rewards[0]} if single else {"rewards": rewards})

    @app.post("/get_reward", openapi_extra=body_schema(openrlhf.GetReward))
    async def get_reward(request: Request) -> Response:
        """OpenRLHF's remote reward."""
        async with intake.body(request) as body:
            groups = await intake.work(openrlhf.groups, body, settings, size=len(body))
        rewards = await service.rewards(request, groups) if groups else []
        return json_response(openrlhf_answer([reward for [reward] in rewards]))

    @app.post("/verify", openapi_extra=body_schema(nemo_gym.VerifyRequest))
    async def verify(request: Request) -> Response:
        """NeMo-Gym's verification of a rollout; one that cannot be computed is marked as failed."""
        async with intake.body(request) as body:
            group = await intake.work(nemo_gym.group, body, settings, size=len(body))
            outcome: Reward | Refusal
            try:
                [[outcome]] = await service.rewards(request, [group])
            except Refusal as refusal:
                if refusal.code not in FAILURES:
                    raise
                service.metrics.failed(refusal.code)
                outcome = refusal
            answer = await intake.work(nemo_gym.verdict, body, outcome, size=len(body))
        return Response(answer, media_type="application/json")

    @app.post("/seed_session")
    async def seed_session() -> dict[str, str]:
        """NeMo-Gym's start of a rollout: this service keeps no sessions."""
        return {}

    @app.get("/reverify_mode")
    async def reverify_mode() -> str:
        """A stored rollout may be verified again at any time."""
        return "stateless"

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
        await run_in_threadpool(service.look)
        return service.metrics.response()

    @app.get("/info")
    async def info() -> Response:
        """What is served, by what settings, and whether the folder on disk holds another corpus now."""
        about: dict[str, Any] = {
            "version": __version__,
            "verifier": None if config is None else config.model_dump(mode="json"),
            "limits": settings.model_dump(mode="json") | {"max_body": MAX_BODY, "queue": QUEUE},
            "corpus": None,
            "encoder": None,
        }
        if service.corpus is not None and service.watch is not None:
            await run_in_threadpool(service.look)
            manifest = service.corpus.manifest
            about["corpus"] = {
                "folder": str(service.corpus.folder),
                **{name: manifest[name] for name in ("id", "narrations", "segments")},
                "too_small": None if config is None else config.contrast_problem(manifest["narrations"]),
                "on_disk": {"id": service.watch.on_disk, "replaced": service.replaced},
            }
            about["encoder"] = manifest["encoder"]
        return json_response(about)

    protect(app, service.metrics, token, "docs/trainers.md")
    return app
