"""The benchmarks that can be read, and where their folders are looked for."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from recipe.data.captaincook4d import ANNOTATIONS, missing_steps, read_captaincook4d
from recipe.data.coin import read_coin
from recipe.data.crosstask import read_crosstask
from recipe.data.niv import read_niv
from recipe.data.procedures import SPLITS
from recipe.errors import InputError
from recipe.progress import SILENT, Progress
from recipe.types import Procedure

Missing = Mapping[str, tuple[str, ...]]
"""Video id to the steps of its task that stand in the annotations as left out by the person."""


def _none_missing(_folder: Path) -> Missing:
    return {}


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A published set of annotated videos: what it is, where it comes from, how it is read."""

    title: str
    licence: str
    home: str
    download: str
    """What to fetch and how to lay it out in the benchmark's folder."""
    marker: str
    """The path in its folder by which it is recognised."""
    read: Callable[[Path], list[Procedure]]
    """From its folder to its procedures; raises InputError."""
    missing: Callable[[Path], Missing] = _none_missing
    """From its folder to the annotated steps that were not performed and so are in no procedure; raises InputError."""


BENCHMARKS: dict[str, Benchmark] = {
    "coin": Benchmark(
        title="COIN",
        licence="research use, including sharing and modifying",
        home="https://coin-dataset.github.io",
        download="COIN.json of github.com/coin-dataset/annotations",
        marker="COIN.json",
        read=read_coin,
    ),
    "crosstask": Benchmark(
        title="CrossTask",
        licence="code BSD-3, no statement on the annotations; split lists CC BY-NC 4.0",
        home="https://github.com/DmZhukov/CrossTask",
        download=(
            "crosstask_release.zip, unpacked to crosstask_release/; and {train,validation,test}.txt of "
            "github.com/facebookresearch/VLaMP, meta_data/crosstask, in splits/"
        ),
        marker="crosstask_release",
        read=read_crosstask,
    ),
    "captaincook4d": Benchmark(
        title="CaptainCook4D",
        licence="MIT",
        home="https://github.com/CaptainCook4D/annotations",
        download="annotation_json/ and data_splits/ of github.com/CaptainCook4D/annotations",
        marker=ANNOTATIONS,
        read=read_captaincook4d,
        missing=missing_steps,
    ),
    "niv": Benchmark(
        title="NIV",
        licence="none stated",
        home="https://github.com/WenliangGuo/SCHEMA",
        download="niv_train.json and niv_valid.json of github.com/WenliangGuo/SCHEMA, dataset/niv",
        marker="niv_train.json",
        read=read_niv,
    ),
}


class Summary(NamedTuple):
    """What a list of procedures holds."""

    videos: int
    segments: int
    tasks: int
    """Different goals."""
    unique_steps: int
    """Different step texts."""
    splits: dict[str, int]
    """Videos of each split; those in none under the empty string."""


def find_benchmark(root: Path, name: str) -> Path | None:
    """The folder of a benchmark: `root`/`name`, or `root` itself; None where neither holds its files."""
    marker = BENCHMARKS[name].marker
    return next((folder for folder in (root / name, root) if (folder / marker).exists()), None)


def require_benchmarks(root: Path, names: Sequence[str] = ()) -> dict[str, Path]:
    """Folders of the named benchmarks, or of all there are under `root`, in the order of `BENCHMARKS`.

    Raises InputError that says what was looked for when `root`, a named benchmark, or every one is absent.
    """
    if not root.is_dir():
        raise InputError(f"{root}: the folder does not exist; give the folder that holds the benchmarks.")
    if unknown := [name for name in names if name not in BENCHMARKS]:
        raise InputError(f"benchmark {unknown[0]!r} is unknown; known are {', '.join(BENCHMARKS)}.")
    wanted = [name for name in BENCHMARKS if not names or name in names]
    found = {name: folder for name in wanted if (folder := find_benchmark(root, name)) is not None}
    absent = [name for name in wanted if name not in found]
    if (names and absent) or not found:
        looked = "; ".join(f"{name} is recognised by {name}/{BENCHMARKS[name].marker}" for name in absent)
        raise InputError(f"{root}: {', '.join(absent)} not found here: {looked}; see `recipe data list`.")
    return found


def read_benchmarks(folders: Mapping[str, Path], progress: Progress = SILENT) -> list[Procedure]:
    """The procedures of several benchmarks, one after the other. Raises InputError."""
    procedures: list[Procedure] = []
    with progress.task("reading benchmarks", total=len(folders)) as advance:
        for name, folder in folders.items():
            procedures.extend(BENCHMARKS[name].read(folder))
            advance(1)
    return procedures


class Selected(NamedTuple):
    """Procedures with steps, and by source what was left out of them."""

    procedures: list[Procedure]
    no_steps: Counter[str]
    """Videos without any step."""
    not_performed: Counter[str]
    """Annotated steps that the person left out."""


def select_procedures(folders: Mapping[str, Path], split: str | None = None, progress: Progress = SILENT) -> Selected:
    """The procedures of several benchmarks that have steps, of one split or of all. Raises InputError."""
    chosen = [video for video in read_benchmarks(folders, progress) if split in (None, video.split)]
    missing = {name: BENCHMARKS[name].missing(folder) for name, folder in folders.items()}
    not_performed = Counter[str]()
    for video in chosen:
        if steps := missing[video.source].get(video.video_id):
            not_performed[video.source] += len(steps)
    no_steps = Counter(video.source for video in chosen if not video.steps)
    return Selected([video for video in chosen if video.steps], no_steps, not_performed)


def trained_and_tested(procedures: Iterable[Procedure]) -> set[str]:
    """Ids of videos that one set trains on and another holds out: published splits ignore each other."""
    trained: set[str] = set()
    held_out: set[str] = set()
    for procedure in procedures:
        if procedure.split:
            (trained if procedure.split == "train" else held_out).add(procedure.video_id)
    return trained & held_out


def summarise(procedures: Sequence[Procedure]) -> Summary:
    """Counts over procedures."""
    splits = Counter(procedure.split for procedure in procedures)
    return Summary(
        videos=len(procedures),
        segments=sum(len(procedure.steps) for procedure in procedures),
        tasks=len({procedure.goal for procedure in procedures}),
        unique_steps=len({step.text for procedure in procedures for step in procedure.steps}),
        splits={split: splits[split] for split in (*SPLITS, "") if split in splits},
    )
