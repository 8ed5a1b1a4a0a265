"""Places, ties and gaps against paired comparisons made one by one; the table as CSV; the board of many systems."""

import csv
import io
import itertools
import json
from typing import Any

import numpy as np
import pytest
from board_helpers import lines, set_quotas, show, submit
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from starlette.testclient import TestClient

from recipe.stats import macro_interval, macro_intervals
from recipe.types import Example
from recipe_apps.board.scoring import MOST_UNSCORED, Figures
from recipe_apps.board.standings import places_of
from recipe_apps.board.store import Board
from recipe_apps.board.work import Queue

rng = np.random.default_rng(0)
CLUSTERS = [f"goal {place // 4}" for place in range(60)]
DATASETS = ["one"] * 40 + ["two"] * 20


def placed(values: Any) -> Any:
    values = np.asarray(values, dtype=np.float64)
    return places_of(values, DATASETS, CLUSTERS, [float(np.nanmean(row)) for row in values])


def test_rows_at_once_are_rows_one_by_one() -> None:
    values = rng.random((7, 60))
    for row, found in zip(values, macro_intervals(values, DATASETS, CLUSTERS), strict=True):
        assert found == macro_interval(row, DATASETS, CLUSTERS)
    [alone] = macro_intervals(values[:1], ["one"] * 60, CLUSTERS)
    assert alone == macro_interval(values[0], ["one"] * 60, CLUSTERS)


def test_a_clear_difference_is_a_place_and_none_is_a_tie() -> None:
    base = rng.random(60)
    places = placed([base, base + 0.5, base + 0.5 + 1e-9 * rng.standard_normal(60), base - 1])
    order = [row for row, *_ in places]
    assert order[:2] in ([1, 2], [2, 1])
    assert order[2:] == [0, 3]
    assert [name for _, name, _ in places] == ["=1", "=1", "3", "4"]
    assert places[1][2].mean == pytest.approx(0.5, abs=1e-6)
    assert places[3][2] is None


@pytest.mark.parametrize(("count", "apart"), [(5, 0.04), (90, 0.0015)])
def test_a_place_begins_where_the_leader_is_beaten_not_the_neighbour(count: int, apart: float) -> None:
    # Neighbours are never told apart, the first and the last are; the second case is longer than what is done at once.
    noise = np.random.default_rng(1).standard_normal((count, 60)) * 0.2
    values = [0.5 - apart * row + noise[row] for row in range(count)]
    found = placed(values)
    ordered = [values[row] for row, *_ in found]
    leader = 0
    for row in range(1, count):
        against = macro_interval(ordered[leader] - ordered[row], DATASETS, CLUSTERS)
        assert against.low is not None
        if against.low > 0:
            leader = row
        assert found[row][1].strip("=") == str(leader + 1)
    assert leader > 0


@settings(max_examples=25, deadline=None)
@given(arrays(np.float64, (6, 60), elements=st.floats(0, 1, width=16)))
def test_the_order_is_that_of_the_figures_and_places_do_not_fall(values: Any) -> None:
    found = placed(values)
    means = [values[row].mean() for row, *_ in found]
    assert all(first >= second - 1e-12 for first, second in itertools.pairwise(means))
    names = [name for _, name, _ in found]
    numbers = [int(name.strip("=")) for name in names]
    assert numbers[0] == 1
    assert numbers == sorted(numbers)
    for name in set(names):
        assert name.startswith("=") == (names.count(name) > 1)


def test_equal_systems_are_tied_and_none_is_no_table() -> None:
    assert [name for _, name, _ in placed(np.ones((3, 60)))] == ["=1", "=1", "=1"]
    assert placed(np.empty((0, 60))) == []
    assert [name for _, name, _ in placed(rng.random((1, 60)))] == ["1"]


def test_pairs_are_over_what_both_score() -> None:
    base = rng.random(60)
    first, second = base + 0.5, base.copy()
    first[:10], second[5:15] = np.nan, np.nan
    found = placed([first, second])
    both = np.isfinite(first) & np.isfinite(second)
    wanted = macro_interval(
        (first - second)[both],
        [one for one, known in zip(DATASETS, both, strict=True) if known],
        [one for one, known in zip(CLUSTERS, both, strict=True) if known],
    )
    assert found[0][2] == wanted


