"""A server of the planner page that speaks its JSON API with prepared plans and misbehaves on request.

Tests hold a `MockServer` and set its fields.
"""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from recipe import __version__
from recipe.report.html import page_environment, template
from recipe_apps.serving.messages import DeviationRequest, FeedbackRequest, RunRequest
from recipe_apps.web.guard import PAGE_HEADERS

CRITERIA = {
    "logical_progression": "Each step follows from those before it.",
    "temporal_alignment": "The order is that of the task.",
    "spatial_grounding": "Objects and places fit the history.",
    "continuation": "It goes on from what is done and repeats none of it.",
    "clarity": "Each step can be carried out as it is written.",
    "semantic_alignment": "The plan reaches the goal.",
}
EXAMPLES = [
    {"goal": "make a pot of tea", "history": ["fill the kettle with water", "switch on the kettle"]},
    {"goal": "change a bicycle tube", "history": ["take off the wheel"]},
    {"goal": "pot a plant", "history": ["fill the pot with soil", "make a hole in the soil"]},
]
PLANS = [
    ["warm the pot", "add the tea leaves to the pot", "pour the water over the leaves", "pour the tea"],
    [
        "warm the pot", "add the tea leaves to the pot", "pour the boiling water over the leaves", "wait four minutes",
        "pour the tea into cups",
    ],
    ["pour the water over the leaves", "polish the spoon", "pour the tea"],
    ["add the tea leaves to the pot", "pour the water over the leaves", "wait four minutes", "pour the tea"],
]  # fmt: skip
REWARDS = [0.412, 0.448, 0.193, 0.371]
SAME = [[1, 2, 3, 5], [1, 2, 3, 4, 5], [3, None, 5], [2, 3, 4, 5]]
UNSUPPORTED, CLOSE = {"polish the spoon"}, {"pour the tea"}
"""Steps that no narration says, and that some say something like."""


def ground(text: str, n: int) -> dict[str, Any]:
    """One segment that says what a step says; every other one has no link."""
    link = f"https://videos.example/v{n}?t={62 + n}" if n % 2 == 0 else None
    title = f"How to make tea, part {n}" if n % 3 else None
    when = f"1:{2 + n:02}–1:{10 + n:02}"
    said = f"so now we {text}, slowly"
    return {"text": said, "video_id": f"v{n}", "title": title, "when": when, "link": link, "similarity": 0.83 - n / 50}


def evidence(plan: int, number: int, text: str) -> dict[str, Any]:
    """What the verifier says of one step."""
    count, grounds = 12 + number, [ground(text, n) for n in range(4)]
    if text in CLOSE:
        count, grounds = 1, [ground("pour the coffee", 1)]
    elif text in UNSUPPORTED:
        count, grounds = 0, []
    state = "supported" if count > 1 else "unsupported"
    about = {"plan": plan, "number": number, "state": state, "matched_in": count, "pool": 50, "about": 20}
    return about | {"grounds": grounds}


Event = tuple[str, dict[str, Any]]


class Run:
    """A run's events so far, and who waits for more."""

    def __init__(self, id: str, body: dict[str, Any]) -> None:
        self.id, self.body, self.events, self.cancelled = id, body, list[Event](), False
        self.news = asyncio.Event()

    @property
    def over(self) -> bool:
        return bool(self.events) and self.events[-1][0] in ("done", "failed", "cancelled")

    def add(self, kind: str, data: dict[str, Any]) -> None:
        if not self.over:
            self.events.append((kind, data))
        self.news.set()
        self.news = asyncio.Event()


