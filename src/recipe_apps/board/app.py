"""The board's pages and the API behind them (docs/board.md).

Whoever comes may read what is public. A token, sent as a bearer, tells submitters and owners; it is never a cookie, so
that a page of another site cannot use it. Everything that changes something goes through the store, which logs it.
"""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from recipe import __version__
from recipe.artifacts import JsonObject, to_json
from recipe.errors import ComputeError, ConfigError, InputError, MissingExtra, RecipeError, shortened
from recipe_apps.board.models import Account, Submission, storable
from recipe_apps.board.pages import Pages
from recipe_apps.board.setup import rescore
from recipe_apps.board.standings import as_csv, refresh, stale_boards
from recipe_apps.board.store import Board, QuotaExceeded, Unknown
from recipe_apps.board.validation import MOST_BYTES, SubmissionCheck, check_submission
from recipe_apps.board.views import Views
from recipe_apps.web.guard import Intake, PageHeaders, WebMetrics, body_schema, json_response, protect
from recipe_apps.web.refusals import Refusal, read

try:
    from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request, Response
    from sqlalchemy import select
    from starlette.concurrency import run_in_threadpool
except ModuleNotFoundError as error:
    raise MissingExtra("the evaluation board", "serve") from error

_LOG = logging.getLogger(__name__)

# Bytes of a submission that is checked without a token.
_ANONYMOUS = 2_000_000
# Bytes of a message.
_MESSAGE = 20_000
# Seconds for which a public page is shown as it was made.
_FRESH = 1.0
# Seconds between two looks for boards whose standings have changed.
_LOOK = 0.5
# What chooses among the rows of a board, and the characters of each.
_QUERY = {"q": 200, "all": 8, "sort": 300, "order": 8, "page": 20}
# The largest number of a row.
_LARGEST_ID = (1 << 63) - 1
_HTML, _LINES = "text/html; charset=utf-8", "application/x-ndjson"


class NewAccount(BaseModel, extra="forbid", strict=True):
    """A new account."""

    name: Annotated[str, Field(max_length=64)]
    role: Literal["submitter", "owner"] = "submitter"
    display: Annotated[str, Field(max_length=80)] = ""


class AccountChange(BaseModel, extra="forbid", strict=True):
    """What an account may change of itself."""

    display: Annotated[str, Field(max_length=80)]


class SubmissionChange(BaseModel, extra="forbid", strict=True):
    """What may be changed of a submission."""

    private: bool | None = None
    link: Annotated[str | None, Field(max_length=300)] = None
    note: Annotated[str | None, Field(max_length=2_000)] = None


class TrackChange(BaseModel, extra="forbid", strict=True):
    """What an owner changes of a track."""

    published: bool | None = None
    closed: bool | None = None


class RescoreRequest(BaseModel, extra="forbid", strict=True):
    """Settings of the scorer that are to change, KEY=VALUE each."""

    changes: Annotated[tuple[str, ...], Field(max_length=20)] = Field(default=(), strict=False)
    keep: bool = False


