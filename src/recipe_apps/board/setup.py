"""A board from its file of settings, the demo board on the embedded world, and scoring again by another scorer."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from recipe.artifacts import fingerprint
from recipe.config import changed_values, parse_config
from recipe.data.examples import read_examples
from recipe.errors import ComputeError, InputError
from recipe.planning.predictions import Prediction, read_predictions
from recipe.types import Example
from recipe.world.examples import draw_examples
from recipe.world.load import load_world
from recipe_apps.board.scoring import control_predictions, label_of, open_scorer, require_usable
from recipe_apps.board.settings import BoardSettings, ScorerSettings, TrackSettings
from recipe_apps.board.store import BOARD, Board, Entry, References, Track, Unknown
from recipe_apps.board.tables import scorers, submissions
from recipe_apps.board.validation import Limits, check_submission
from recipe_apps.board.work import settings_of

OWNER = "owner"
"""Account that `recipe board init` makes."""
DEMO_ACCOUNT = "demo"
_UNBOUNDED = Limits(bytes=1 << 34, line=1 << 30, steps=100_000, characters=1 << 24)
"""For what the program submits itself."""
_HALF = 100
"""Questions of each kind on the demo's track."""
_KINDS = {"test_cuts": "known goals", "test_goals": "held-out goals"}
_RUNS = {
    "base": "the demo's base",
    "sft": "the demo's base, fine-tuned",
    "best-of-n-paper": "the demo's planner, taught by the paper's reward",
    "best-of-n": "the demo's planner, taught by the grounded reward",
}
"""Predictions of `recipe demo`."""
_ERRORS = {"few": 0.1, "some": 0.25, "many": 0.5}
"""Chance of an error at each step of the plans that a program writes."""


def fill_board(board: Board, settings: BoardSettings, root: Path, actor: str = BOARD) -> None:
    """Add the tracks of a board's settings with their scorers and control rows; paths are relative to `root`.

    All or nothing. Raises InputError for examples, graphs or encoders that cannot be read.
    """
    prepared = [(one, *_prepared(one, root)) for one in settings.tracks]
    names = [one.name for one in settings.tracks]
    if len(set(names)) < len(names):
        raise InputError("two tracks have one name; names must differ.")

    def add(_: Connection) -> None:
        for given, references, identities in prepared:
            add_track(board, _track(given, references), references, identities, actor)

    board.database.write(add)


def _prepared(given: TrackSettings, root: Path) -> tuple[References, list[tuple[ScorerSettings, dict[str, Any]]]]:
    """The references of a track, and each scorer with its identity."""
    examples = read_examples(root / given.examples, given.split)
    graphs = {str(one.graphs) for one in given.scorers if one.graphs is not None}
    if len(graphs) > 1:
        raise InputError(f"track {given.name!r}: its scorers read different task graphs; make two tracks.")
    references = References.of(examples, _graph_files(root / graphs.pop()) if graphs else None)
    found = []
    for scorer in given.scorers:
        placed = scorer if scorer.root is None else scorer.model_copy(update={"root": root / scorer.root})
        with open_scorer(placed, references) as opened:
            found.append((placed, opened.identity))
    return references, found


def _graph_files(path: Path) -> dict[str, str]:
    """Task graphs as files by name. Raises InputError where there are none."""
    files = [path] if path.is_file() else sorted(path.glob("*.json"))
    if not files:
        raise InputError.at(path, "no task graph is there", "give a JSON file, or a folder of JSON files")
    try:
        return {file.name: file.read_text(encoding="utf-8") for file in files}
    except UnicodeDecodeError as error:
        raise InputError.at(path, f"a task graph is not UTF-8 at byte {error.start}", "save it as UTF-8") from None


def _track(given: TrackSettings, references: References) -> Track:
    return Track(
        name=given.name,
        title=given.title or given.name,
        about=given.about,
        reference_set=references.sha,
        plans=given.plans,
        shown_examples=_drawn(references.examples, given.public),
        published=given.results == "open",
        day_quota=given.day_quota,
        total_quota=given.total_quota,
    )


def _drawn(examples: Sequence[Example], count: int) -> tuple[str, ...]:
    """The ids of some examples, drawn by a hash."""
    names = [one.example_id for one in examples]
    return tuple(sorted(names, key=lambda name: sha256(f"public {name}".encode()).hexdigest())[:count])


def add_track(
    board: Board,
    track: Track,
    references: References,
    identities: Sequence[tuple[ScorerSettings, dict[str, Any]]],
    actor: str = BOARD,
) -> None:
    """Add a track with its scorers, and submit its control rows: all or nothing."""
    for settings, _ in identities:
        require_usable(settings, references)

    def add(_: Connection) -> None:
        board.add_track(track, references, actor)
        for settings, identity in identities:
            stored = settings.model_dump(mode="json")
            board.add_scorer(track.name, settings.measure, label_of(settings), stored, identity, actor)
        for control, plans in control_predictions(references, track.plans).items():
            send(board, BOARD, track, plans, Entry(control, note="A control row.", control=control))

    board.database.write(add)


