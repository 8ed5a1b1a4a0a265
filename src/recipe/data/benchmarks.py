"""The benchmarks that can be read, and where their folders are looked for."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from recipe.config.removed import removed_option
from recipe.data.captaincook4d import ANNOTATIONS, SPLIT_LIST, missing_steps, read_captaincook4d
from recipe.data.coin import read_coin
from recipe.data.crosstask import read_crosstask
from recipe.data.egoexo4d import headings, read_egoexo4d
from recipe.data.egoper import ANNOTATIONS as EGOPER_ANNOTATIONS
from recipe.data.egoper import RECIPES, additions_and_corrections, read_egoper
from recipe.data.egoprocel import COLLECTIONS, read_egoprocel
from recipe.data.niv import read_niv
from recipe.data.roles import role_of
from recipe.data.task_graphs import count_task_graphs
from recipe.errors import InputError
from recipe.progress import SILENT, Progress
from recipe.types import SPLITS, Procedure

SetAside = Mapping[str, tuple[str, ...]]
"""Video id to the entries of its annotation that are in no procedure."""


class PublishedPart(NamedTuple):
    """A file or folder that a benchmark is published in."""

    path: str
    """Where it lies in the benchmark's folder."""
    holds: str
    needed: bool = True
    """Whether nothing can be read without it."""
    other_path: str = ""
    """Where some releases put it."""

    def is_in(self, folder: Path) -> bool:
        """Whether it is in the benchmark's folder."""
        return any((folder / path).exists() for path in (self.path, self.other_path) if path)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A published set of annotated videos: its source, licence, files and reader."""

    split: str
    """Where its training and test videos come from."""
    licence: str
    home: str
    download: str
    """What to fetch and how to lay it out in the benchmark's folder."""
    parts: tuple[PublishedPart, ...]
    markers: tuple[str, ...]
    """Paths in its folder, by any of which it is recognised."""
    read: Callable[[Path], list[Procedure]]
    """From its folder to its procedures; raises InputError."""
    set_aside: Callable[[Path], SetAside] | None = None
    """From its folder to annotated entries that are no step performed, and so in no procedure; raises InputError."""
    set_aside_as: str = ""
    """What those are."""
    published: int | None = None
    """Number of annotated videos that the publisher states, where it is known."""
    graphs: Callable[[Path], int] | None = None
    """From its folder to the number of its task graphs, where it has any; raises InputError."""


