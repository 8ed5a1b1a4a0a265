"""Stages run once, in the order of their needs, and begin again exactly where an earlier run stopped."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recipe.artifacts import locked, read_json, write_json
from recipe.errors import ComputeError, InputError, MissingExtra, RecipeError
from recipe.progress import SILENT, Progress
from recipe_studies.experiments.schedule import RECORDS, Stage, StageList, plain_settings, run_stages, stage_times


def append(run_dir: Path, settings: Any, progress: Progress) -> None:
    """Leave one line in the stage's file, so that a second call shows."""
    with progress.task("appending", 1) as advance, (run_dir / settings["file"]).open("a") as stream:
        stream.write(settings["text"])
        advance(1)


def copy(run_dir: Path, settings: Any, progress: Progress) -> None:
    (run_dir / settings["file"]).write_text((run_dir / settings["source"]).read_text())


def fail(run_dir: Path, settings: Any, progress: Progress) -> None:
    raise MissingExtra("this stage", "train") if settings == "extra" else InputError("this stage cannot run.")


def die(run_dir: Path, settings: Any, progress: Progress) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stages(text: str = "a", tail: str = "z") -> list[Stage]:
    made = StageList()
    made.add("first", append, {"file": "first.txt", "text": text}, ["first.txt"])
    made.add("second", copy, {"file": "second.txt", "source": "first.txt"}, ["second.txt"], ["first.txt"])
    made.add("last", append, {"file": "last.txt", "text": tail}, ["last.txt"], ["second.txt"])
    return made[::-1]


def test_needs_come_first_and_a_second_run_skips_all(tmp_path: Path) -> None:
    run_stages(tmp_path, stages(), 2, SILENT)
    assert (tmp_path / "second.txt").read_text() == "a"
    run_stages(tmp_path, stages(), 2, SILENT)
    assert (tmp_path / "first.txt").read_text() == "a"
    assert set(stage_times(tmp_path)) == {"first", "second", "last"}
    (tmp_path / "second.txt").unlink()
    run_stages(tmp_path, stages(), 2, SILENT)
    assert (tmp_path / "second.txt").read_text() == "a"


def test_a_changed_setting_runs_its_stage_and_those_after_it_from_nothing(tmp_path: Path) -> None:
    run_stages(tmp_path, stages(), 2, SILENT)
    run_stages(tmp_path, stages(text="b"), 2, SILENT)
    assert [(tmp_path / f"{name}.txt").read_text() for name in ("first", "second", "last")] == ["b", "b", "z"]
    run_stages(tmp_path, stages(text="b", tail="y"), 2, SILENT)
    assert [(tmp_path / f"{name}.txt").read_text() for name in ("first", "last")] == ["b", "y"]


def test_a_stage_needs_what_it_reads_and_works_in_its_folder(tmp_path: Path) -> None:
    made = StageList()
    assert made.add("a", append, {"file": "x", "text": "1"}, ["x"], folder="sub") == "sub-a"
    assert made.add("b", copy, {"file": "y", "source": "x"}, ["y"], ["x/deeper"], folder="sub") == "sub-b"
    assert (made[1].needs, made[1].outputs) == (("sub-a",), ("sub/y",))
    with pytest.raises(AssertionError, match="no stage before it writes"):
        made.add("c", copy, {}, ["z"], ["x"])
    (tmp_path / "sub").mkdir()
    (tmp_path / RECORDS).mkdir()
    run_stages(tmp_path, made, 1, SILENT)
    assert (tmp_path / "sub" / "y").read_text() == "1"


def test_stages_of_several_runs_share_the_workers_and_each_run_keeps_its_records(tmp_path: Path) -> None:
    made: list[Stage] = []
    for run in ("one", "two"):
        for stage in stages():
            placed = {"name": f"{run}/{stage.name}", "needs": tuple(f"{run}/{need}" for need in stage.needs)}
            made.append(replace(stage, **placed, folder=run, outputs=tuple(f"{run}/{name}" for name in stage.outputs)))
    run_stages(tmp_path, made, 2, SILENT)
    assert (tmp_path / "two" / "second.txt").read_text() == "a"
    assert set(stage_times(tmp_path / "one")) == {"first", "second", "last"}
    run_stages(tmp_path / "one", stages(), 1, SILENT)  # the same run, alone: nothing is done twice
    assert (tmp_path / "one" / "last.txt").read_text() == "z"
    (tmp_path / "three").mkdir()
    (tmp_path / "three" / "mine.txt").touch()
    with pytest.raises(InputError, match=r"three.*holds no run"):
        run_stages(tmp_path, [replace(made[0], name="three/last")], 1, SILENT)


