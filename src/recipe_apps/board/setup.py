"""A board from its file of settings, the demo board on the embedded world, and scoring again by another scorer."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from recipe.artifacts import fingerprint, read_text
from recipe.config import changed_values, parse_config
from recipe.data.examples import read_examples
from recipe.errors import ComputeError, InputError
from recipe.planning.prediction_files import read_predictions
from recipe.planning.predictions import Prediction
from recipe.types import Example
from recipe.world.examples import draw_examples
from recipe.world.load import load_world
from recipe_apps.board.database import transaction
from recipe_apps.board.models import Submission, Track
from recipe_apps.board.scoring import control_predictions, open_scorer
from recipe_apps.board.settings import BoardSettings, ScorerSettings
from recipe_apps.board.store import BOARD, Board, References
from recipe_apps.board.validation import check_submission

OWNER = "owner"
"""Account that `recipe board init` makes."""
DEMO_ACCOUNT = "demo"
# Questions of each kind on the demo's track.
_EXAMPLES_A_SPLIT = 100
_KINDS = {"test_cuts": "known goals", "test_goals": "held-out goals"}
# Predictions of `recipe demo`.
_RUNS = {
    "base": "the demo's base",
    "grpo-wrong": "the demo's planner, taught by narrations of other tasks",
    "grpo-paper": "the demo's planner, taught by the paper's reward",
    "grpo": "the demo's planner, taught by the grounded reward",
}
# Chance of an error at each step of the plans that a program writes.
_ERRORS = {"few": 0.1, "some": 0.25, "many": 0.5}


@transaction
def fill_board(board: Board, session: Session, settings: BoardSettings, root: Path) -> None:
    """Add the tracks of a board's settings with their scorers and control rows; paths are relative to `root`.

    All or nothing. Raises InputError for examples, graphs or encoders that cannot be read.
    """
    names = [track.name for track in settings.tracks]
    if len(set(names)) < len(names):
        raise InputError("two tracks have one name; names must differ.")
    for track in settings.tracks:
        examples, graphs = read_examples(root / track.examples, track.split), None
        paths = {str(scorer.graphs) for scorer in track.scorers if scorer.graphs is not None}
        if len(paths) > 1:
            raise InputError(f"track {track.name!r}: its scorers read different task graphs; make two tracks.")
        for path in map(root.joinpath, paths):
            files = [path] if path.is_file() else sorted(path.glob("*.json"))
            if not files:
                raise InputError.at(path, "no task graph is there", "give a JSON file, or a folder of JSON files")
            graphs = {file.name: read_text(file) for file in files}
        references = References.of(examples, graphs)
        scorers = [
            scorer if scorer.root is None else scorer.model_copy(update={"root": root / scorer.root})
            for scorer in track.scorers
        ]
        row = Track(
            name=track.name,
            title=track.title or track.name,
            about=track.about,
            plans=track.plans,
            shown_examples=_drawn(references.examples, track.public),
            published=track.results == "open",
            day_quota=track.day_quota,
            total_quota=track.total_quota,
        )
        add_track(board, row, references, scorers)


def _drawn(examples: Sequence[Example], count: int) -> list[str]:
    """The ids of some examples, drawn by a hash."""
    # By hash: nobody chose them, and a board that is made again shows the same ones.
    names = [example.example_id for example in examples]
    return sorted(names, key=lambda name: sha256(f"public {name}".encode()).hexdigest())[:count]


@transaction
def add_track(
    board: Board, session: Session, track: Track, references: References, scorers: Sequence[ScorerSettings]
) -> None:
    """Add a track with its scorers and its control rows. Raises InputError for a scorer that cannot be opened."""
    # Opened before anything is stored: what cannot be opened leaves no track behind.
    identities = [open_scorer(settings, references).identity for settings in scorers]
    board.add_track(track, references)
    for settings, identity in zip(scorers, identities, strict=True):
        stored = settings.model_dump(mode="json")
        board.add_scorer(track.name, settings.measure, settings.shown, stored, identity, BOARD)
    added = board.track(track.name)
    for control, plans in control_predictions(references, added.plans).items():
        send(board, BOARD, added, plans, control, remark="A control row.", control=control)


def send(board: Board, account: str, track: Track, plans: Sequence[Prediction], system: str, **about: Any) -> str:
    """Submit predictions as the program itself, with what `Board.submit` takes; returns the submission's id."""
    rows = ({"example_id": plan.example_id, "sample": plan.sample, "steps": list(plan.steps)} for plan in plans)
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    checked = check_submission(data, board.questions(track), track.plans, bounded=False)
    if not checked.ok:
        raise ComputeError(f"the plans of {system!r} cannot be submitted: {checked.problems[0].sentence()}")
    identity, _ = board.submit(account, track.name, checked, system, **about)
    return identity


