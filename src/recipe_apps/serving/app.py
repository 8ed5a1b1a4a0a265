"""The planner page and the endpoints behind it (docs/serving.md).

The page uses nothing but this API. State-changing requests must be JSON or raw bytes: a page of another site cannot
send those unnoticed, since browsers ask for permission first and get none. Without a token, a server at a loopback
address answers only to loopback names, so that a foreign name that points there gets nothing.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from pydantic import SecretStr
from pydantic_core import to_json, to_jsonable_python

from recipe import __version__
from recipe.config import FrameConfig
from recipe.corpus.store import Corpus, certified_hits
from recipe.errors import MissingExtra, RecipeError
from recipe.evaluation.judge.verdicts import CRITERIA, HIGHEST
from recipe.perception.phi import Phi
from recipe.planning.planner import Planner
from recipe.planning.search import PlanSearch
from recipe.report.html import page_environment, template
from recipe_apps.serving.clips import MAX_CLIP, MAX_CLIP_SECONDS, ClipStore
from recipe_apps.serving.evidence import CorpusEvidence, facts_of, open_evidence
from recipe_apps.serving.feedback import FeedbackStore
from recipe_apps.serving.messages import (
    MAX_CHARACTERS,
    MAX_STEPS,
    DeviationRequest,
    ExplainRequest,
    FeedbackRequest,
    RunRequest,
    SearchRequest,
    clean_steps,
    clean_text,
)
from recipe_apps.serving.runs import Run, Runs
from recipe_apps.serving.state import RunState
from recipe_apps.serving.writers import EvidenceWorker, PageMetrics, Writer
from recipe_apps.web.corpora import LOOK, CorpusWatch
from recipe_apps.web.guard import Intake, PageHeaders, body_schema, client_of, json_response, protect
from recipe_apps.web.refusals import Message, Refusal, Value, attempt, read

try:
    from fastapi import FastAPI, Header, Query, Request, Response
    from fastapi.sse import EventSourceResponse
    from starlette.concurrency import run_in_threadpool
    from starlette.types import Receive, Scope, Send
except ModuleNotFoundError as error:
    raise MissingExtra("the planner page", "serve") from error

_LOG = logging.getLogger(__name__)
_FRAMES = FrameConfig()
# Seconds between two looks for runs and clips that are not needed any more.
_SWEEP = 1.0
# Plans of a run that does not say how many, and of any run.
# Plans of a run are written side by side, and people compare a few.
_PLANS, _MAX_PLANS = 4, 8
# Bytes of a request other than a clip; a history and a plan of the largest size are 100 kB of ASCII.
_MAX_BODY = 256 << 10
# Readers of events at once, in all and of one run; further ones are refused with `too_many_readers`.
# A reader costs a socket and a task, and files are limited (`recipe_apps.web.process`).
_READERS, _READERS_PER_RUN = 256, 16
# examples/deploy: systemd waits longer than that.
DRAIN_SECONDS = 30.0
"""Seconds that runs have to end once the service is told to."""
_NOT_KEPT = "Feedback is not kept; start the server with --keep FOLDER."
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
    """The models, the corpus and the settings that a page serves."""

    planner: Planner
    model: str
    """Name of the planner's model."""
    sees_video: bool = False
    phi: Phi | None = None
    phi_name: str = ""
    evidence: CorpusEvidence | None = None
    search: PlanSearch | None = None
    """Composes plans step by step, in place of whole ones that are sampled."""
    frames: FrameConfig = _FRAMES
    default: str = ""
    """What to know of the model and the corpus where the server chose them itself."""
    examples: Sequence[tuple[str, tuple[str, ...]]] = ()
    """Goals with histories that the page offers."""
    writers: int = 1
    """Threads that write: one for a model on this machine, several for an endpoint."""
    room: int = 64
    """Plans that one of them writes at once."""


