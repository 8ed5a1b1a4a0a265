"""Commands of `recipe board`: the evaluation board, for its owner and for those who submit."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from recipe.artifacts import cache_folder, not_a_file, require_writable, write_json, write_text
from recipe.cli import console
from recipe.cli.console import CommandGroup, CommandOutput, shows
from recipe.cli.flags import require_file_of, settable, setting_keys, with_settings
from recipe.cli.models import JUDGE
from recipe.cli.reward_options import service_token
from recipe.config import ModelConfig, load_config
from recipe.errors import InputError, require_packages

if TYPE_CHECKING:
    from recipe.report.elements import Table
    from recipe_apps.board.client import BoardClient
    from recipe_apps.board.store import Board

app = CommandGroup(help="Run an evaluation board, and take part in one.")
account = CommandGroup(help="Who may submit, and who owns the board.")
app.add_typer(account, name="account")

_DEFAULT = "runs/board.db"
_DEMO = Path("runs/demo")
Database = Annotated[
    str,
    typer.Option(
        envvar="RECIPE_BOARD",
        help="SQLite file, or the address of a PostgreSQL database such as postgresql://user@host/board.",
    ),
]
Url = Annotated[str, typer.Option(envvar="RECIPE_BOARD_URL", help="Address of the board, such as http://host:8002.")]
# Priority of workers and backups: on a machine that also serves the pages, visitors go first.
_NICE = 10
TokenFile = Annotated[Path | None, typer.Option(help="File with your token; or set RECIPE_TOKEN.")]
BoardId = Annotated[str, typer.Argument(metavar="BOARD", help="Id of the board, as its address has it.")]
_LOCAL = "http://127.0.0.1:8002"


def _lower_priority() -> None:
    """Let other processes of this machine go first; a second call changes nothing."""
    os.nice(max(0, _NICE - os.nice(0)))


def _require_board() -> None:

    require_packages(dict.fromkeys(("board", "serve", "report"), "the evaluation board"))


@contextmanager
def _opened(database: str) -> "Iterator[Board]":
    _require_board()
    from recipe_apps.board.store import Board

    board = Board.open(database)
    try:
        yield board
    finally:
        board.close()


@app.command("init")
@shows
def init(
    config: Annotated[Path | None, typer.Argument(help="The board's settings, a TOML file (docs/board.md).")] = None,
    database: Database = _DEFAULT,
    demo: Annotated[bool, typer.Option("--demo", help="A board on the embedded world, with systems on it.")] = False,
    run: Annotated[
        Path | None, typer.Option(help="With --demo: run folder of `recipe demo`. Default: runs/demo, if it is there.")
    ] = None,
    encoder: Annotated[str, typer.Option(help="With --demo: encoder of the proxy judge.")] = "minilm",
) -> CommandOutput:
    """Make a board: its tracks, scorers and control rows, and the owner's account.

    The owner's token is printed only this once. Give either CONFIG or --demo.

    Example: recipe board init --demo

    Example: recipe board init board.toml --database postgresql://board@localhost/board
    """
    _require_board()
    from recipe_apps.board.setup import OWNER, demo_board, fill_board
    from recipe_apps.board.store import Board

    if demo == (config is not None):
        raise InputError("give one of a file of settings and --demo.")
    if demo:
        folder = run if run is not None else (_DEMO if (_DEMO / "data" / "test.jsonl").is_file() else None)
        board, tokens = demo_board(database, folder, encoder)
    else:
        from recipe_apps.board.settings import BoardSettings

        assert config is not None
        require_file_of("recipe board init", config)
        settings = load_config(config, BoardSettings)
        tokens = dict[str, str]()

        def fill(made: Board) -> None:
            assert config is not None
            fill_board(made, settings, config.parent)
            tokens[OWNER] = made.add_account(OWNER, "owner", "The owner")

        board = Board.create(database, settings.title, fill)
    board.close()
    lines = [
        *(f"token of {name}: {token}" for name, token in tokens.items()),
        "Keep the tokens: they are shown this once. Next:",
        f"  recipe board worker --database {database}",
        f"  recipe board serve --database {database}",
    ]
    return CommandOutput({"database": database, "tokens": tokens}, lines)


@app.command("upgrade")
def upgrade(database: Database = _DEFAULT) -> None:
    """Bring the tables of a board to this version; make a backup first.

    Example: recipe board upgrade --database runs/board.db
    """
    from recipe_apps.board.database import Database as Opened

    opened = Opened(database)
    opened.upgrade()
    opened.close()
    console.print_lines(f"{database}: its tables are those of this version")


@app.command("serve")
def serve(
    database: Database = _DEFAULT,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 is all interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 takes a free one.")] = 8002,
) -> None:
    """Serve the board's pages and its API. Workers are processes of their own.

    Example: recipe board serve --port 8002
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with _opened(database) as board:
        from recipe_apps.board.app import create_app
        from recipe_apps.web.process import LOOPBACK, address_of, listen, run_service

        with listen(host, port) as bound:
            logging.getLogger(__name__).info("open %s", address_of(host, bound))
            served = create_app(board, local_only=host in LOOPBACK)
            run_service(served, bound, lambda: None, 10.0)