def test_an_identity_is_json_without_places_and_speed() -> None:
    first, second, other = (StageList() for _ in range(3))
    for made, workers, root, n in ((first, 1, "/x", 2.5), (second, 7, "/y", 2.5), (other, 1, "/x", 2.0)):
        settings = {"file": Path("f"), "workers": workers, "root": Path(root), "n": (1, n)}
        made.add("a", append, settings, ["f"], ignored=["root"])
    assert first[0].identity == second[0].identity != other[0].identity
    assert first[0].identity == {"stage": "a", "settings": {"file": "f", "n": [1, 2.5]}, "needs": {}}
    for made in (first, second, other):
        made.add("b", append, {}, ["g"], ["f"])
    assert first[1].identity == second[1].identity != other[1].identity
    assert plain_settings(frozenset("ba"), frozenset()) == ["a", "b"]


def test_a_run_of_an_earlier_version_is_left_alone(tmp_path: Path) -> None:
    run_stages(tmp_path, stages(), 1, SILENT)
    write_json(tmp_path / RECORDS / "second.json", {"fingerprint": "0", "done": True})
    with pytest.raises(InputError, match=r"second\.json.*earlier version.*another output folder"):
        run_stages(tmp_path, stages(text="b"), 1, SILENT)
    assert (tmp_path / "first.txt").read_text() == "a"


def test_a_failure_is_raised_here_and_what_was_done_is_kept(tmp_path: Path) -> None:
    broken = [stages()[-1], Stage("broken", fail, None, (), needs=("first",))]
    with pytest.raises(InputError, match="cannot run"):
        run_stages(tmp_path, broken, 1, SILENT)
    assert set(stage_times(tmp_path)) == {"first"}
    with pytest.raises(MissingExtra, match=r"\[train\]'"):
        run_stages(tmp_path, [Stage("broken", fail, "extra", ())], 1, SILENT)


def test_a_worker_that_dies_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(ComputeError, match="a worker process died"):
        run_stages(tmp_path, [Stage("dying", die, None, ())], 1, SILENT)


WAITING = """
import os, sys, time
from collections.abc import Iterator
from pathlib import Path
from recipe_studies.experiments.schedule import Stage, run_stages
from recipe.progress import SILENT

def wait(run_dir, settings, progress):
    part = run_dir / "part"
    part.write_text(str(os.getpid()))
    part.rename(run_dir / "started")
    time.sleep(600)

if __name__ == "__main__":
    run_stages(Path(sys.argv[1]), [Stage("wait", wait, None, ())], 1, SILENT, devices=sys.argv[2:])
"""


def started(tmp_path: Path, *devices: str) -> tuple[subprocess.Popen[bytes], int]:
    """A run in a process group of its own, and its worker's process id."""
    script, run_dir = tmp_path / "run.py", tmp_path / "run"
    script.write_text(WAITING)
    process = subprocess.Popen(
        [sys.executable, str(script), str(run_dir), *devices], start_new_session=True, stderr=subprocess.PIPE
    )
    while not (run_dir / "started").exists():
        assert process.poll() is None
        time.sleep(0.05)
    return process, int((run_dir / "started").read_text())


@pytest.mark.thorough
@pytest.mark.parametrize("devices", [(), ("3",)])
def test_ctrl_c_ends_all_workers(tmp_path: Path, devices: tuple[str, ...]) -> None:
    process, worker = started(tmp_path, *devices)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode != 0
    assert b"KeyboardInterrupt" in errors
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    process, worker = started(tmp_path)
    process.kill()
    process.communicate(timeout=300)  # the pipe closes once the last process that holds it has ended
    assert ended(worker)