def entered(board: Board, account: str, system: str, values: Any, share: float) -> str:
    """A scored submission with these values of its questions, of which a share has no verdict."""
    names = board.questions(board.track("world"))
    rows = [{"example_id": name, "steps": [system]} for name in names]
    sent, _ = submit(board, account, "".join(json.dumps(row) + "\n" for row in rows).encode(), system)
    queue = Queue(board, "w", 30.0)
    boards = [scorer.id for scorer in queue.scorers(["validity"])]
    while (job := queue.claim(boards)) is not None:
        own, lost = (np.asarray(values), share) if job.submission == sent else (np.zeros(40), 0.0)
        known = np.isfinite(own)
        value = macro_interval(
            own[known], np.asarray(DATASETS[20:])[known].tolist(), np.asarray(CLUSTERS)[:40][known].tolist()
        )
        assert queue.finish(job, Figures(value, {}, {}, round(40 * lost), lost), own)
    return sent


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_refusing_does_not_beat_answering(board: Board, client: TestClient) -> None:
    board.add_account("ann")
    [scorer] = [row.id for row in board.scorers()]
    honest = entered(board, "ann", "honest", [0.42, 0.46] * 20, 0.0)
    entered(board, "ann", "a few lost", [0.4] * 38 + [0.0] * 2, MOST_UNSCORED)
    cheat = entered(board, "ann", "cheat", [1.0] * 30 + [0.0] * 10, 0.25)
    show(board)
    value = client.get(f"/api/boards/{scorer}", params={"all": "1"}).json()
    rows = {row["system"]: row for row in value["rows"] if not row["control"]}
    assert {name: row["place"] for name, row in rows.items()} == {"honest": "1", "a few lost": "2", "cheat": ""}
    assert rows["honest"]["submission"] == honest
    assert (rows["cheat"]["unscored"], rows["cheat"]["unscored_share"]) == (10, 0.25)
    assert (rows["cheat"]["gap"], rows["cheat"]["latest"]) == (None, True)
    assert {name for name, row in rows.items() if row["no_place"]} == {"cheat"}
    assert rows["honest"]["gap"]["mean"] == pytest.approx(0.44 - 0.38)
    table = {row["system"]: row for row in csv.DictReader(io.StringIO(client.get(f"/api/boards/{scorer}.csv").text))}
    assert (table["cheat"]["place"], table["cheat"]["unscored_share"]) == ("", "0.25")
    assert table["cheat"]["no_place"] == rows["cheat"]["no_place"]
    assert client.get("/api/boards").json()["tracks"][0]["boards"][0]["leader"]["system"] == "honest"
    [own] = client.get(f"/api/submissions/{cheat}").json()["boards"]
    assert (own["place"], own["no_place"]) == ("", rows["cheat"]["no_place"])
    for page in (f"/boards/{scorer}", f"/systems/{cheat}"):
        assert rows["cheat"]["no_place"] in client.get(page).text
    assert rows["cheat"]["no_place"] not in client.get(f"/systems/{honest}").text


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_board_says_on_top_who_ties(board: Board, client: TestClient, examples: list[Example]) -> None:
    board.add_account("ann")
    set_quotas(board, day_quota=9, total_quota=9)

    def leaders(*sent: tuple[str, float]) -> tuple[int, str]:
        for system, share in sent:
            submit(board, "ann", lines(examples, share, f"a word of {system}"), system)
        show(board)
        [track] = client.get("/api/boards").json()["tracks"]
        [summary] = track["boards"]
        table = client.get(f"/api/boards/{summary['id']}").json()["board"]
        return summary["leader"]["tied"], table["leaders"]

    tied, sentence = leaders(("first", 1.0))
    assert (tied, sentence) == (0, "")
    tied, all_tie = leaders(("second", 1.0), ("third", 1.0))
    assert tied == 2
    assert "3" in all_tie
    tied, some_tie = leaders(("behind", 0.3))
    assert tied == 2
    assert "3" in some_tie
    assert some_tie != all_tie