class MockServer:
    """The server, in a thread of its own; each field may be changed between requests."""

    CLIP: ClassVar = {"id": "clip-1", "seconds": 12.5, "fps": 25.0, "width": 640, "height": 360, "complete": True}

    def __init__(self, port: int = 0, delay: float = 0.0) -> None:
        self.port, self.delay = port, delay
        self.reset()

    def reset(self, delay: float | None = None) -> None:
        """Behave well, and forget what was asked."""
        self.delay = self.delay if delay is None else delay
        self.plans, self.rewards, self.same = PLANS, REWARDS, SAME
        self.coverage = {"state": "known", "value": 0.9, "sentence": "The corpus knows this task."}
        self.reading = ["put the pan on the stove", "crack two eggs"]
        self.info: dict[str, Any] = {
            "version": __version__,
            "model": {"name": "mock-planner", "sees_video": False},
            "phi": {"name": "mock-phi"},
            "corpus": {"id": "c0ffee12", "narrations": 1200, "segments": 48000, "too_small": None},
            "verifier": {"name": "grounded", "scale": "0 is chance, 1 is what the narrations say word for word"},
            "default": "This is the demo's planner and its made-up kitchen world.",
            "examples": EXAMPLES,
            "limits": {
                "plans": 8, "default_plans": 4, "history": 100, "characters": 500,
                "clip_bytes": 50_000_000, "clip_seconds": 600,
            },
            "keep": True,
            "criteria": CRITERIA,
            "highest": 5,
        }  # fmt: skip
        self.refusals: list[tuple[int, str, str]] = []
        """Answers to the next POSTs of runs: status, code, message."""
        self.clip_refusal: tuple[int, str, str] | None = None
        self.drops: set[int] = set()
        """Events after which the connection ends, once each."""
        self.skips: set[int] = set()
        """Events that are left out of a connection, once each."""
        self.replays = False
        """Whether a client that comes back gets all events again, with other texts in what it has already."""
        self.hold: int | None = None
        """The number of events after which a run waits until this is None."""
        self.requests: list[tuple[str, str, Any]] = []
        self.continued: list[int] = []
        """What each connection to events gave as its last event."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Serve, with no memory of earlier runs."""
        config = uvicorn.Config(
            self._app(), port=self.port, log_level="critical", lifespan="off", timeout_graceful_shutdown=0
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        until = time.monotonic() + 300
        while not self._server.started:
            assert time.monotonic() < until, "the mock server did not start"
            time.sleep(0.01)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    def stop(self) -> None:
        """Die in the middle of whatever is being sent."""
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(300)

    def bodies(self, method: str, ending: str) -> list[Any]:
        """What was sent by this method to addresses that end so."""
        return [body for sent, path, body in list(self.requests) if sent == method and path.endswith(ending)]

    def _app(self) -> FastAPI:
        app = FastAPI()
        runs: dict[str, Run] = {}
        keys: dict[str, str] = {}
        tasks: set[asyncio.Task[None]] = set()
        environment = page_environment("recipe_apps.serving")

        def refuse(status: int, code: str, message: str) -> JSONResponse:
            return JSONResponse({"error": {"code": code, "message": message}}, status)

        @app.middleware("http")
        async def headers(request: Request, call_next: Any) -> Response:
            reply: Response = await call_next(request)
            reply.headers.update(PAGE_HEADERS)
            return reply

        @app.get("/")
        def page() -> Response:
            return Response(
                environment.get_template("planner.html.jinja").render(version=__version__), media_type="text/html"
            )

        @app.get("/static/planner.css")
        def style() -> Response:
            return Response(environment.get_template("planner.css").render(), media_type="text/css")

        @app.get("/static/planner.js")
        def script() -> Response:
            return Response(template("recipe_apps.serving", "planner.js"), media_type="text/javascript")

        @app.get("/api/info")
        def about() -> dict[str, Any]:
            return self.info

        @app.post("/api/runs")
        async def create(request: Request) -> Response:
            body = await request.json()
            self.requests.append(("POST", "/api/runs", body))
            RunRequest.model_validate(body)
            if self.refusals:
                return refuse(*self.refusals.pop(0))
            if body.get("key") not in keys:
                run = Run(f"run-{len(runs) + 1}-{id(runs)}", body)
                runs[run.id] = run
                keys[body.get("key")] = run.id
                task = asyncio.create_task(self._write(run))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            return JSONResponse({"id": keys[body["key"]], "state": "queued", "position": 1}, 202)

        @app.get("/api/runs/{id}/events")
        async def events(id: str, request: Request) -> Response:
            if id not in runs:
                return refuse(404, "unknown_run", "There is no such run.")
            run, after = runs[id], int(request.headers.get("last-event-id", 0))
            self.continued.append(after)
            if run.over and after >= len(run.events):
                return Response(status_code=204)
            return StreamingResponse(self._stream(run, after), media_type="text/event-stream")

        @app.delete("/api/runs/{id}")
        async def cancel(id: str) -> Response:
            self.requests.append(("DELETE", f"/api/runs/{id}", None))
            if id not in runs:
                return refuse(404, "unknown_run", "There is no such run.")
            runs[id].cancelled = True
            runs[id].add("cancelled", {"reason": "cancelled by the client"})
            return JSONResponse({"id": id, "state": "cancelled"})

        @app.post("/api/runs/{id}/deviation")
        async def deviation(id: str, request: Request) -> Response:
            body = await request.json()
            DeviationRequest.model_validate(body)
            self.requests.append(("POST", f"/api/runs/{id}/deviation", body))
            return (
                JSONResponse(self._deviation(runs[id], body))
                if id in runs
                else refuse(404, "unknown_run", "There is no such run.")
            )

        @app.post("/api/runs/{id}/feedback")
        async def feedback(id: str, request: Request) -> Response:
            body = await request.json()
            FeedbackRequest.model_validate(body)
            self.requests.append(("POST", f"/api/runs/{id}/feedback", body))
            return JSONResponse({"kept": True}, 201)

        @app.post("/api/clips")
        async def clips(request: Request) -> Response:
            size = 0
            async for chunk in request.stream():
                size += len(chunk)
            self.requests.append(("POST", "/api/clips", size))
            await asyncio.sleep(self.delay)
            return refuse(*self.clip_refusal) if self.clip_refusal else JSONResponse(self.CLIP, 201)

        @app.delete("/api/clips/{id}")
        def no_clip(id: str) -> Response:
            self.requests.append(("DELETE", f"/api/clips/{id}", None))
            return Response(status_code=204)

        return app

    async def _stream(self, run: Run, after: int) -> AsyncIterator[str]:
        yield ": hello\n\n"
        for number, (kind, data) in enumerate(run.events[: after if self.replays else 0], 1):
            yield f"id: {number}\nevent: {kind}\ndata: {json.dumps(data | {'text': 'sent again'})}\n\n"
        while True:
            news = run.news
            while after < len(run.events):
                kind, data = run.events[after]
                after += 1
                if after in self.skips:
                    self.skips.discard(after)
                    continue
                yield f"id: {after}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"
                if after in self.drops:
                    self.drops.discard(after)
                    return
            if run.over:
                return
            await news.wait()

    async def _write(self, run: Run) -> None:
        begun = time.monotonic()
        for kind, data in self._events(run):
            while self.hold is not None and len(run.events) >= self.hold:
                await asyncio.sleep(0.02)
            run.add(kind, data)
            await asyncio.sleep(self.delay)
            if run.cancelled:
                return
        run.add("done", {"seconds": time.monotonic() - begun, "tokens": 212})

    def _events(self, run: Run) -> list[Event]:
        if run.body["kind"] == "reading":
            return [("started", {"plans": 1}), ("reading", {"steps": self.reading, "seconds": run.body["until"]})]
        count = min(run.body["plans"], len(self.plans))
        plans = self.plans[:count]
        made: list[Event] = [("queued", {"position": 1}), ("started", {"plans": count}), ("coverage", self.coverage)]
        checked = self.coverage["state"] != "none"
        for number in range(1, max(map(len, plans)) + 1):
            for plan, steps in enumerate(plans):
                if number > len(steps):
                    continue
                made.append(("step", {"plan": plan, "number": number, "text": steps[number - 1]}))
                if checked:
                    made.append(("evidence", evidence(plan, number, steps[number - 1])))
        for plan, steps in enumerate(plans):
            found = [evidence(plan, n, text) for n, text in enumerate(steps, 1)] if checked else []
            adds = [(0.031, -0.0002)[n] if n < 2 else 0.031 - 0.02 * n for n in range(len(steps))] if checked else None
            reward = self.rewards[plan] if checked else None
            made.append(("plan", {"plan": plan, "steps": steps, "reward": reward, "adds": adds, "evidence": found}))
        rewards = self.rewards[:count] if checked else [None] * count
        order = sorted(range(count), key=lambda plan: -self.rewards[plan])
        same = self.same if order[0] == 1 else [[None] * len(steps) for steps in plans]
        made.append(("ranking", {"order": order, "rewards": rewards, "same": same[:count], "samples": [1] * count}))
        return made

    def _deviation(self, run: Run, body: dict[str, Any]) -> dict[str, Any]:
        """By equal texts; the real server compares meanings."""
        steps, done = self.plans[body["plan"]], body["history"]
        last = max((n for n, step in enumerate(steps) if step in done), default=-1)
        states = ["done" if step in done else "skipped" if n < last else "open" for n, step in enumerate(steps)]
        rows = [
            {"number": n, "text": step, "state": state, "by": done.index(step) if step in done else None}
            for n, (step, state) in enumerate(zip(steps, states, strict=True), 1)
        ]
        known = {*steps, *run.body["history"]}
        orders = [
            {
                "before": step, "after": steps[last], "says": 7, "against": 1, "about": 9,
                "grounds": [{"before": ground(step, 1), "after": ground(steps[last], 2)}],
            }
            for step, state in zip(steps, states, strict=True)
            if state == "skipped"
        ]  # fmt: skip
        return {
            "steps": rows,
            "unexpected": [n for n, text in enumerate(done) if text not in known],
            "rest": [step for step, state in zip(steps, states, strict=True) if state != "done"],
            "orders": orders,
        }