def ended(process: int) -> bool:
    """Whether it is gone, or only its parent has not yet asked how it went."""
    status = Path(f"/proc/{process}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"


def test_two_runs_in_one_folder_are_refused(tmp_path: Path) -> None:
    with locked(tmp_path / "run"), pytest.raises(InputError, match="another process is at work in this folder"):
        run_stages(tmp_path / "run", stages(), 1, SILENT)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "first.txt").write_text("precious")
    with pytest.raises(InputError, match="not empty and holds no run; choose another folder"):
        run_stages(tmp_path, stages(), 1, SILENT)
    assert (tmp_path / "first.txt").read_text() == "precious"


def alive(process: int) -> bool:
    return Path(f"/proc/{process}/stat").exists() and not ended(process)


def open_engine(run_dir: Path, settings: Any, progress: Progress) -> None:
    """Stand for an engine that is never closed, as GRPO's: it holds its GPU until the process ends."""
    device = os.environ["CUDA_VISIBLE_DEVICES"]
    engines = run_dir / "engines"
    engines.mkdir(exist_ok=True)
    others = [file.name for file in engines.glob(f"{device}-*") if alive(int(file.name.rpartition("-")[2]))]
    (engines / f"{device}-{os.getpid()}").touch()
    beside = settings.get("beside", ())
    (run_dir / f"{settings['file']}.begun").touch()
    while not all((run_dir / f"{file}.begun").exists() for file in beside):
        time.sleep(0.01)
    if settings.get("dies"):
        die(run_dir, settings, progress)
    write_json(run_dir / settings["file"], {"device": device, "others": others})


def engine(name: str, needs: tuple[str, ...] = (), *, gpu: bool = True, **settings: Any) -> Stage:
    return Stage(name, open_engine, {"file": f"{name}.json", **settings}, (f"{name}.json",), needs, gpu)


@pytest.mark.thorough
def test_a_gpu_never_holds_the_engine_of_an_earlier_stage(tmp_path: Path) -> None:
    """Two chains of training, plans and next actions on two GPUs, which work at the same time."""
    chains = [
        engine(f"{kind}-{run}", needs=(f"{before}-{run}",) if before else (), beside=("grpo-0.json", "grpo-1.json"))
        for run in (0, 1)
        for before, kind in (("", "grpo"), ("grpo", "plans"), ("plans", "vpa"))
    ]
    run_stages(tmp_path, chains, 1, SILENT, devices=("3", "5"))
    made = {stage.name: read_json(tmp_path / f"{stage.name}.json") for stage in chains}
    assert [one["others"] for one in made.values()] == [[]] * 6
    assert {made["grpo-0"]["device"], made["grpo-1"]["device"]} == {"3", "5"}
    assert len(list((tmp_path / "engines").iterdir())) == 6  # a process each


@pytest.mark.thorough
def test_a_stage_that_needs_no_gpu_takes_none(tmp_path: Path) -> None:
    """It runs beside the stage that has the only GPU, and the stages that wait for it do not keep that busy."""
    beside = ("asks.json", "trains.json")
    wanted = [engine("asks", gpu=False, beside=beside), engine("trains", beside=beside)]
    run_stages(tmp_path, wanted, 1, SILENT, devices=("3",))
    assert [read_json(tmp_path / file)["device"] for file in beside] == ["", "3"]


@pytest.mark.thorough
def test_a_stage_that_dies_gives_its_gpu_back(tmp_path: Path) -> None:
    wanted = [engine("dies", dies=True), engine("after", needs=("dies",)), engine("next")]
    with pytest.raises(RecipeError, match="stage dies: a worker process died"):
        run_stages(tmp_path, wanted, 1, SILENT, devices=("3",), keep_going=True)
    assert read_json(tmp_path / "next.json") == {"device": "3", "others": []}
    assert set(stage_times(tmp_path)) == {"next"}
    with pytest.raises(ComputeError, match="a worker process died"):
        run_stages(tmp_path, wanted, 1, SILENT, devices=("3",))


def test_others_go_on_where_a_stage_fails(tmp_path: Path) -> None:
    wanted = [*stages(), Stage("bad", fail, "input", ()), Stage("after", copy, {}, ("after.txt",), needs=("bad",))]
    with pytest.raises(RecipeError, match="stage bad: this stage cannot run"):
        run_stages(tmp_path, wanted, 1, SILENT, keep_going=True)
    assert set(stage_times(tmp_path)) == {"first", "second", "last"}
    assert not (tmp_path / "after.txt").exists()
