"""The table of benchmarks: found where they lie, absent with a reason."""

from pathlib import Path

import pytest

from recipe.data.benchmarks import (
    BENCHMARKS,
    PAPERS,
    by_role,
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


def test_roles_are_those_of_the_paper() -> None:
    roles = {name: benchmark.role for name, benchmark in BENCHMARKS.items()}
    assert [name for name in roles if roles[name] == "in-domain"] == ["coin", "crosstask", "captaincook4d", "egoprocel"]
    assert [name for name in roles if roles[name] == "zero-shot"] == ["niv", "egoexo4d", "egoper"]
    assert set(BENCHMARKS) - set(PAPERS) == {"how2bench"}


def test_zero_shot_benchmarks_keep_their_training_videos_back(seven: Path) -> None:
    everything = read_benchmarks(require_benchmarks(seven))
    procedures, held_back = by_role(everything)
    assert held_back == {"niv": 2, "egoexo4d": 1, "egoper": 1}
    assert procedures == [video for video in everything if video in procedures]
    zero_shot = [video for video in procedures if BENCHMARKS[video.source].role == "zero-shot"]
    assert {video.split for video in zero_shot} == {"test"}


JSON_OF = {
    "coin": "COIN.json",
    "captaincook4d": "annotation_json/complete_step_annotations.json",
    "niv": "niv_valid.json",
    "egoexo4d": "annotations/keystep_val.json",
    "egoper": "annotation.json",
}


@pytest.mark.parametrize("other", JSON_OF)
@pytest.mark.parametrize("name", JSON_OF)
def test_a_file_of_another_benchmark_is_named_for_what_it_is(seven: Path, name: str, other: str) -> None:
    if name == other:
        BENCHMARKS[name].read(seven / name)
        return
    path = seven / name / JSON_OF[name]
    path.write_text((seven / other / JSON_OF[other]).read_text())
    with pytest.raises(InputError, match=f"of {other}, not of {name}"):
        BENCHMARKS[name].read(seven / name)


def test_the_procedures_selected_have_steps_and_what_is_left_out_is_counted(coin: Path, captaincook4d: Path) -> None:
    folders = require_benchmarks(coin.parent)
    selected = select_procedures(folders)
    assert [p.video_id for p in selected.procedures] == ["-a_b", "solo", "zeta", "9_11", "9_2"]
    assert (selected.no_steps, selected.set_aside) == ({"captaincook4d": 1}, {"captaincook4d": 2})
    trained = select_procedures(folders, "train")
    assert [p.video_id for p in trained.procedures] == ["-a_b", "solo", "9_2"]
    assert (trained.no_steps, trained.set_aside) == ({}, {"captaincook4d": 1})
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
