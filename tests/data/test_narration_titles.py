"""Titles of HowTo100M videos from the release's two tables."""

from pathlib import Path

import pytest

from recipe.data.narrations import titled
from recipe.errors import InputError
from recipe.types import Narration, Segment

SAID = (Segment("x"),)
VIDEOS = (
    "video_id,category_1,category_2,rank,task_id\n"
    "nVbIUDjzWY4,Cars & Other Vehicles,Motorcycles,27,52907\n"
    'b,"Food, and Entertaining",Recipes,1,7\nb,Hobbies,Crafts,3,52907\nc,Hobbies,Crafts,3,8\n'
)


TASKS = "52907\tPaint a Motorcycle\n7\tBoil, Peel\n"


@pytest.mark.parametrize("tasks", [TASKS, "id\ttask_name\n" + TASKS])
def test_a_video_without_a_title_gets_its_task(tmp_path: Path, tasks: str) -> None:
    (tmp_path / "videos.csv").write_text(VIDEOS)
    (tmp_path / "tasks.csv").write_text(tasks)
    given = [Narration(video, SAID) for video in ("b", "c", "d", "nVbIUDjzWY4")] + [Narration("b", SAID, "Own")]
    found = list(titled(given, tmp_path / "videos.csv", tmp_path / "tasks.csv"))
    assert [n.title for n in found] == ["Boil, Peel", None, None, "Paint a Motorcycle", "Own"]
    assert [(n.video_id, n.segments) for n in found] == [(n.video_id, n.segments) for n in given]


def test_tables_of_another_layout_are_refused(tmp_path: Path) -> None:
    (tmp_path / "videos.csv").write_text(VIDEOS)
    with pytest.raises(InputError, match="task_ids"):
        list(titled([], tmp_path / "videos.csv", tmp_path / "videos.csv"))
    (tmp_path / "tasks.csv").write_text("7\tBoil\n")
    with pytest.raises(InputError, match="'video_id'"):
        list(titled([], tmp_path / "tasks.csv", tmp_path / "tasks.csv"))
    (tmp_path / "videos.csv").write_text("video_id,task_id\nb\n")
    with pytest.raises(InputError, match=r"line 2: .* 1 fields .* 2"):
        list(titled([], tmp_path / "videos.csv", tmp_path / "tasks.csv"))
