"""A backup that an enemy made: refused in a sentence, or harmless."""

import os
import shutil
import sqlite3
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from board_helpers import lines, score_all, submit

from recipe.errors import InputError
from recipe.types import Example
from recipe_apps.board.backup import backup, restore
from recipe_apps.board.setup import demo_board
from recipe_apps.board.store import Board

pytestmark = pytest.mark.thorough

Spoil = Callable[[sqlite3.Connection], object]


@pytest.fixture
def file(board: Board, database: str, examples: list[Example], tmp_path: Path) -> Path:
    """A sound backup of a board with a scored submission."""
    board.add_account("olga", "owner")
    submit(board, "olga", lines(examples))
    score_all(board)
    backup(database, tmp_path / "backup.db")
    return tmp_path / "backup.db"


def sql(*statements: str) -> Spoil:
    return lambda connection: [connection.execute(one) for one in statements]


def bomb(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE submissions SET content = ?", (zlib.compress(b"\0" * (1 << 26), 9),))


HOSTILE: dict[str, Spoil] = {
    "a table more": sql("CREATE TABLE more (a)"),
    "a view": sql("CREATE VIEW more AS SELECT * FROM accounts"),
    "a view in place of a table": sql("DROP TABLE workers", "CREATE VIEW workers AS WITH RECURSIVE t(n) AS "
                                      "(SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT n AS name FROM t"),
    "a trigger": sql("CREATE TRIGGER more AFTER INSERT ON tokens BEGIN DELETE FROM accounts; END"),
    "a trigger of the log that does something else": sql(
        "DROP TRIGGER log_no_update",
        "CREATE TRIGGER log_no_update BEFORE UPDATE ON log BEGIN DELETE FROM tokens; END"),
    "no trigger of the log": sql("DROP TRIGGER log_no_delete"),
    "a column more": sql("ALTER TABLE accounts ADD COLUMN more TEXT DEFAULT 'x'"),
    "a computed column": sql("ALTER TABLE accounts ADD COLUMN more TEXT AS (hex(zeroblob(100000000)))"),
    "another version": sql("UPDATE alembic_version SET version_num = '9999'"),
    "two versions": sql("INSERT INTO alembic_version VALUES ('0001')"),
    "a text for a time": sql("UPDATE submissions SET created = 'soon'"),
    "an endless time": sql("UPDATE jobs SET ended = 9e999"),
    "a blob for a name": sql("UPDATE accounts SET display = x'ff00'"),
    "bytes that are no text": sql("UPDATE accounts SET display = CAST(x'fffe' AS TEXT)"),
    "a name that is too long": sql("UPDATE submissions SET system = hex(zeroblob(5000))"),
    "a script as a link": sql("UPDATE submissions SET link = 'javascript:alert(1)'"),
    "a note with a NUL, of a version before 0.3.0": sql("UPDATE submissions SET note = 'a' || char(0) || 'b'"),
    "scores of a version before 0.3.0": sql("UPDATE scores SET figures = json_remove(figures, '$.unscored_share')"),
    "commands of a terminal": sql("UPDATE submissions SET note = char(27) || '[2J'"),
    "a number beyond 64 bits": sql("UPDATE tracks SET day_quota = 9223372036854775807"),
    "half a number": sql("UPDATE tracks SET plans = 1.5"),
    "a role that is none": sql("UPDATE accounts SET role = 'root' WHERE name = 'olga'"),
    "a state that is none": sql("UPDATE jobs SET state = 'free'"),
    "a key of tokens that is short": sql("UPDATE meta SET value = '' WHERE key = 'token key'"),
    "a key of tokens that is none": sql("UPDATE meta SET value = 'zz' WHERE key = 'token key'"),
    "no title": sql("DELETE FROM meta WHERE key = 'title'"),
    "rows of nobody": sql("PRAGMA foreign_keys=OFF", "UPDATE tokens SET account = 'ghost'"),
    "figures that are none": sql("UPDATE scores SET figures = '{}'"),
    "figures that are no JSON": sql("UPDATE scores SET figures = '{'"),
    "endless figures": sql("UPDATE scores SET figures = replace(figures, '\"mean\": ', '\"mean\": 1e999')"),
    "scores of other questions": sql("UPDATE scores SET per_example = x'789c030000000001'"),
    "plans that are others": sql("UPDATE submissions SET sha = id || substr(sha, 13)"),
    "plans that are packed badly": sql("UPDATE submissions SET content = x'00'"),
    "a packed bomb": bomb,
    "references that are others": sql("UPDATE reference_sets SET examples = x'789c030000000001'"),
    "settings of no scorer": sql("UPDATE scorers SET settings = '{\"measure\": \"none\"}'"),
    "another scorer": sql("UPDATE scorers SET identity = '{}'"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_no_board_wrote_is_refused_and_leaves_nothing(
    name: str, sound: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, target = tmp_path / "spoilt.db", tmp_path / "restored.db"
    shutil.copy(sound, file)
    connection = sqlite3.connect(file, isolation_level=None)
    HOSTILE[name](connection)
    connection.close()
    with pytest.raises(InputError) as raised:
        restore(file, f"sqlite:///{target}")
    assert "\n" not in str(raised.value)
    assert str(raised.value).endswith(".")
    with pytest.raises(InputError):
        Board.open(f"sqlite:///{target}")
    if name in ("a view", "figures that are none"):  # refused before, and in the midst of the copy
        restore(sound, f"sqlite:///{target}")  # the place is still free
        Board.open(f"sqlite:///{target}").close()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory, demo_run: Path) -> Path:
    """A backup of the demo board, whose submissions are scored."""
    folder = tmp_path_factory.mktemp("sound")
    board, _ = demo_board(f"sqlite:///{folder / 'board.db'}", demo_run, "hash:64")
    board.add_account("olga", "owner")
    score_all(board, ("validity", "proxy"))
    board.close()
    backup(f"sqlite:///{folder / 'board.db'}", folder / "backup.db")
    return folder / "backup.db"


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + b"\xff" * 4_000, os.urandom(5_000)])
def test_a_file_that_is_no_database(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "file.db"
    file.write_bytes(content)
    with pytest.raises(InputError):
        restore(file, f"sqlite:///{tmp_path / 'restored.db'}")


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_file_that_is_cut_off_or_overwritten(sound: Path, share: float, tmp_path: Path) -> None:
    whole = sound.read_bytes()
    for number, spoilt in enumerate(
        (whole[: int(share * len(whole))], whole[: int(share * len(whole))] + b"\xff" * 9_000)
    ):
        file, target = tmp_path / f"{number}.db", f"sqlite:///{tmp_path / 'restored.db'}"
        file.write_bytes(spoilt)
        with pytest.raises(InputError):
            restore(file, target)


def test_a_sound_backup_is_restored_on_both(file: Path, database: str, board: Board, tmp_path: Path) -> None:
    rows, owners = restore(file, f"sqlite:///{tmp_path / 'restored.db'}")
    assert rows > 50
    assert owners == ["olga"]