@app.command("worker")
@with_settings(model=JUDGE)
def worker(
    database: Database = _DEFAULT,
    measures: Annotated[
        str, typer.Option(help="What this worker measures. Default: all, `judge` with --endpoint only.")
    ] = "",
    name: Annotated[str, typer.Option(help="Name in the log. Default: this machine's and the process number.")] = "",
    lease: Annotated[
        float, typer.Option(min=1, max=600, help="Seconds without a sign of life after which others take over its job.")
    ] = 30.0,
    until_empty: Annotated[bool, typer.Option("--until-empty", help="Stop once nothing is left to score.")] = False,
    *,
    model: ModelConfig,
) -> None:
    """Score what is queued. Any number of workers may run, on other machines too.

    The name of a judge is the board's; this command says where it is asked.

    Example: recipe board worker

    Example: recipe board worker --measures judge --endpoint http://localhost:8000/v1
    """
    import signal

    from recipe.evaluation import board_measures

    _lower_priority()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    known = board_measures()
    chosen = [measure for measure in known if measure != "judge" or model.endpoint]
    if measures:
        chosen = [measure.strip() for measure in measures.split(",")]
        if unknown := [measure for measure in chosen if measure not in known]:
            raise InputError(f"measure {unknown[0]!r} is unknown; known are {', '.join(known)}.")
    if model.model:
        raise InputError("the board names the judge; leave --judge out.")
    # The job waits in the queue while the endpoint is away, so that pages say so; a request need not wait as well.
    judge = model if "patience" in model.model_fields_set else model.model_copy(update={"patience": 20.0})
    if judge.cache is None:
        judge = judge.model_copy(update={"cache": cache_folder() / "board"})
    with _opened(database) as board:
        from recipe_apps.board.work import Worker

        working = Worker(board, name, chosen, lease, judge if judge.endpoint else None)
        before = [signal.signal(number, lambda *_: working.stop()) for number in (signal.SIGTERM, signal.SIGINT)]
        try:
            done = working.run(until_empty)
        finally:
            for number, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
                signal.signal(number, handler)
    console.print_lines(f"{done} jobs scored")


@app.command("check")
@shows
def check(
    file: Annotated[Path, typer.Argument(help="Predictions, JSON lines, as `recipe plan` writes them.")],
    questions: Annotated[Path, typer.Option(help="The track's questions, as downloaded from the board.")],
    plans: Annotated[int, typer.Option(min=1, help="Plans that the track asks for of each question.")] = 1,
) -> CommandOutput:
    """Check predictions as the board will, without it: all problems at once, each with its line and field.

    Example: recipe board check predictions.jsonl --questions questions.jsonl
    """
    from recipe.data.examples import read_examples
    from recipe_apps.board.validation import MOST_BYTES, check_submission

    if not file.is_file():
        raise not_a_file(file)
    by_id = {question.example_id: question for question in read_examples(questions, questions=True)}
    with file.open("rb") as stream:
        data = stream.read(MOST_BYTES + 1)
    checked = check_submission(data, by_id, plans)
    fields = ("line", "field", "problem", "remedy")
    problems = [{name: getattr(problem, name) for name in fields} for problem in checked.problems]
    value = {"ok": checked.ok, "plans": checked.plans, "sha": checked.sha, "problems": problems, "more": checked.more}
    if checked.ok:
        return CommandOutput(value, [f"{checked.plans:,} plans for {checked.examples:,} questions: ready to submit."])
    count = len(checked.problems) + checked.more
    error = InputError(f"{file}: {count} problem{'s' * (count > 1)}; nothing was sent.")
    return CommandOutput(value, [problem.sentence() for problem in checked.problems], error)


@contextmanager
def _client(url: str, token_file: Path | None) -> "Iterator[BoardClient]":

    require_packages({"client": "a board's client"})
    from recipe_apps.board.client import BoardClient

    token = service_token(token_file)
    with BoardClient(url, None if token is None else token.get_secret_value()) as client:
        yield client


