"""What leaves the server of a figure: the digits that pages show, of plans that are many enough to hide in."""

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from board_helpers import set_quotas, show
from fastapi.testclient import TestClient

from recipe.artifacts import to_json
from recipe.evaluation import measure_named
from recipe.evaluation.scores import Row
from recipe.planning.predictions import Prediction
from recipe.stats import macro_intervals
from recipe.types import Example
from recipe.world.examples import draw_examples
from recipe.world.load import load_world
from recipe_apps.board.scoring import LEAST_EXAMPLES
from recipe_apps.board.standings import cell, rounded
from recipe_apps.board.store import Board

pytestmark = [pytest.mark.thorough, pytest.mark.parametrize("database", ["sqlite"], indirect=True)]
KIND: Any = measure_named("validity")
HELD = 13
"""Values that the score of one guess may have: none to twelve of its steps are right."""
LENGTHS = (13, 17, 19, 23, 29, 31)
"""Steps of each guess: primes, so that every mean has one explanation."""


@pytest.fixture(scope="session")
def examples() -> list[Example]:
    """Sixty questions each of two kinds."""
    world = load_world()
    drawn = [one for split in ("test_cuts", "test_goals") for one in draw_examples(world, split, 60)]
    return [replace(one, source=one.split) for one in drawn]


class Right(KIND):  # type: ignore[misc]
    """A measure as an attacker wishes it: the share of a plan's steps that are right."""

    def __init__(self, truth: Mapping[str, int]) -> None:
        super().__init__()
        self.truth = truth

    def rows(self, examples: Any, predictions: Sequence[Prediction], progress: Any = None) -> list[Row]:
        return [
            Row(one.example_id, {"score": min(self.truth[one.example_id], len(one.steps)) / max(1, len(one.steps))})
            for one in predictions
        ]


@pytest.fixture
def truth(examples: list[Example]) -> dict[str, int]:
    """How many steps of each guess are right, which nobody may learn."""
    draw = np.random.default_rng(5).integers(0, HELD, len(examples))
    return {one.example_id: int(count) for one, count in zip(examples, draw, strict=True)}


@pytest.fixture(autouse=True)
def attacker(board: Board, client: TestClient, measured_by: Callable[[Any], None], truth: dict[str, int]) -> None:
    """Whoever asks has an account, and the worker measures as `Right` does."""
    measured_by(Right(truth))
    client.headers["Authorization"] = f"Bearer {board.add_account('ann')}"


def sent(client: TestClient, board: Board, steps: Mapping[str, int], system: str = "mine") -> str:
    """The id of a submission with so many steps for each question, once it is scored and shown."""
    rows = [
        {"example_id": name, "steps": [f"{system} {place}" for place in range(count)]} for name, count in steps.items()
    ]  # fmt: skip
    answer = client.post(
        "/api/submissions", params={"track": "world", "system": system},
        content="".join(json.dumps(row) + "\n" for row in rows),
    )  # fmt: skip
    assert answer.status_code == 201, answer.text
    show(board)
    return str(answer.json()["id"])


def told(client: TestClient, identity: str) -> dict[str, Any]:
    [found] = client.get(f"/api/submissions/{identity}").json()["boards"]
    return dict(found)


def attacked(examples: list[Example]) -> list[str]:
    """The questions that are guessed: three of each dataset."""
    by_dataset: dict[str, list[str]] = {}
    for one in examples:
        by_dataset.setdefault(one.source, []).append(one.example_id)
    return [name for names in by_dataset.values() for name in names[:3]]


def explanations(examples: list[Example], guessed: list[str], known: np.ndarray, mean: float, apart: float) -> Any:
    """Every combination of right steps of the guesses whose mean lies within `apart` of a figure [explanations, 6]."""
    sizes = {one.source: sum(other.source == one.source for other in examples) for one in examples}
    weights = [1 / (len(sizes) * sizes[one.source]) for one in examples]
    base = float(known @ weights)
    place = {one.example_id: number for number, one in enumerate(examples)}
    axes = [weights[place[name]] * np.arange(HELD) / long for name, long in zip(guessed, LENGTHS, strict=True)]
    sums = sum(np.ix_(*axes), np.float64(base))  # [13, 13, 13, 13, 13, 13]
    return np.argwhere(np.abs(np.asarray(sums) - mean) <= apart)