def rescore(
    board: Board, scorer: str, changes: Sequence[str] = (), keep: bool = False, actor: str = BOARD
) -> tuple[str, int]:
    """Score all submissions of a board again by the scorer of this program, with `changes` of its settings (KEY=VALUE).

    Returns the new board's id and its number of jobs. The old board is retired unless it is to be kept; it stays
    readable. Raises InputError for an unknown board, where nothing has changed, and for a track whose control rows are
    not those of this program.
    """
    row = board.scorer(scorer)
    stored = ScorerSettings.stored(row.settings).model_dump(mode="json")
    settings = parse_config(changed_values(stored, changes), ScorerSettings, "the scorer", changes)
    track = board.track(row.track)
    references = board.references(track.reference_set)
    identity = open_scorer(settings, references).identity
    if fingerprint(identity)[:16] == scorer:
        raise InputError("the scorer is the same as before, so its figures would be; change a setting with --set.")
    there = board.database.scalars(select(Submission.control).where(Submission.track == track.name))
    if lacking := sorted(control_predictions(references, track.plans).keys() - set(there)):
        problem = f"track {track.name!r} is of an earlier version: it lacks the control row {lacking[0]!r}"
        raise InputError(f"{problem}; make a new board with `recipe board init`.")

    values, replaced = settings.model_dump(mode="json"), "" if keep else scorer
    return board.add_scorer(row.track, settings.measure, settings.shown, values, identity, actor, replaced)


def demo_board(url: str, run: Path | None, encoder: str = "minilm") -> tuple[Board, dict[str, str]]:
    """A board on the embedded world, with the systems of a demo's run where there is one; its tokens by account.

    Without a run its systems are written by a program: the references with errors, which shows a table and no planner.
    """
    if run is not None:
        drawn = read_examples(run / "data" / "test.jsonl")
    else:
        world = load_world()
        drawn = [example for split in _KINDS for example in draw_examples(world, split, _EXAMPLES_A_SPLIT)]
    examples = [replace(example, source=_KINDS.get(example.split, example.source)) for example in drawn]
    references = References.of(examples)
    scorers = [ScorerSettings(measure="validity"), ScorerSettings(measure="proxy", encoder=encoder)]
    about = (
        "Procedures of a made-up world: every valid order is known, so that plans can be checked exactly. "
        "Half of the questions are of goals that no reward has trained the demo's planner on."
    )
    track = Track(
        name="world", title="The embedded world", about=about, shown_examples=_drawn(examples, 3), day_quota=20
    )
    tokens = {}

    def fill(board: Board) -> None:
        tokens[OWNER] = board.add_account(OWNER, "owner", "The owner")
        tokens[DEMO_ACCOUNT] = board.add_account(DEMO_ACCOUNT, "submitter", "RECIPE")
        add_track(board, track, references, scorers)
        systems: dict[str, list[Prediction]] = {}
        if run is not None:
            for name, system in _RUNS.items():
                if (file := run / "predictions" / f"{name}.jsonl").is_file():
                    systems[system] = [plan for plan in read_predictions(file) if plan.sample == 0]
        for name, chance in () if systems else _ERRORS.items():
            written = systems[f"references with {name} errors, by a program"] = list[Prediction]()
            for example in examples:
                # The continuation with steps lost and neighbours swapped.
                rng = random.Random(f"{example.example_id} {chance}")
                steps = [step for step in example.continuation if rng.random() >= chance]
                for index in range(len(steps) - 1):
                    if rng.random() < chance:
                        steps[index], steps[index + 1] = steps[index + 1], steps[index]
                written.append(Prediction(example.example_id, tuple(steps)))
        for system, plans in systems.items():
            send(board, DEMO_ACCOUNT, board.track(track.name), plans, system)

    return Board.create(url, "RECIPE demo board", fill), tokens