BENCHMARKS: dict[str, Benchmark] = {
    "coin": Benchmark(
        split="official training and testing sets",
        licence="research use, including sharing and modifying",
        home="https://coin-dataset.github.io",
        download="COIN.json of github.com/coin-dataset/annotations",
        parts=(PublishedPart("COIN.json", "all videos"),),
        markers=("COIN.json",),
        read=read_coin,
        published=11_827,
    ),
    "crosstask": Benchmark(
        split="lists of Visual Planning for Assistance",
        licence="code BSD-3, no statement on the annotations; split lists CC BY-NC 4.0",
        home="https://github.com/DmZhukov/CrossTask",
        download=(
            "crosstask_release.zip, unpacked to crosstask_release/; and {train,validation,test}.txt of "
            "github.com/facebookresearch/VLaMP, meta_data/crosstask, in splits/"
        ),
        parts=(
            PublishedPart("crosstask_release/tasks_primary.txt", "tasks and their steps"),
            PublishedPart("crosstask_release/annotations", "all videos"),
            *(PublishedPart(f"splits/{name}.txt", "split") for name in ("train", "validation", "test")),
        ),
        markers=("crosstask_release",),
        read=read_crosstask,
        published=2_750,
    ),
    "captaincook4d": Benchmark(
        split="official, by recording, normal and erroneous ones together",
        licence="MIT",
        home="https://github.com/CaptainCook4D/annotations",
        download="annotation_json/, data_splits/ and task_graphs/ of github.com/CaptainCook4D/annotations",
        parts=(
            PublishedPart(ANNOTATIONS, "all videos"),
            PublishedPart(SPLIT_LIST, "split"),
            PublishedPart("task_graphs", "task graphs", needed=False),
        ),
        markers=(ANNOTATIONS,),
        read=read_captaincook4d,
        published=384,
        set_aside=missing_steps,
        set_aside_as="steps that were not performed",
        graphs=count_task_graphs,
    ),
    "egoprocel": Benchmark(
        split="none published; every fifth person is held out, by a hash",
        licence="none stated on the annotations; videos under the licences of the six collections",
        home="https://sid2697.github.io/egoprocel",
        download="annotations/ of the OneDrive folder that the home page links to",
        parts=tuple(
            PublishedPart(f"annotations/{name}", "the videos of this collection", needed=False) for name in COLLECTIONS
        ),
        markers=tuple(f"annotations/{name}" for name in COLLECTIONS),
        read=read_egoprocel,
    ),
    "niv": Benchmark(
        split="the 45 held-out videos of SCHEMA",
        licence="none stated",
        home="https://github.com/WenliangGuo/SCHEMA",
        download="niv_train.json and niv_valid.json of github.com/WenliangGuo/SCHEMA, dataset/niv",
        parts=(
            PublishedPart("niv_valid.json", "test videos"),
            # The paper only tests on it, for which the held-out videos are enough.
            PublishedPart("niv_train.json", "training videos", needed=False),
        ),
        markers=("niv_valid.json", "niv_train.json"),
        read=read_niv,
        # The publication says 150, and the layout that planners use holds 148 of them.
        published=150,
    ),
    "egoexo4d": Benchmark(
        split="official validation set, read as test; the test set's annotations are not published",
        licence="Ego-Exo4D licence agreement, to be signed",
        home="https://docs.ego-exo4d-data.org",
        download="`egoexo --parts annotations --benchmarks keystep -o DIR`: annotations/keystep_{train,val}.json",
        parts=(
            PublishedPart("annotations/keystep_val.json", "test videos"),
            PublishedPart("annotations/keystep_train.json", "training videos", needed=False),
        ),
        markers=("annotations/keystep_val.json", "annotations/keystep_train.json"),
        read=read_egoexo4d,
        set_aside=headings,
        set_aside_as="headings over steps",
    ),
    "egoper": Benchmark(
        split="official lists",
        licence="given on request, for research",
        home="https://github.com/robert80203/EgoPER_official",
        download="on request from the authors: annotation.json, and {training,validation,test}.txt of each recipe",
        parts=(
            PublishedPart(EGOPER_ANNOTATIONS, "all videos"),
            # The release of 2025 writes the folders of recipes with a capital.
            *(
                PublishedPart(f"{recipe}/{name}.txt", f"split of {recipe}", False, f"{recipe.title()}/{name}.txt")
                for recipe in RECIPES
                for name in ("training", "validation", "test")
            ),
        ),
        markers=(EGOPER_ANNOTATIONS,),
        read=read_egoper,
        published=386,
        set_aside=additions_and_corrections,
        set_aside_as="additions and corrections, which no recipe asks for",
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

    @classmethod
    def of(cls, procedures: Sequence[Procedure]) -> "Summary":
        """Counts over procedures."""
        splits = Counter(procedure.split for procedure in procedures)
        return cls(
            videos=len(procedures),
            segments=sum(len(procedure.steps) for procedure in procedures),
            tasks=len({procedure.goal for procedure in procedures}),
            unique_steps=len({step.text for procedure in procedures for step in procedure.steps}),
            splits={split: splits[split] for split in (*SPLITS, "") if split in splits},
        )


def find_benchmark(root: Path | str, name: str) -> Path | None:
    """The folder of a benchmark: `root`/`name`, or `root` itself; None where neither holds its files."""
    root, markers = Path(root), BENCHMARKS[name].markers
    places = (folder for folder in (root / name, root) if any((folder / marker).exists() for marker in markers))
    return next(places, None)


def require_benchmarks(root: Path | str, names: Sequence[str] = ()) -> dict[str, Path]:
    """Folders of the named benchmarks, or of all there are under `root`, in the order of `BENCHMARKS`.

    Raises InputError that says what was looked for when `root`, a named benchmark, or every one is absent.
    """
    if not Path(root).is_dir():
        raise InputError(f"{root}: the folder does not exist; give the folder that holds the benchmarks.")
    if unknown := [name for name in names if name not in BENCHMARKS]:
        gone = removed_option("recipe data prepare", ["--benchmark", unknown[0]])
        raise InputError(gone or f"benchmark {unknown[0]!r} is unknown; known are {', '.join(BENCHMARKS)}.")
    wanted = [name for name in BENCHMARKS if not names or name in names]
    folders = {name: folder for name in wanted if (folder := find_benchmark(root, name)) is not None}
    absent = [name for name in wanted if name not in folders]
    if (names and absent) or not folders:
        looked = "; ".join(f"{name} is recognised by {name}/{' or '.join(BENCHMARKS[name].markers)}" for name in absent)
        raise InputError(f"{root}: {', '.join(absent)} not found here: {looked}; see `recipe data doctor {root}`.")
    return folders


def read_benchmarks(folders: Mapping[str, Path], progress: Progress = SILENT) -> list[Procedure]:
    """The procedures of several benchmarks, one after the other. Raises InputError."""
    procedures: list[Procedure] = []
    with progress.task("reading benchmarks", total=len(folders)) as advance:
        for name, folder in folders.items():
            procedures.extend(BENCHMARKS[name].read(folder))
            advance(1)
    return procedures


def select_procedures(
    folders: Mapping[str, Path], split: str | None = None, progress: Progress = SILENT
) -> tuple[list[Procedure], Counter[str], Counter[str]]:
    """The procedures of several benchmarks that have steps, of one split or of all.

    With them, by source, the videos without any step, and the annotated entries that are no step performed. Raises
    InputError.
    """
    chosen = [video for video in read_benchmarks(folders, progress) if split in (None, video.split)]
    entries = {name: read(folder) for name, folder in folders.items() if (read := BENCHMARKS[name].set_aside)}
    set_aside = Counter[str]()
    for video in chosen:
        if steps := entries.get(video.source, {}).get(video.video_id):
            set_aside[video.source] += len(steps)
    no_steps = Counter(video.source for video in chosen if not video.steps)
    return [video for video in chosen if video.steps], no_steps, set_aside


def by_role(procedures: Iterable[Procedure]) -> tuple[list[Procedure], Counter[str]]:
    """Procedures without the training and validation videos of zero-shot benchmarks, in the order given.

    Also returns the number of videos left out, by source.
    """
    procedures = list(procedures)
    # Their publishers name training videos as well, which the paper does not train on.
    held_back = [role_of(p.source) == "zero-shot" and p.split in ("train", "val") for p in procedures]
    left_out = Counter(p.source for p, held in zip(procedures, held_back, strict=True) if held)
    return [p for p, held in zip(procedures, held_back, strict=True) if not held], left_out


def trained_and_tested(procedures: Iterable[Procedure]) -> set[str]:
    """Ids of videos that one set trains on and another holds out: published splits ignore each other."""
    trained: set[str] = set()
    held_out: set[str] = set()
    for procedure in procedures:
        if procedure.split:
            # By the id alone: the same video of YouTube may be in several benchmarks.
            (trained if procedure.split == "train" else held_out).add(procedure.video_id)
    return trained & held_out