class BoardService:
    """What the endpoints share."""

    def __init__(self, board: Board) -> None:
        self.board, self.views, self.pages = board, Views(board), Pages(board.title)
        self.metrics = WebMetrics("recipe_board")
        # Bodies sent with a token, and submissions that anybody has checked.
        self.intake, self.anonymous = Intake(MOST_BYTES), Intake(_ANONYMOUS)
        self._made: dict[tuple[str, str], tuple[float, str]] = {}
        self._making = threading.Lock()

    def account(self, request: Request) -> Account | None:
        """Who asks, by the token; None without one. Raises Refusal for a wrong one."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if not token:
            return None
        account = self.board.account_of(token.strip()) if scheme.lower() == "bearer" else None
        if account is None:
            raise Refusal("wrong_token", "The token is wrong or revoked; the board's owner gives another.")
        return account

    def submitter(self, request: Request) -> Account:
        """Who asks; a token is needed. Raises Refusal."""
        account = self.account(request)
        if account is None:
            raise Refusal("no_token", "This needs a token; the board's owner gives one.")
        return account

    def owner(self, request: Request) -> Account:
        """The owner who asks. Raises Refusal for everybody else."""
        account = self.submitter(request)
        if not account.is_owner:
            raise Refusal("forbidden", "Only an owner of the board may do that.")
        return account

    def may_change(self, request: Request, identity: str) -> Account:
        """Who asks, if the submission is theirs. Raises Refusal."""
        account = self.submitter(request)
        own = select(Submission.id).where(Submission.id == identity, Submission.account == account.name)
        if not (account.is_owner or self.board.database.scalars(own)):
            raise Refusal("not_found", f"There is no submission {identity[:40]!r} of this account.")
        return account

    def check(self, data: bytes, name: str) -> SubmissionCheck:
        """What the validator says of a submission for a track. Raises InputError for an unknown track."""
        track = self.board.track(name)
        others = [self.board.questions(other) for other in self.board.tracks() if other.name != name]
        other_ids = {identity for questions in others for identity in questions}
        return check_submission(data, self.board.questions(track), track.plans, other_ids)

    def page(self, name: str, query: str, make: Callable[[], str]) -> Response:
        """A public page as it was made a moment ago, or made now: many visitors at once cost one."""
        key = (name, query)
        kept = self._made.get(key)
        if kept is None or time.monotonic() >= kept[0]:
            with self._making:
                # Another visitor may have made it while this one waited.
                kept = self._made.get(key)
                if kept is None or time.monotonic() >= kept[0]:
                    kept = (time.monotonic() + _FRESH, make())
                    # Visitors choose what they search for: the pages of all searches would fill the memory.
                    if len(self._made) > 1_000:
                        self._made.clear()
                    self._made[key] = kept
        return Response(kept[1], media_type=_HTML)

    def remake_standings(self) -> None:
        """Make standings again whose scores have changed; what is wrong with one of them is logged."""
        with _logged("standings were not looked at"):
            for board in stale_boards(self.board):
                # Each by itself: one whose measure is not installed here comes again at each look.
                with _logged(f"standings of board {board} could not be made"):
                    refresh(self.board, board)

    async def keep_standings(self) -> None:
        """Make standings again every half second, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK)
            await run_in_threadpool(self.remake_standings)

    def refused(self, request: Request, error: Exception) -> Response:
        """The answer to a request that the program refuses: an envelope of the API, or a page."""
        codes: Iterable[tuple[type[Exception], str]] = (
            (Unknown, "not_found"), (QuotaExceeded, "quota_used"), (InputError, "invalid_field"),
            (ConfigError, "invalid_field"), (ComputeError, "compute_failed"), (MissingExtra, "compute_failed"),
        )  # fmt: skip
        code = next((code for kind, code in codes if isinstance(error, kind)), "internal")
        message = shortened(str(error))
        refusal = Refusal(code, message[:1].upper() + message[1:])
        self.metrics.failed(code)
        if request.url.path.startswith("/api"):
            return json_response(refusal.envelope, refusal.status, refusal.headers)
        page = self.pages.render("missing", message=refusal.message)
        return Response(page, refusal.status, refusal.headers, media_type=_HTML)


@contextmanager
def _logged(problem: str) -> Iterator[None]:
    """Log what goes wrong in the block; a fault of the program with its traceback."""
    try:
        yield
    except RecipeError as error:
        _LOG.warning("%s: %s", problem, error)
    except Exception:  # noqa: BLE001 - logged with its traceback
        _LOG.exception("%s", problem)


router = APIRouter()


# Async, because FastAPI would start a thread of its pool for each request otherwise.
async def _service(request: Request) -> BoardService:
    service: BoardService = request.app.state.board
    return service


Service = Annotated[BoardService, Depends(_service)]


def _body(kind: type[BaseModel], may_lack: bool = False) -> Any:
    """The dependency of an endpoint on its body as a message; `may_lack`: without a body, the message's defaults."""

    async def read_body(request: Request) -> BaseModel:
        async with request.app.state.board.intake.body(request, _MESSAGE) as data:
            if may_lack and not data:
                return kind()
            if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                raise Refusal("not_json", "Send JSON with the content type application/json.")
            return read(data, kind)

    return Depends(read_body)


