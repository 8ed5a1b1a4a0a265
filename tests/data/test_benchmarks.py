"""The table of benchmarks: found where they lie, absent with a reason."""

from pathlib import Path

import pytest

from recipe.data.benchmarks import BENCHMARKS, by_role, find_benchmark, require_benchmarks, trained_and_tested
from recipe.errors import InputError
from recipe.types import Procedure


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
    trained, tested = ["coin", "crosstask", "captaincook4d", "egoprocel"], ["niv", "egoexo4d", "egoper"]
    assert [*BENCHMARKS] == [*trained, *tested]
    kept, left_out = by_role(Procedure(name, "v", "g", (), split) for name in BENCHMARKS for split in ("train", "test"))
    assert left_out == dict.fromkeys(tested, 1)
    assert [(one.source, one.split) for one in kept if one.source in tested] == [(name, "test") for name in tested]


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


def test_a_video_trained_on_here_and_held_out_there_is_found() -> None:
    drawn = (("a", "x", "train"), ("b", "x", "test"), ("b", "y", "train"), ("a", "y", ""))
    assert trained_and_tested(Procedure(source, video, "g", (), split) for source, video, split in drawn) == {"x"}
