"""The table of benchmarks: found where they lie, absent with a reason."""

from collections import Counter
from pathlib import Path

import pytest

from recipe.data.benchmarks import (
    BENCHMARKS,
    find_benchmark,
    read_benchmarks,
    require_benchmarks,
    select_procedures,
    summarise,
    trained_and_tested,
)
from recipe.errors import InputError
from recipe.types import Procedure, Step


def test_a_benchmark_is_found_under_a_root_and_as_the_root(coin: Path, crosstask: Path) -> None:
    assert require_benchmarks(coin.parent) == {"coin": coin, "crosstask": crosstask}
    assert require_benchmarks(coin.parent, ["crosstask"]) == {"crosstask": crosstask}
    assert require_benchmarks(crosstask) == {"crosstask": crosstask}
    assert find_benchmark(crosstask, "coin") is None


def test_what_is_absent_is_named_with_what_was_looked_for(tmp_path: Path, coin: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"coin/COIN\.json; crosstask is recognised by crosstask/crosstask_release"):
        require_benchmarks(tmp_path / "empty")
    with pytest.raises(InputError, match="crosstask not found here"):
        require_benchmarks(coin.parent, ["coin", "crosstask"])
    with pytest.raises(InputError, match="the folder does not exist"):
        require_benchmarks(tmp_path / "nowhere")


def test_benchmarks_are_read_one_after_the_other(coin: Path, crosstask: Path, captaincook4d: Path, niv: Path) -> None:
    folders = require_benchmarks(coin.parent)
    assert folders == {"coin": coin, "crosstask": crosstask, "captaincook4d": captaincook4d, "niv": niv}
    found = Counter(procedure.source for procedure in read_benchmarks(folders))
    assert list(found.items()) == [("coin", 3), ("crosstask", 4), ("captaincook4d", 3), ("niv", 3)]
    assert found.keys() == BENCHMARKS.keys()


def test_the_procedures_selected_have_steps_and_what_is_left_out_is_counted(coin: Path, captaincook4d: Path) -> None:
    folders = require_benchmarks(coin.parent)
    selected = select_procedures(folders)
    assert [p.video_id for p in selected.procedures] == ["-a_b", "solo", "zeta", "9_11", "9_2"]
    assert (selected.no_steps, selected.not_performed) == ({"captaincook4d": 1}, {"captaincook4d": 2})
    trained = select_procedures(folders, "train")
    assert [p.video_id for p in trained.procedures] == ["-a_b", "solo", "9_2"]
    assert (trained.no_steps, trained.not_performed) == ({}, {"captaincook4d": 1})
    assert select_procedures(folders, "val") == ([], {}, {})


def test_summary_counts() -> None:
    one = Procedure("s", "a", "tea", (Step("boil"), Step("boil"), Step("pour")), "test")
    two = Procedure("s", "b", "tea", (Step("pour"),), "train")
    assert summarise([one, two]) == (2, 4, 1, 2, {"train": 1, "test": 1})
    assert summarise([]) == (0, 0, 0, 0, {})


def test_a_video_trained_on_here_and_held_out_there_is_found() -> None:
    def video(source: str, video_id: str, split: str) -> Procedure:
        return Procedure(source, video_id, "g", (), split)

    procedures = [
        video("a", "x", "train"),
        video("b", "x", "test"),
        video("b", "y", "train"),
        video("a", "y", ""),
    ]
    assert trained_and_tested(procedures) == {"x"}


@pytest.mark.real_data
def test_the_real_sets_share_videos(shared_data: Path) -> None:
    folders = require_benchmarks(shared_data)
    coin, crosstask = (
        {procedure.video_id for procedure in BENCHMARKS[name].read(folders[name])} for name in ("coin", "crosstask")
    )
    assert len(coin & crosstask) == 29