def create_app(board: Board, *, local_only: bool = False) -> FastAPI:
    """The pages and the API of a board; with `local_only` requests must name this machine by a loopback name."""
    service = BoardService(board)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(service.keep_standings())
        yield
        task.cancel()

    app = FastAPI(title=board.title, version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.board = service
    app.router.routes.extend(router.routes)  # not included as a router, whose paths the counters would not see
    protect(app, service.metrics, None, "docs/board.md")
    app.add_exception_handler(RecipeError, service.refused)
    app.add_middleware(PageHeaders, local_only=local_only)
    return app


@router.get("/", include_in_schema=False)
def index(service: Service) -> Response:
    """All tracks and boards."""
    return service.page("index", "", lambda: service.pages.render("index", value=service.views.index()))


@router.get("/boards/{identity}", include_in_schema=False)
def board_page(service: Service, identity: str, request: Request) -> Response:
    """One board."""
    query = _query(request)
    key = str(sorted(query.items()))
    return service.page(
        f"board {identity}", key, lambda: service.pages.board(service.views.table(identity, query), query)
    )


@router.get("/systems/{identity}", include_in_schema=False)
def system(service: Service, identity: str) -> Response:
    """One submission."""
    return service.page(
        f"system {identity}", "", lambda: service.pages.render("system", value=service.views.submission(identity))
    )  # fmt: skip


# Their pages hold nothing that is not public: the script asks the API with the token that the browser keeps.
@router.get("/submit", include_in_schema=False)
@router.get("/mine", include_in_schema=False)
@router.get("/owner", include_in_schema=False)
def shell(service: Service, request: Request) -> Response:
    """A page that its script fills for the holder of a token."""
    return Response(service.pages.render(request.url.path.removeprefix("/")), media_type=_HTML)


@router.get("/static/board.css", include_in_schema=False)
@router.get("/static/board.js", include_in_schema=False)
def file(service: Service, request: Request) -> Response:
    """The pages' style, and their script."""
    content, media_type = service.pages.files[request.url.path.removeprefix("/static/")]
    return Response(content, media_type=media_type)


@router.get("/api/boards")
def boards(service: Service, request: Request) -> Response:
    """All tracks with their boards, and the queue."""
    return json_response(service.views.index(service.account(request)))


@router.get("/api/boards/{identity}.csv")
def table(service: Service, identity: str, request: Request) -> Response:
    """All rows of a board as CSV."""
    text = as_csv(*service.views.rows(identity, service.account(request)))
    headers = {"Content-Disposition": f'attachment; filename="board-{identity[:16]}.csv"'}
    return Response(text, headers=headers, media_type="text/csv; charset=utf-8")


@router.get("/api/boards/{identity}")
def board(service: Service, identity: str, request: Request) -> Response:
    """One board; `q`, `all`, `sort`, `order` and `page` choose among its rows."""
    return json_response(service.views.table(identity, _query(request), service.account(request)))


@router.get("/api/tracks/{track}/questions.jsonl")
def questions(service: Service, track: str) -> Response:
    """Goals and histories to plan for."""
    headers = {"Content-Disposition": 'attachment; filename="questions.jsonl"'}
    return Response("".join(service.views.questions(track)), headers=headers, media_type=_LINES)


@router.post("/api/check", openapi_extra=body_schema("application/x-ndjson"))
async def check(service: Service, request: Request, track: Annotated[str, Query(max_length=64)]) -> Response:
    """Every problem of a submission, as `recipe board check` finds them; nothing is kept.

    Without a token for smaller submissions only, and for few at once.
    """
    _require_plain(request)
    # A database that is away lets a question wait for seconds, in which the event loop has to answer others.
    known = await run_in_threadpool(service.account, request) is not None
    intake = service.intake if known else service.anonymous
    async with intake.body(request) as data:
        return json_response(_validation_response(await intake.work(lambda: service.check(data, track), wait=known)))


@router.post("/api/submissions", status_code=201, openapi_extra=body_schema("application/x-ndjson"))
async def submit(
    service: Service,
    request: Request,
    track: Annotated[str, Query(max_length=64)],
    system: Annotated[str, Query(max_length=80)],
    link: Annotated[str, Query(max_length=300)] = "",
    note: Annotated[str, Query(max_length=2_000)] = "",
    private: bool = False,
) -> Response:
    """Send plans for a track; what was sent before is the same submission."""
    account = await run_in_threadpool(service.submitter, request)
    _require_plain(request)

    def take() -> Response:
        checked = service.check(data, track)
        if not checked.ok:
            count = len(checked.problems) + checked.more
            refusal = Refusal("invalid_submission", f"{count} problems; nothing was stored.")
            service.metrics.failed(refusal.code)
            return json_response(refusal.envelope | _validation_response(checked), refusal.status)
        identity, new = service.board.submit(
            account.name, track, checked, system, link=link, remark=note, private=private
        )
        state = service.views.submission(identity, account)["submission"]["state"]
        return json_response({"id": identity, "state": state, "new": new}, 201 if new else 200)

    async with service.intake.body(request) as data:
        return await service.intake.work(take)


@router.get("/api/submissions/{identity}")
def submission(service: Service, identity: str, request: Request) -> Response:
    """One submission with its states, its results and what it is compared with."""
    return json_response(service.views.submission(identity, service.account(request)))


@router.patch("/api/submissions/{identity}", openapi_extra=body_schema(SubmissionChange))
def change(
    service: Service, identity: str, request: Request, message: Annotated[SubmissionChange, _body(SubmissionChange)]
) -> Response:
    """Make a submission private or public, change its link or note."""
    account = service.may_change(request, identity)
    service.board.change_submission(
        identity, account.name, private=message.private, link=message.link, remark=message.note
    )  # fmt: skip
    return json_response(service.views.submission(identity, account)["submission"])


@router.post("/api/submissions/{identity}/withdraw")
def withdraw(service: Service, identity: str, request: Request) -> Response:
    """Take a submission off all boards, for good."""
    account = service.may_change(request, identity)
    service.board.withdraw(identity, account.name)
    return json_response(service.views.submission(identity, account)["submission"])


@router.get("/api/me")
def me(service: Service, request: Request) -> Response:
    """The token's account, and its quotas."""
    return json_response(service.views.me(service.submitter(request)))


@router.patch("/api/me", openapi_extra=body_schema(AccountChange))
def rename(service: Service, request: Request, message: Annotated[AccountChange, _body(AccountChange)]) -> Response:
    """Change the name that pages show."""
    service.board.rename(service.submitter(request).name, message.display)
    return json_response(service.views.me(service.submitter(request)))


@router.get("/api/me/submissions")
def own(service: Service, request: Request) -> Response:
    """The account's submissions, newest first."""
    return json_response({"submissions": service.views.mine(service.submitter(request))})


@router.get("/api/owner")
def overview(service: Service, request: Request) -> Response:
    """Accounts, tracks, boards, failed jobs and the newest lines of the log."""
    return json_response(service.views.owner(service.owner(request)))


@router.get("/api/owner/log")
def log(
    service: Service, request: Request, before: Annotated[int | None, Query(ge=1, le=_LARGEST_ID)] = None
) -> Response:
    """Lines of the log before a number, newest first."""
    service.owner(request)
    return json_response({"log": service.views.log(before)})


@router.post("/api/owner/accounts", openapi_extra=body_schema(NewAccount))
def add(service: Service, request: Request, message: Annotated[NewAccount, _body(NewAccount)]) -> Response:
    """A new account with a token, which is shown this once."""
    token = service.board.add_account(message.name, message.role, message.display, service.owner(request).name)
    return json_response({"name": message.name, "token": token}, 201)


@router.post("/api/owner/accounts/{name}/token")
def token(service: Service, name: str, request: Request) -> Response:
    """A further token of an account."""
    return json_response({"token": service.board.new_token(name, service.owner(request).name)}, 201)


@router.post("/api/owner/accounts/{name}/revoke")
def revoke(service: Service, name: str, request: Request) -> Response:
    """End an account and its tokens."""
    service.board.revoke(name, service.owner(request).name)
    return json_response({"name": name})


@router.post("/api/owner/tracks/{name}", openapi_extra=body_schema(TrackChange))
def track(
    service: Service, name: str, request: Request, message: Annotated[TrackChange, _body(TrackChange)]
) -> Response:
    """Publish or hide results, close or open a track."""
    actor = service.owner(request).name
    service.board.change_track(name, published=message.published, closed=message.closed, actor=actor)
    return json_response({"name": name})


@router.post("/api/owner/jobs/{job}/again")
def again(service: Service, job: Annotated[int, Path(ge=1, le=_LARGEST_ID)], request: Request) -> Response:
    """Queue a job that failed or was cancelled once more."""
    service.board.again(job, service.owner(request).name)
    return json_response({"job": job})


@router.post("/api/owner/jobs/{job}/cancel")
def cancel(service: Service, job: Annotated[int, Path(ge=1, le=_LARGEST_ID)], request: Request) -> Response:
    """Cancel a job that has not ended."""
    service.board.cancel_job(job, service.owner(request).name)
    return json_response({"job": job})


@router.post("/api/owner/boards/{identity}/rescore", openapi_extra=body_schema(RescoreRequest, required=False))
def again_by(
    service: Service,
    identity: str,
    request: Request,
    message: Annotated[RescoreRequest, _body(RescoreRequest, may_lack=True)],
) -> Response:
    """Score all submissions again by this program's scorer, with changed settings; a new board."""
    new, count = rescore(service.board, identity, message.changes, message.keep, service.owner(request).name)
    return json_response({"board": new, "jobs": count}, 201)


@router.post("/api/owner/boards/{identity}/retire")
def retire(service: Service, identity: str, request: Request) -> Response:
    """Take a scorer out of use; its board stays readable."""
    service.board.retire(identity, service.owner(request).name)
    return json_response({"board": identity})


@router.get("/healthz")
def healthz(service: Service) -> Response:
    """The process answers, and its database too."""
    service.views.queue()
    return json_response({"status": "alive"})


@router.get("/metrics")
def metrics(service: Service) -> Response:
    """Counters in Prometheus's format."""
    return service.metrics.response()


def _query(request: Request) -> dict[str, str]:
    """What a request chooses among the rows of a board. Raises InputError."""
    values = request.query_params
    return {name: storable(name, values[name], longest) for name, longest in _QUERY.items() if name in values}


def _require_plain(request: Request) -> None:
    """Raise Refusal for a body that is compressed."""
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Refusal("not_json", "Send the JSON lines themselves, not compressed.")


def _validation_response(checked: SubmissionCheck) -> JsonObject:
    values = {"ok": checked.ok, "plans": checked.plans, "examples": checked.examples, "sha": checked.sha}
    return values | {"problems": to_json(checked.problems), "more": checked.more}
