"""The planner page and the endpoints behind it (docs/serving.md).

The page uses nothing but this API. State-changing requests must be JSON or raw bytes: a page of another site cannot
send those unnoticed, since browsers ask for permission first and get none. Without a token, a server at a loopback
address answers only to loopback names, so that a foreign name that points there gets nothing.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic_core import to_json

from recipe import __version__
from recipe.config import FrameConfig
from recipe.errors import MissingExtra
from recipe.evaluation.judge.verdicts import CRITERIA, HIGHEST
from recipe.perception.phi import Phi
from recipe.planning.planner import Planner
from recipe.report.html import page_environment
from recipe_apps.serving.clips import ClipStore
from recipe_apps.serving.evidence import Witness
from recipe_apps.serving.feedback import FeedbackStore
from recipe_apps.serving.messages import (
    DeviationRequest,
    FeedbackRequest,
    RunRequest,
    clean_steps,
    clean_text,
)
from recipe_apps.serving.runs import PlanSoFar, Run, Runs
from recipe_apps.serving.settings import PageSettings
from recipe_apps.serving.writers import Examiner, PageMetrics, Writer
from recipe_apps.web.guard import Intake, PageHeaders, body_schema, client_of, json_response, protect
from recipe_apps.web.refusals import Refusal, read

try:
    from fastapi import FastAPI, Header, Query, Request, Response
    from fastapi.sse import EventSourceResponse
    from starlette.concurrency import run_in_threadpool
    from starlette.types import Receive, Scope, Send
except ModuleNotFoundError as error:
    raise MissingExtra("the planner page", "serve") from error

_DEFAULTS = PageSettings()
_FRAMES = FrameConfig()
_SWEEP = 1.0
"""Seconds between two looks for runs and clips that are not needed any more."""
_MEANINGS = {
    "logical_progression": "the steps follow from each other and lead to the goal",
    "temporal_alignment": "the steps stand in the right order",
    "spatial_grounding": "the steps fit the objects and places that the history names",
    "continuation": "the plan goes on where the history ends, without repeating it",
    "clarity": "a person understands what to do",
    "semantic_alignment": "the steps mean what this goal needs",
}


@dataclass(frozen=True)
class Served:
    """What stands behind the page."""

    planner: Planner
    model: str
    """Name of the planner's model."""
    sees_video: bool = False
    phi: Phi | None = None
    phi_name: str = ""
    witness: Witness | None = None
    corpus: dict[str, Any] | None = None
    """Its id, narrations, segments and too_small, as the page shows them."""
    frames: FrameConfig = _FRAMES
    default: str = ""
    """What to know of the model and the corpus where the server chose them itself."""
    examples: Sequence[tuple[str, tuple[str, ...]]] = ()
    """Goals with histories that the page offers."""
    writers: int = 1
    """Threads that write: one for a model on this machine, several for an endpoint."""
    room: int = 64
    """Plans that one of them writes at once."""