class _RunEvents(EventSourceResponse):
    """Events of a run to one reader, who counts in `readers` under these names until the response ends in any way."""

    def __init__(self, events: AsyncIterator[bytes], readers: Counter[str], names: Collection[str]) -> None:
        # nginx would gather events until its buffer is full, and hand them on together.
        super().__init__(events, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._readers, self._names = readers, names
        readers.update(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._readers.subtract(self._names)
            for name in self._names:  # a run or an address without readers is forgotten
                if not self._readers[name]:
                    del self._readers[name]


class PlannerPage:
    """What the endpoints share."""

    def __init__(self, served: Served, per_address: int) -> None:
        self.served = served
        self.runs = Runs(per_address, lambda run: self.metrics.ended.labels(run.state).inc())
        self.metrics, self.intake = PageMetrics(self.runs), Intake(_MAX_BODY)
        self.readers = Counter[str]()
        self.clips = ClipStore()
        self.evidence = EvidenceWorker(served.evidence, self.metrics)
        parts = (self.runs, served.planner, self.evidence, self.metrics, self.clips, served.frames)
        writers = [Writer(*parts, served.phi, served.search, served.room) for _ in range(served.writers)]
        self.threads = (*writers, self.evidence)
        corpus = None if served.evidence is None else served.evidence.verifier.corpus
        self._watch = CorpusWatch(corpus) if isinstance(corpus, Corpus) else None

    def look(self) -> None:
        """If the corpus's folder holds another corpus, open it in addition to the current one; new runs then use it.

        If it cannot be opened, the log says so, and the current one stays.
        """
        before, watch = self.evidence.corpus, self._watch
        if before is None or watch is None or not watch.look() or watch.on_disk is None:
            return
        corpus = before.verifier.corpus
        if not isinstance(corpus, Corpus) or watch.on_disk == corpus.manifest["id"]:
            return
        try:
            opened = corpus.reopened()
            self.evidence.corpus = now = open_evidence(opened, before.verifier.config, before.links)
            if self.served.search is not None:
                self.served.search.scorer = now.verifier
        except (RecipeError, OSError) as error:
            served = corpus.manifest["id"]
            _LOG.warning("%s: corpus %s cannot be served, and %s stays: %s", watch.folder, watch.on_disk, served, error)
            return
        _LOG.warning("%s: new runs ask corpus %s from now on", watch.folder, opened.manifest["id"])

    async def keep_looking(self) -> None:
        """Look at the corpus's folder every second, until cancelled."""
        while True:
            await asyncio.sleep(LOOK)
            await run_in_threadpool(self.look)

    async def expire(self) -> None:
        """Forget runs and clips that are not needed any more, every second until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP)
            self.runs.sweep()
            await run_in_threadpool(self.clips.sweep)

    async def message(self, request: Request, kind: type[Message]) -> Message:
        """The body as a message. Raises Refusal."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refusal("not_json", "Send JSON with the content type application/json.")
        async with self.intake.body(request) as body:
            return await self.intake.work(read, body, kind, size=len(body))


def create_app(
    served: Served,
    *,
    per_address: int = 0,
    token: SecretStr | None = None,
    feedback: FeedbackStore | None = None,
    local_only: bool = False,
) -> FastAPI:
    """The page and its API; the threads that write begin with the application.

    Of one address `per_address` readers and waiting runs are taken at once, 0: half of all. Clients must send `token`,
    where there is one. With `local_only` requests must name this machine by a loopback name. `app.state.page` is the
    PlannerPage.
    """
    page = PlannerPage(served, per_address)
    runs, clips = page.runs, page.clips

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        for thread in page.threads:
            thread.start()
        tasks = [asyncio.create_task(page.expire()), asyncio.create_task(page.keep_looking())]
        yield
        for task in tasks:
            task.cancel()
        runs.close(running=True)
        page.evidence.close()
        clips.close()  # before the threads are waited for: a writer may wait for a clip
        for thread in page.threads:
            await run_in_threadpool(thread.join, 10.0)
        runs.sweep()

    app = FastAPI(title="recipe planner page", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.page = page

    # The page.

    environment = page_environment("recipe_apps.serving")
    html = environment.get_template("planner.html.jinja").render(version=__version__)
    files = {
        "planner.css": (environment.get_template("planner.css").render(), "text/css"),
        "planner.js": (template("recipe_apps.serving", "planner.js"), "text/javascript"),
    }

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        """The page."""
        return Response(html, media_type="text/html; charset=utf-8")

    @app.get("/static/{name}", include_in_schema=False)
    async def static(name: str) -> Response:
        """Its style and its scripts."""
        if name not in files:
            raise Refusal("not_found", f"There is no file {name[:80]!r}.")
        content, kind = files[name]
        return Response(content, media_type=f"{kind}; charset=utf-8")

    # Runs.

    @app.post("/api/runs", status_code=202, openapi_extra=body_schema(RunRequest))
    async def begin(request: Request) -> Response:
        """Ask for plans, or for a reading of a clip; the events of the run tell the rest."""
        message = await page.message(request, RunRequest)
        goal, history = clean_text("The goal", message.goal), clean_steps(message.history)
        count = message.plans or _PLANS
        if count > _MAX_PLANS:
            raise Refusal("too_many_plans", f"{count} plans are too many; ask for {_MAX_PLANS} at most.")
        if message.clip is not None and message.until is not None:
            if message.kind == "plan" and not served.sees_video:
                problem = "This planner reads words; have the clip read first, then plan from the history."
                raise Refusal("bad_clip", problem)
            if message.kind == "reading" and served.phi is None:
                raise Refusal("bad_clip", "No model that reads clips is served; start the server with --phi.")
            clips.require(message.clip, message.until)
        run = Run(
            kind=message.kind,
            goal=goal,
            history=history,
            seed=message.seed,
            plans=[() for _ in range(count if message.kind == "plan" else 0)],
            loop=asyncio.get_running_loop(),
            clip=message.clip,
            until=message.until,
            client=client_of(request.client),
        )
        run = runs.add(run, message.key)
        row = {"id": run.id, "state": run.state, "position": run.position}
        return json_response(row, 202, {"Location": f"/api/runs/{run.id}"})

    def looked_at(identity: str) -> Run:
        run = runs.require(identity)
        run.last_read = time.monotonic()
        return run

    # Before the run itself, whose address would take the ending for a part of the id.
    @app.get("/api/runs/{identity}.{ending}", response_class=Response)
    async def export(
        identity: str, ending: Literal["json", "md"], plan: Annotated[int | None, Query(ge=0)] = None
    ) -> Response:
        """A run as a file to keep: its JSON or a Markdown document, of one plan or of all."""
        state = await run_in_threadpool(RunState.of, looked_at(identity))
        state.plans = [row for row in state.plans if plan in (None, row.plan)]
        if plan is not None and not state.plans:
            raise Refusal("invalid_field", "This run has no such plan; plans are numbered from 0.")
        kind = {"json": "application/json", "md": "text/markdown; charset=utf-8"}[ending]
        text = state.model_dump_json(indent=2) if ending == "json" else state.markdown()
        headers = {"Content-Disposition": f'attachment; filename="plan-{identity[:8]}.{ending}"'}
        return Response(text, headers=headers, media_type=kind)

    @app.get("/api/runs/{identity}", response_model=RunState)
    async def state(identity: str) -> Response:
        """The present state of a run: its plans with reward, rank and evidence, as the page shows them."""
        return json_response(await run_in_threadpool(RunState.of, looked_at(identity)))

    # The response is made here, not by the router: what has been sent is kept as it is, and an end is a 204.
    @app.get("/api/runs/{identity}/events", response_model=None)
    async def events(
        request: Request,
        identity: str,
        last_event_id: Annotated[int, Header()] = 0,
        after: Annotated[int, Query(ge=0)] = 0,
    ) -> Response:
        """The run's events behind a number, as server-sent events; 204 where no further one comes."""
        run, after = runs.require(identity), max(last_event_id, after)
        if run.over and after >= len(run.events):
            return Response(status_code=204)
        client = client_of(request.client)
        of_address = per_address or _READERS // 2
        limits = {"": _READERS, f"run {run.id}": _READERS_PER_RUN, f"address {client}": of_address}
        for name, most in limits.items():
            if page.readers[name] >= most:
                where = f" of this {name.partition(' ')[0]}" if name else ""
                problem = f"{most} readers{where} are connected already; close one, or ask again in a second."
                raise Refusal("too_many_readers", problem)
        return _RunEvents(run.follow(after), page.readers, limits.keys())

    @app.delete("/api/runs/{identity}")
    async def cancel(identity: str) -> Response:
        """Cancel a run: its model stops at the next token."""
        run = runs.require(identity)
        runs.cancel(run, "You stopped it.")
        return json_response({"id": run.id, "state": run.state})

    @app.post("/api/runs/{identity}/deviation", openapi_extra=body_schema(DeviationRequest))
    async def deviation(identity: str, request: Request) -> Response:
        """What of a plan is done, skipped and open by now, and what narrations say of the order."""
        run, message = runs.require(identity), await page.message(request, DeviationRequest)
        if message.plan >= len(run.plans):
            raise Refusal("invalid_field", f"This run has no plan {message.plan}; plans are numbered from 0.")
        if (evidence := page.evidence.corpus) is None:
            raise Refusal("invalid_field", "Comparing needs a corpus; start the server with --corpus.")
        now, plan = clean_steps(message.history), run.plans[message.plan]
        row = await run_in_threadpool(evidence.deviation, run.goal, run.history, plan, now)
        return json_response(row)

    # What commands ask in place of loading an encoder (recipe.cli.served).

    def asked_of(identity: str) -> tuple[CorpusEvidence, Corpus]:
        evidence = page.evidence.corpus
        corpus = None if evidence is None else evidence.verifier.corpus
        if evidence is None or not isinstance(corpus, Corpus):
            raise Refusal(
                "other_corpus",
                "This server serves no corpus; start it with --corpus, or leave --server and RECIPE_SERVER out.",
            )
        if corpus.manifest["id"] != identity:
            there = f"{corpus.folder.name} ({corpus.manifest['id'][:16]})"
            raise Refusal(
                "other_corpus",
                f"This server serves the corpus {there}, another one; leave --server and RECIPE_SERVER out.",
            )
        return evidence, corpus

    async def computed(call: Callable[[], Value]) -> Value:
        outcome: Value | Refusal = await page.intake.work(attempt, "answering a command", call)
        if isinstance(outcome, Refusal):
            raise outcome
        return outcome

    @app.post("/api/search", openapi_extra=body_schema(SearchRequest))
    async def search(request: Request) -> Response:
        """What `recipe corpus search` finds: narrations, and the proof that they are the best."""
        message = await page.message(request, SearchRequest)
        steps = clean_steps(message.steps)
        _, corpus = asked_of(message.corpus)
        certificate, rows = await computed(partial(certified_hits, corpus, steps, message.k))
        return json_response({"certificate": certificate._asdict(), "rows": rows, "total": len(corpus)})

    @app.post("/api/explain", openapi_extra=body_schema(ExplainRequest))
    async def explain(request: Request) -> Response:
        """What `recipe reward explain` shows of a plan's reward."""
        message = await page.message(request, ExplainRequest)
        history, plan = clean_steps(message.history), clean_steps(message.plan)
        goal = clean_text("The goal", message.goal)
        evidence, _ = asked_of(message.corpus)
        explained = partial(evidence.explained, message.config(), goal, history, plan)
        return json_response({"explanation": await computed(explained)})

    # Clips.

    @app.post("/api/clips", status_code=201, openapi_extra=body_schema("application/octet-stream"))
    async def receive(request: Request, content_length: Annotated[int, Header(ge=0)]) -> Response:
        """A clip as raw bytes; it is deleted a while after its last use."""
        if request.headers.get("content-type", "") != "application/octet-stream":
            raise Refusal("bad_clip", "Send the clip's bytes with the content type application/octet-stream.")
        return json_response(await clips.receive(content_length, request.stream()), 201)

    @app.delete("/api/clips/{identity}", status_code=204)
    async def delete(identity: str) -> Response:
        """Delete a clip."""
        await run_in_threadpool(clips.delete, identity)
        return Response(status_code=204)

    # Feedback.

    @app.post("/api/runs/{identity}/feedback", status_code=201, openapi_extra=body_schema(FeedbackRequest))
    async def give_feedback(identity: str, request: Request) -> Response:
        """Keep, reject or correct a step, rate a plan."""
        run, message = runs.require(identity), await page.message(request, FeedbackRequest)
        text = None if message.text is None else clean_text("The corrected step", message.text)
        if feedback is None:
            raise Refusal("not_kept", _NOT_KEPT)
        await run_in_threadpool(feedback.add, run, message, text)
        return json_response({"kept": True}, 201)

    @app.get("/api/ratings")
    async def ratings() -> Response:
        """All ratings as JSON lines, as `recipe evaluate agreement --ratings` reads them."""
        if feedback is None:
            raise Refusal("not_kept", _NOT_KEPT)
        lines = b"".join(to_json(row) + b"\n" for row in await run_in_threadpool(feedback.ratings))
        headers = {"Content-Disposition": 'attachment; filename="ratings.jsonl"'}
        return Response(lines, headers=headers, media_type="application/x-ndjson")

    # The service.

    @app.get("/api/info")
    async def info() -> Response:
        """What is served, and its limits."""
        evidence = page.evidence.corpus
        config = None if evidence is None else evidence.verifier.config
        row = {
            "version": __version__,
            "model": {"name": served.model, "sees_video": served.sees_video},
            "phi": None if served.phi is None else {"name": served.phi_name},
            "corpus": None if evidence is None else facts_of(evidence),
            "verifier": None if config is None else {"name": config.verifier, "scale": config.scale},
            "search": None if served.search is None else to_jsonable_python(served.search.config),
            "default": served.default,
            "examples": [{"goal": goal, "history": history} for goal, history in served.examples],
            "limits": {
                "plans": _MAX_PLANS,
                "default_plans": _PLANS,
                "history": MAX_STEPS,
                "characters": MAX_CHARACTERS,
                "clip_bytes": MAX_CLIP,
                "clip_seconds": MAX_CLIP_SECONDS,
            },
            "keep": feedback is not None,
            "criteria": {name: _MEANINGS[name] for name in CRITERIA},
            "highest": HIGHEST,
        }
        return json_response(row)

    @app.get("/healthz")
    async def healthz() -> Response:
        """The process answers, and its threads live."""
        if not all(thread.is_alive() for thread in page.threads):
            raise Refusal("compute_failed", "A thread of the server has ended; see its log, and start it again.")
        return json_response({"status": "alive"})

    @app.get("/metrics")
    async def metrics() -> Response:
        """Counters in Prometheus's format."""
        return page.metrics.response()

    protect(app, page.metrics, token, "docs/serving.md")
    app.add_middleware(PageHeaders, local_only=local_only and token is None)
    return app