def test_few_guesses_among_empty_plans_have_no_figure(
    client: TestClient, board: Board, examples: list[Example], truth: dict[str, int]
) -> None:
    guessed = attacked(examples)
    # What a mean with all its digits would tell: one explanation of 4,826,809, and the right one.
    values = np.zeros(len(examples))
    for name, long in zip(guessed, LENGTHS, strict=True):
        values[[one.example_id for one in examples].index(name)] = truth[name] / long
    clusters = [KIND.cluster_of(one) for one in examples]
    [whole] = macro_intervals(values[None], [one.source for one in examples], clusters)
    fitting = explanations(examples, guessed, np.zeros(len(examples)), whole.mean, 1e-12)
    assert fitting.tolist() == [[truth[name] for name in guessed]]
    lengths = dict.fromkeys((one.example_id for one in examples), 0) | dict(zip(guessed, LENGTHS, strict=True))
    identity = sent(client, board, lengths)
    found = told(client, identity)
    assert (found["value"], found["metrics"], found["against"], found["place"]) == (None, {}, [], "")
    assert set(found["datasets"].values()) == {None}
    assert found["answered"] == 6
    [mine] = client.get("/api/me/submissions").json()["submissions"]
    assert mine["jobs"][0]["value"] is None
    rows = client.get(f"/api/boards/{found['id']}", params={"all": "1"}).json()["rows"]
    assert identity not in {row["submission"] for row in rows}
    assert identity not in client.get(f"/api/boards/{found['id']}.csv").text
    assert {row["control"] for row in rows} >= {"empty", "constant"}  # the program's own plans are no guesses


def test_of_guesses_among_known_plans_many_explanations_fit(
    client: TestClient, board: Board, examples: list[Example], truth: dict[str, int]
) -> None:
    guessed = attacked(examples)
    # The other plans have a score that the attacker knows: of one step, which is right or not.
    lengths = dict.fromkeys((one.example_id for one in examples), 1) | dict(zip(guessed, LENGTHS, strict=True))
    known = np.array([0.0 if one.example_id in guessed else min(truth[one.example_id], 1) for one in examples])
    found = told(client, sent(client, board, lengths))
    assert found["value"]["mean"] == round(found["value"]["mean"], KIND.digits)
    fitting = explanations(examples, guessed, known, found["value"]["mean"], 0.5 * 10**-KIND.digits)
    assert [truth[name] for name in guessed] in fitting.tolist()
    assert len(fitting) > 50_000
    # The datasets' means and the bounds tell more: how many agree with all nine numbers?
    datasets, clusters = [one.source for one in examples], [KIND.cluster_of(one) for one in examples]
    places = [[one.example_id for one in examples].index(name) for name in guessed]
    values = np.repeat(known[None], len(fitting), axis=0)
    values[:, places] = fitting / np.array(LENGTHS)
    counts = [len(values)]
    for name, figure in {"": found["value"], **found["datasets"]}.items():
        chosen = [place for place, dataset in enumerate(datasets) if name in ("", dataset)]
        if name:
            means = values[:, chosen].mean(axis=1)
            values = values[np.abs(means - figure["mean"]) <= 0.5 * 10**-KIND.digits]
            counts.append(len(values))
    share = len(values) / 1_000  # intervals of a sample of them tell how many agree
    values = np.random.default_rng(0).permutation(values)[:1_000]
    for name, figure in {**found["datasets"], "": found["value"]}.items():
        chosen = [place for place, dataset in enumerate(datasets) if name in ("", dataset)]
        made = macro_intervals(
            values[:, chosen], [datasets[place] for place in chosen], [clusters[place] for place in chosen]
        )
        agree = [
            all(rounded(to_json(one), KIND.digits)[bound] == figure[bound] for bound in ("low", "high")) for one in made
        ]
        values = values[agree]
        counts.append(len(values))
    assert counts[-1] * share > 300, counts


def test_a_dataset_is_shown_where_enough_of_it_is_answered(
    client: TestClient, board: Board, examples: list[Example], truth: dict[str, int]
) -> None:
    first = examples[0].source
    of_first = [one.example_id for one in examples if one.source == first]
    lengths = dict.fromkeys((one.example_id for one in examples), 0) | dict.fromkeys(of_first[:LEAST_EXAMPLES], 12)
    found = told(client, sent(client, board, lengths))
    assert found["answered"] == LEAST_EXAMPLES
    assert found["value"] is not None
    assert {name: one is not None for name, one in found["datasets"].items()} == {
        one.source: one.source == first for one in examples
    }
    found = told(client, sent(client, board, lengths | {of_first[0]: 0}, "another"))
    assert (found["answered"], found["value"]) == (LEAST_EXAMPLES - 1, None)