@app.command("submit")
@shows
def submit(
    file: Annotated[Path, typer.Argument(help="Predictions, JSON lines.")],
    track: Annotated[str, typer.Option(help="Track of the board.")],
    system: Annotated[str, typer.Option(help="Name of your system, as the board shows it.")],
    url: Url = _LOCAL,
    token_file: TokenFile = None,
    link: Annotated[str, typer.Option(help="Address of a paper or a page about the system.")] = "",
    note: Annotated[str, typer.Option(help="A remark that the system's page shows.")] = "",
    private: Annotated[bool, typer.Option("--private", help="Show the row to you and the owner only.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is scored, and show the figures.")] = False,
) -> CommandOutput:
    """Send predictions to a board. Sending the same ones again is harmless: a submission is known by its content.

    Example: recipe board submit predictions.jsonl --track world --system mine --url http://host:8002 --token-file token
    """
    from recipe.report.elements import Table

    if not file.is_file():
        raise not_a_file(file)
    with _client(url, token_file) as client:
        sent = client.submit(track, system, file.read_bytes(), link, note, private)
        value, figures, state = sent, list[Table](), sent["state"]
        if wait:
            with console.progress().task("scoring") as advance:
                scored = client.wait(sent["id"], lambda: advance(0))["submission"]
            value, figures, state = client.submission(sent["id"]), [_jobs(scored)], scored["state"]
    known = "" if sent["new"] else " (sent before)"
    return CommandOutput(value, [f"{sent['id']}: {state}{known}", f"{url.rstrip('/')}/systems/{sent['id']}", *figures])


@app.command("status")
@shows
def status(
    identity: Annotated[str, typer.Argument(metavar="[SUBMISSION]", help="Id of a submission.")] = "",
    url: Url = _LOCAL,
    token_file: TokenFile = None,
) -> CommandOutput:
    """Show a submission's states and figures; without an id, your submissions, the boards and the queue.

    Example: recipe board status --url http://host:8002 --token-file token
    """
    with _client(url, token_file) as client:
        if identity:
            known = client.submission(identity)
            return CommandOutput(known, [_jobs(known["submission"])])
        index, mine = client.boards(), client.mine() if client.has_token else []
    from recipe.report.elements import Cell, Table, headings, row

    rows = []
    for track in index["tracks"]:
        for board in track["boards"]:
            leader = board["leader"]
            figure = Cell(None) if leader is None else Cell(leader["value"]["mean"], board["digits"])
            first = leader["system"] if leader else ""
            first += f", tied with {leader['tied']} more" if leader and leader["tied"] else ""
            rows.append(row(board["label"], board["id"], board["systems"], first, figure, section=track["title"]))
    queue, columns = index["queue"], headings("board", "systems", "leader", "figure")
    note = f"{queue['queued']} jobs wait, {queue['running']} run, {len(queue['workers'])} workers are alive."
    table = Table(index["title"], "scorer", columns, tuple(rows), notes=(note,))
    return CommandOutput(index | {"submissions": mine}, [table, *map(_jobs, mine)])


def _scorer_keys() -> dict[str, str]:
    from recipe_apps.board.settings import ScorerSettings

    return setting_keys(ScorerSettings)


@app.command("rescore")
@settable(_scorer_keys)
def rescore(
    board: BoardId,
    database: Database = _DEFAULT,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a key of the scorer; repeat for more.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the old scorer in use, too.")] = False,
) -> None:
    """Score all submissions again with this version's scorer, on a new board; the old one stays readable.

    Example: recipe board rescore 9f2c51aa03b4d6e7 --set judge.repeats=3
    """
    with _opened(database) as opened:
        from recipe_apps.board.setup import rescore as score_again

        new, jobs = score_again(opened, board, changes or (), keep)
    console.print_lines(f"board {new}: {jobs} jobs queued")


@app.command("track")
def track(
    name: Annotated[str, typer.Argument(help="Name of the track.")],
    database: Database = _DEFAULT,
    results: Annotated[Literal["open", "hidden"] | None, typer.Option(help="Publish or hide its results.")] = None,
    entries: Annotated[Literal["open", "closed"] | None, typer.Option(help="Take submissions, or no more.")] = None,
) -> None:
    """Publish or hide the results of a track, close or open it for submissions.

    Example: recipe board track world --results open --entries closed
    """
    if results is None and entries is None:
        raise InputError("give --results, --entries or both.")
    with _opened(database) as board:
        board.change_track(
            name,
            published=None if results is None else results == "open",
            closed=None if entries is None else entries == "closed",
        )