def send(board: Board, account: str, track: Track, plans: Sequence[Prediction], entry: Entry) -> str:
    """Submit predictions as the program itself; returns the submission's id."""
    rows = ({"example_id": one.example_id, "sample": one.sample, "steps": list(one.steps)} for one in plans)
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    checked = check_submission(data, board.questions(track), track.plans, _UNBOUNDED)
    if not checked.ok:
        raise ComputeError(f"the plans of {entry.system!r} cannot be submitted: {checked.problems[0].sentence()}")
    identity, _ = board.submit(account, track.name, checked.sha, checked.content, checked.plans, entry)
    return identity


def rescore(
    board: Board, scorer: str, changes: Sequence[str] = (), keep: bool = False, actor: str = BOARD
) -> tuple[str, int]:
    """Score all submissions of a board again by the scorer of this program, with `changes` of its settings (KEY=VALUE).

    The track gets the control rows of this program that it lacks.

    Returns the new board's id and its number of jobs. The old board is retired unless it is to be kept; it stays
    readable. Raises InputError for an unknown board, and where nothing has changed.
    """
    query = select(scorers.c.track, scorers.c.settings, scorers.c.label).where(scorers.c.id == scorer)
    row = board.database.query(lambda connection: connection.execute(query).first())
    if row is None:
        raise Unknown(f"there is no board {scorer[:40]!r}.")
    settings = parse_config(
        changed_values(settings_of(row.settings).model_dump(mode="json"), changes),
        ScorerSettings,
        "the scorer",
        changes,
    )
    track = board.track(row.track)
    references = board.references(track.reference_set)
    with open_scorer(settings, references) as opened:
        identity = opened.identity
    if fingerprint(identity)[:16] == scorer:
        raise InputError("the scorer is the same as before, so its figures would be; change a setting with --set.")

    # A track of an earlier version lacks the controls that were added since.
    there = select(submissions.c.control).where(submissions.c.track == track.name)
    controls = control_predictions(references, track.plans)

    def change(connection: Connection) -> tuple[str, int]:
        new, jobs = board.add_scorer(
            row.track, settings.measure, label_of(settings), settings.model_dump(mode="json"), identity, actor
        )
        if not keep:
            board.retire(scorer, actor)
        lacking = controls.keys() - set(connection.execute(there).scalars())
        for control in sorted(lacking):
            send(board, BOARD, track, controls[control], Entry(control, note="A control row.", control=control))
        return new, jobs + len(lacking)

    return board.database.write(change)


def demo_board(url: str, run: Path | None, encoder: str = "minilm") -> tuple[Board, dict[str, str]]:
    """A board on the embedded world, with the systems of a demo's run where there is one; its tokens by account.

    Without a run its systems are written by a program: the references with errors, which shows a table and no planner.
    """
    given = read_examples(run / "data" / "test.jsonl") if run is not None else _questions()
    examples = [replace(one, source=_KINDS.get(one.split, one.source)) for one in given]
    references = References.of(examples)
    scorers_given = [ScorerSettings(measure="validity"), ScorerSettings(measure="proxy", encoder=encoder)]
    identities = []
    for settings in scorers_given:
        with open_scorer(settings, references) as opened:
            identities.append((settings, opened.identity))
    about = (
        "Procedures of a made-up world: every valid order is known, so that plans can be checked exactly. "
        "Half of the questions are of goals that the demo's planner has never seen."
    )
    track = Track(
        "world", "The embedded world", about, references.sha, shown_examples=_drawn(examples, 3), day_quota=20
    )
    tokens = {}

    def fill(board: Board) -> None:
        tokens[OWNER] = board.add_account(OWNER, "owner", "The owner")
        tokens[DEMO_ACCOUNT] = board.add_account(DEMO_ACCOUNT, "submitter", "RECIPE")
        add_track(board, track, references, identities)
        for system, plans in _demo_systems(examples, run).items():
            send(board, DEMO_ACCOUNT, track, plans, Entry(system))

    return Board.create(url, "RECIPE demo board", fill), tokens


def _questions() -> list[Example]:
    world = load_world()
    return [one for split in _KINDS for one in draw_examples(world, split, _HALF)]


def _demo_systems(examples: Sequence[Example], run: Path | None) -> dict[str, list[Prediction]]:
    """Plans by the name of their system."""
    if run is not None:
        found = {}
        for name, system in _RUNS.items():
            if (file := run / "predictions" / f"{name}.jsonl").is_file():
                found[system] = [one for one in read_predictions(file) if one.sample == 0]
        if found:
            return found
    return {
        f"references with {name} errors, by a program": [
            Prediction(one.example_id, _with_errors(one, chance)) for one in examples
        ]
        for name, chance in _ERRORS.items()
    }


def _with_errors(example: Example, chance: float) -> tuple[str, ...]:
    """The continuation with steps lost and neighbours swapped."""
    rng = random.Random(f"{example.example_id} {chance}")
    steps = [step for step in example.continuation if rng.random() >= chance]
    for place in range(len(steps) - 1):
        if rng.random() < chance:
            steps[place], steps[place + 1] = steps[place + 1], steps[place]
    return tuple(steps)