def numbers(value: object, field: str = "") -> Iterator[tuple[str, float]]:
    """Every number with a fraction in an answer, with its field; times are none of figures."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from numbers(one, name)
    elif isinstance(value, list):
        for one in value:
            yield from numbers(one, field)
    elif isinstance(value, float):
        yield field, value


TIMES = {
    "created", "queued", "started", "ended", "time", "as_of", "seen", "estimate", "retired", "withdrawn", "revoked"
}  # fmt: skip


def test_no_answer_holds_more_digits_than_its_page(
    client: TestClient, board: Board, examples: list[Example], truth: dict[str, int]
) -> None:
    draw = np.random.default_rng(1)
    for system in ("one", "two", "three"):
        lengths = {one.example_id: int(draw.integers(12, 40)) for one in examples}
        identity = sent(client, board, lengths, system)
    owner = {"Authorization": f"Bearer {board.add_account('olga', 'owner')}"}
    scorer = told(client, identity)["id"]
    paths = [
        "/api/boards", f"/api/boards/{scorer}?all=1", f"/api/boards/{scorer}?sort={examples[0].source}",
        f"/api/submissions/{identity}", "/api/me/submissions", "/api/me", "/api/owner", "/api/owner/log",
    ]  # fmt: skip
    seen = 0
    for path in paths:
        answer = client.get(path, headers=owner if path.startswith("/api/owner") else {})
        assert answer.status_code == 200
        for field, number in numbers(answer.json()):
            if field in TIMES or field in ("sha", "identity"):
                continue
            assert number == round(number, KIND.digits), (path, field, number)
            assert math.copysign(1, number) > 0 or number < 0, (path, field)  # no negative 0
            seen += 1
    assert seen > 100
    for row in csv.DictReader(io.StringIO(client.get(f"/api/boards/{scorer}.csv").text)):
        for name in ("value", "low", "high", "gap", "gap_low", "gap_high", examples[0].source):
            assert not row[name] or float(row[name]) == round(float(row[name]), KIND.digits)
    for path in ("/", f"/boards/{scorer}?all=1", f"/systems/{identity}"):
        text = client.get(path).text
        # Between tags, and in attributes but those of the small pictures, which are drawn from what is shown.
        text = re.sub(r"<svg.*?</svg>|href=\"[^\"]*\"|<dl>.*?</dl>", "", text, flags=re.S)
        found = re.findall(r"\d\.(\d+)", text)
        assert found
        assert max(map(len, found)) <= KIND.digits, path


def test_rows_are_sorted_by_what_they_show(
    client: TestClient, board: Board, examples: list[Example], truth: dict[str, int]
) -> None:
    first = examples[0]
    lengths = dict.fromkeys((one.example_id for one in examples), 12)
    for system, change in (("a", {}), ("b", {first.example_id: 90})):
        sent(client, board, lengths | change, system)
    scorer = client.get("/api/boards").json()["tracks"][0]["boards"][0]["id"]
    by_place = client.get(f"/api/boards/{scorer}").json()["rows"]
    by_dataset = client.get(f"/api/boards/{scorer}", params={"sort": first.source}).json()["rows"]
    figures = [one["datasets"][first.source]["mean"] for one in by_dataset]
    assert figures == sorted(figures, reverse=True)
    for figure in set(figures):  # among equal figures: as by place
        alike = [one["submission"] for one in by_dataset if one["datasets"][first.source]["mean"] == figure]
        assert alike == [one["submission"] for one in by_place if one["submission"] in alike]


def test_the_account_stands_beside_a_name_that_another_has(
    client: TestClient, board: Board, examples: list[Example]
) -> None:
    board.add_account("real", display="Team of X")
    for display in ("Team of X", "Ｔｅａｍ of X", "team  of x", "real"):
        assert client.patch("/api/me", json={"display": display}).status_code == 200
        identity = sent(client, board, dict.fromkeys((one.example_id for one in examples), 12 + len(display)), display)
        scorer = told(client, identity)["id"]
        for path in (f"/boards/{scorer}?all=1&q=ann", f"/systems/{identity}"):
            text = client.get(path).text
            assert "<code>ann</code>" in text
            assert "<code>real</code>" not in text
        rows = client.get(f"/api/boards/{scorer}", params={"all": "1"}).json()["rows"]
        assert {row["account"] for row in rows if not row["control"]} == {"ann"}
        lines = list(csv.DictReader(io.StringIO(client.get(f"/api/boards/{scorer}.csv").text)))
        assert {row["account"] for row in lines if not row["control"]} == {"ann"}
        set_quotas(board, day_quota=100)


FORMULAS = [
    "=1", "+1", "-1", "@a", "\t=1", " =1", "\r=1", "\n=1", "\u00a0=1", "\ufeff=1", "\u200b=1",
    "＝1", "＋1", "－1", "＠a", "﹢1", "﹣1",
]  # fmt: skip


def test_no_cell_of_a_table_is_a_formula(client: TestClient, board: Board, examples: list[Example]) -> None:
    assert all(cell(text).startswith("'") for text in FORMULAS)
    set_quotas(board, day_quota=100)
    client.patch("/api/me", json={"display": "＝1+1"})
    for place, system in enumerate(("=1", "a;=1", 'a";=1', "same", "same too")):
        sent(client, board, dict.fromkeys((one.example_id for one in examples), 12 + place // 4), system)
    scorer = client.get("/api/boards").json()["tracks"][0]["boards"][0]["id"]
    text = client.get(f"/api/boards/{scorer}.csv").text
    for delimiter in ",;\t":
        for row in csv.reader(io.StringIO(text), delimiter=delimiter):
            for one in row if delimiter == "," else row[:1]:
                assert not one.lstrip().startswith(("=", "+", "@", "＝")), one
                assert not one.startswith("-") or float(one) < 0
    places = [row["place"] for row in csv.DictReader(io.StringIO(text)) if row["place"]]
    assert len(places) == 5
    assert all(place.isdecimal() for place in places)