@app.command("backup")
def backup(
    output: Annotated[Path, typer.Option(help="File to write: a SQLite database, whatever the board is in.")],
    database: Database = _DEFAULT,
) -> None:
    """Write the whole board to one file, while it is in use: references, submissions, scores and the log.

    Example: recipe board backup --output backups/monday.db
    """
    from recipe_apps.board.backup import backup as write

    _lower_priority()
    console.print_lines(f"{write(database, output):,} rows in {output}")


@app.command("restore")
def restore(
    file: Annotated[Path, typer.Argument(help="File that `recipe board backup` wrote.")], database: Database = _DEFAULT
) -> None:
    """Copy a backup into an empty database; what was running then is queued again.

    Example: recipe board restore backups/monday.db --database postgresql://board@localhost/board
    """
    from recipe_apps.board.backup import restore as copy

    rows, owners = copy(file, database)
    console.print_lines(
        f"{rows:,} rows",
        f"Tokens of the backup work; owners are {', '.join(owners) or 'none'}. "
        "If you do not know who made the file, revoke them: recipe board account revoke NAME",
    )


@app.command("export")
def export(
    board: BoardId,
    output: Annotated[Path, typer.Option(help="File to write: CSV, or JSON by its ending.")],
    database: Database = _DEFAULT,
) -> None:
    """Write all rows of a board, even if its results are hidden.

    Example: recipe board export 9f2c51aa03b4d6e7 --output board.csv
    """

    require_writable(output)
    with _opened(database) as opened:
        from recipe_apps.board.models import Account
        from recipe_apps.board.standings import as_csv, refresh
        from recipe_apps.board.views import Views

        refresh(opened, board)
        views, owner = Views(opened), Account(name="owner", display="", role="owner")
        summary, (rows, datasets) = views.table(board, {}, owner)["board"], views.rows(board, owner)
    if output.suffix == ".json":
        write_json(output, {"board": summary, "rows": rows})
    else:
        write_text(output, as_csv(rows, datasets))


@account.command("add")
@shows
def add_account(
    name: Annotated[str, typer.Argument(help="Name: a-z, 0-9, '-', '_' and '.'.")],
    database: Database = _DEFAULT,
    owner: Annotated[
        bool, typer.Option("--owner", help="An owner of the board, who sees and may do everything.")
    ] = False,
    display: Annotated[str, typer.Option(help="Name that pages show. Default: the name.")] = "",
) -> CommandOutput:
    """Make an account; its token is printed only this once.

    Example: recipe board account add ann --display "Ann, University of X"
    """
    with _opened(database) as board:
        token = board.add_account(name, "owner" if owner else "submitter", display)
    return CommandOutput({"name": name, "token": token}, [f"token of {name}: {token}"])


@account.command("token")
@shows
def new_token(
    name: Annotated[str, typer.Argument(help="Name of the account.")], database: Database = _DEFAULT
) -> CommandOutput:
    """Make a further token for an account, such as for one that was lost.

    Example: recipe board account token ann
    """
    with _opened(database) as board:
        token = board.new_token(name)
    return CommandOutput({"name": name, "token": token}, [f"token of {name}: {token}"])


@account.command("revoke")
def revoke(name: Annotated[str, typer.Argument(help="Name of the account.")], database: Database = _DEFAULT) -> None:
    """End an account and all its tokens; its submissions stay.

    Example: recipe board account revoke ann
    """
    with _opened(database) as board:
        board.revoke(name)


@account.command("list")
@shows
def accounts(database: Database = _DEFAULT) -> CommandOutput:
    """List the accounts of a board.

    Example: recipe board account list
    """
    with _opened(database) as board:
        from recipe.report.elements import Table, headings, row
        from recipe_apps.board.models import Account
        from recipe_apps.board.views import Views

        known = Views(board).owner(Account(name="owner", display="", role="owner"))["accounts"]
    rows = tuple(
        row(of["name"], of["role"], of["display"], of["submissions"], "revoked" if of["revoked"] else "")
        for of in known
    )
    return CommandOutput(known, [Table("Accounts", "name", headings("role", "shown as", "submissions", "state"), rows)])


def _jobs(submission: dict[str, Any]) -> "Table":
    """A submission's jobs, a row each."""
    from recipe.report.elements import Cell, Table, headings, row

    rows = []
    for job in submission["jobs"]:
        value = job.get("value")
        figure = Cell(None) if value is None else Cell(value["mean"], job["digits"])
        position = "" if job["position"] is None else f"place {job['position']} in the queue"
        rows.append(row(job["label"], job["state"], figure, job.get("place") or "", job["reason"] or position))
    caption = f"{submission['system']} on {submission['track_title']}: {submission['state']} ({submission['id']})"
    return Table(caption, "scorer", headings("state", "figure", "place", ""), tuple(rows))