class _Followed(EventSourceResponse):
    """Events of a run; `left` is called once the reader has gone, however that came."""

    def __init__(self, events: AsyncIterator[bytes], left: Callable[[], None]) -> None:
        super().__init__(events, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._left = left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._left()


class PlannerPage:
    """What the endpoints share."""

    def __init__(self, served: Served, settings: PageSettings, feedback: FeedbackStore | None) -> None:
        self.served, self.settings, self.feedback = served, settings, feedback
        self.metrics, self.intake = PageMetrics(), Intake(settings.max_body)
        self._readers = Counter[str]()
        self.runs = Runs(settings, lambda run: self.metrics.ended.labels(run.state).inc())
        self.clips = ClipStore(settings)
        self.examiner = Examiner(served.witness, self.metrics)
        self.writers = [
            Writer(
                self.runs,
                served.planner,
                self.examiner,
                self.metrics,
                self.clips,
                served.frames,
                served.phi,
                served.room,
            )
            for _ in range(served.writers)
        ]
        self.metrics.follow(lambda: self.runs.waiting, lambda: self.runs.count("running"))

    def drain(self) -> None:
        """Take nothing new; what is under way goes on."""
        self.runs.close()

    async def keep_house(self) -> None:
        """Forget runs and clips that are not needed any more."""
        while True:
            await asyncio.sleep(_SWEEP)
            self.runs.sweep()
            await run_in_threadpool(self.clips.sweep)

    async def stop(self) -> None:
        """End all runs and delete all clips."""
        self.runs.close()
        self.runs.cancel_all()
        self.examiner.close()
        self.clips.close()  # first: a writer may wait for a clip
        for thread in (*self.writers, self.examiner):
            await run_in_threadpool(thread.join, 10.0)
        self.runs.sweep()

    async def message(self, request: Request, kind: type[Any]) -> Any:
        """The body as a message. Raises Refusal."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refusal("not_json", "Send JSON with the content type application/json.")
        async with self.intake.body(request) as body:
            return await self.intake.work(lambda: read(body, kind), len(body))

    def follow(self, run: Run, behind: int, client: str) -> Response:
        """The events of a run for one more reader. Raises Refusal where there are too many."""
        settings = self.settings
        of_one = settings.per_address or max(settings.readers // 2, 1)
        limits = {"": settings.readers, f"run {run.id}": settings.readers_per_run, f"address {client}": of_one}
        for name, most in limits.items():
            if self._readers[name] >= most:
                where = f" of this {name.partition(' ')[0]}" if name else ""
                said = f"{most} readers{where} are connected already; close one, or ask again in a second."
                raise Refusal("too_many_readers", said)
        self._readers.update(limits.keys())

        def left() -> None:
            self._readers.subtract(limits.keys())
            self._readers = +self._readers  # without those that are zero: a run and an address are no longer named

        return _Followed(run.follow(behind), left)

    def new_run(self, asked: RunRequest, client: str) -> Run:
        """A run for this request, at the end of the queue. Raises Refusal."""
        settings = self.settings
        goal, history = clean_text("The goal", asked.goal, settings), clean_steps(asked.history, settings)
        count = asked.plans or min(settings.plans, settings.max_plans)
        if count > settings.max_plans:
            raise Refusal("too_many_plans", f"{count} plans are too many; ask for {settings.max_plans} at most.")
        if asked.clip is not None and asked.until is not None:
            if asked.kind == "plan" and not self.served.sees_video:
                said = "This planner reads words; have the clip read first, then plan from the history."
                raise Refusal("bad_clip", said)
            if asked.kind == "reading" and self.served.phi is None:
                raise Refusal("bad_clip", "No model that reads clips is served; start the server with --phi.")
            self.clips.require(asked.clip, asked.until)

        def make() -> Run:
            plans = [PlanSoFar() for _ in range(count if asked.kind == "plan" else 0)]
            loop = asyncio.get_running_loop()
            return Run(asked.kind, goal, history, asked.seed, plans, loop, asked.clip, asked.until, client)

        return self.runs.add(asked.key, make)

    def info(self) -> dict[str, Any]:
        """What is served, and its limits."""
        served, settings = self.served, self.settings
        config = None if served.witness is None else served.witness.verifier.config
        return {
            "version": __version__,
            "model": {"name": served.model, "sees_video": served.sees_video},
            "phi": None if served.phi is None else {"name": served.phi_name},
            "corpus": served.corpus,
            "verifier": None if config is None else {"name": config.verifier, "scale": config.scale},
            "default": served.default,
            "examples": [{"goal": goal, "history": list(history)} for goal, history in served.examples],
            "limits": {
                "plans": settings.max_plans,
                "default_plans": min(settings.plans, settings.max_plans),
                "history": settings.max_steps,
                "characters": settings.max_characters,
                "clip_bytes": settings.max_clip,
                "clip_seconds": settings.max_clip_seconds,
            },
            "keep": self.feedback is not None,
            "criteria": {name: _MEANINGS[name] for name in CRITERIA},
            "highest": HIGHEST,
        }


def create_app(
    served: Served,
    settings: PageSettings = _DEFAULTS,
    *,
    feedback: FeedbackStore | None = None,
    local_only: bool = False,
) -> FastAPI:
    """The page and its API; the threads that write begin with the application.

    With `local_only` requests must name this machine by a loopback name. `app.state.page` is the PlannerPage.
    """
    page = PlannerPage(served, settings, feedback)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        for thread in (*page.writers, page.examiner):
            thread.start()
        house = asyncio.create_task(page.keep_house())
        yield
        house.cancel()
        await page.stop()

    app = FastAPI(title="recipe planner page", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.page = page
    _add_page(app)
    _add_runs(app, page)
    _add_clips(app, page)
    _add_feedback(app, page)
    _add_state(app, page)
    protect(app, page.metrics, settings.token, "docs/serving.md")
    app.add_middleware(PageHeaders, local_only=local_only and settings.token is None)
    return app


def _client(request: Request) -> str:
    return client_of(request.client.host if request.client else "")


def _add_page(app: FastAPI) -> None:
    environment = page_environment("recipe_apps.serving")
    page, style, script = (
        environment.get_template("planner.html.jinja").render(version=__version__),
        environment.get_template("planner.css").render(),
        environment.loader.get_source(environment, "planner.js")[0] if environment.loader else "",
    )

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        """The page."""
        return Response(page, media_type="text/html; charset=utf-8")

    @app.get("/static/planner.css", include_in_schema=False)
    async def css() -> Response:
        """Its style."""
        return Response(style, media_type="text/css; charset=utf-8")

    @app.get("/static/planner.js", include_in_schema=False)
    async def javascript() -> Response:
        """Its script."""
        return Response(script, media_type="text/javascript; charset=utf-8")


def _add_runs(app: FastAPI, page: PlannerPage) -> None:
    @app.post("/api/runs", status_code=202, openapi_extra=body_schema(RunRequest.model_json_schema()))
    async def begin(request: Request) -> Response:
        """Ask for plans, or for a reading of a clip; the events of the run tell the rest."""
        run = page.new_run(await page.message(request, RunRequest), _client(request))
        row = {"id": run.id, "state": run.state, "position": run.position}
        return json_response(row, 202, {"Location": f"/api/runs/{run.id}"})

    @app.get("/api/runs/{identity}")
    async def state(identity: str) -> Response:
        """A run as it stands."""
        return json_response(page.runs.known(identity).row())

    # The response is made here, not by the router: what has been sent is kept as it is, and an end is a 204.
    @app.get("/api/runs/{identity}/events", response_model=None)
    async def events(
        request: Request,
        identity: str,
        last_event_id: Annotated[int, Header()] = 0,
        after: Annotated[int, Query(ge=0)] = 0,
    ) -> Response:
        """The run's events behind a number, as server-sent events; 204 where no further one comes."""
        run, behind = page.runs.known(identity), max(last_event_id, after)
        if run.over and behind >= run.events:
            return Response(status_code=204)
        return page.follow(run, behind, _client(request))

    @app.delete("/api/runs/{identity}")
    async def cancel(identity: str) -> Response:
        """Cancel a run: its model stops at the next token."""
        run = page.runs.known(identity)
        page.runs.cancel(run, "You stopped it.")
        return json_response({"id": run.id, "state": run.state})

    @app.post("/api/runs/{identity}/deviation", openapi_extra=body_schema(DeviationRequest.model_json_schema()))
    async def deviation(identity: str, request: Request) -> Response:
        """What of a plan is done, skipped and open by now, and what narrations say of the order."""
        run, asked = page.runs.known(identity), await page.message(request, DeviationRequest)
        if asked.plan >= len(run.plans):
            raise Refusal("invalid_field", f"This run has no plan {asked.plan}; plans are numbered from 0.")
        if page.served.witness is None:
            raise Refusal("invalid_field", "Comparing needs a corpus; start the server with --corpus.")
        now, plan = clean_steps(asked.history, page.settings), run.plans[asked.plan].steps
        compare = page.served.witness.deviation
        return json_response(await run_in_threadpool(compare, run.goal, run.history, plan, now))


def _add_clips(app: FastAPI, page: PlannerPage) -> None:
    @app.post("/api/clips", status_code=201)
    async def receive(request: Request, content_length: Annotated[int, Header(ge=0)]) -> Response:
        """A clip as raw bytes; it is deleted a while after its last use."""
        if request.headers.get("content-type", "") != "application/octet-stream":
            raise Refusal("bad_clip", "Send the clip's bytes with the content type application/octet-stream.")
        return json_response(await page.clips.receive(content_length, request.stream()), 201)

    @app.delete("/api/clips/{identity}", status_code=204)
    async def delete(identity: str) -> Response:
        """Delete a clip."""
        await run_in_threadpool(page.clips.delete, identity)
        return Response(status_code=204)


def _add_feedback(app: FastAPI, page: PlannerPage) -> None:
    def store() -> FeedbackStore:
        if page.feedback is None:
            raise Refusal("not_kept", "Feedback is not kept; start the server with --keep FOLDER.")
        return page.feedback

    @app.post(
        "/api/runs/{identity}/feedback",
        status_code=201,
        openapi_extra=body_schema(FeedbackRequest.model_json_schema()),
    )
    async def feedback(identity: str, request: Request) -> Response:
        """Keep, reject or correct a step, rate a plan."""
        run, said = page.runs.known(identity), await page.message(request, FeedbackRequest)
        text = None if said.text is None else clean_text("The corrected step", said.text, page.settings)
        await run_in_threadpool(store().add, run, said, text)
        return json_response({"kept": True}, 201)

    @app.get("/api/ratings")
    async def ratings() -> Response:
        """All ratings as JSON lines, as `recipe evaluate ratings` reads them."""
        kept = store()
        lines = await run_in_threadpool(lambda: b"".join(to_json(row) + b"\n" for row in kept.ratings()))
        headers = {"Content-Disposition": 'attachment; filename="ratings.jsonl"'}
        return Response(lines, headers=headers, media_type="application/x-ndjson")


def _add_state(app: FastAPI, page: PlannerPage) -> None:
    @app.get("/api/info")
    async def info() -> Response:
        """What is served, and its limits."""
        return json_response(page.info())

    @app.get("/healthz")
    async def healthz() -> Response:
        """The process answers, and its threads live."""
        threads = (*page.writers, page.examiner)
        if not all(thread.is_alive() for thread in threads):
            raise Refusal("compute_failed", "A thread of the server has ended; see its log, and start it again.")
        return json_response({"status": "alive"})

    @app.get("/metrics")
    async def metrics() -> Response:
        """Counters in Prometheus's format."""
        return page.metrics.response()
