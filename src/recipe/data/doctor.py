"""The state of a folder of benchmarks: what is there, what is missing and what is broken, in counts.

A fault is reported and never raised, so that one damaged file does not hide the state of the other benchmarks.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from recipe.artifacts import read_json
from recipe.data.benchmarks import BENCHMARKS, Benchmark, PublishedPart, Summary, find_benchmark
from recipe.data.layout import publisher_of
from recipe.errors import InputError
from recipe.progress import SILENT, Progress
from recipe.types import Procedure

State = Literal["complete", "partial", "broken", "absent"]
"""All parts are there; some are not, but what is there can be read; nothing can be read; no part is there."""

HasVideo = Callable[[Procedure], bool]
"""Whether an annotated video has a video file; raises InputError where that cannot be decided."""


# Larger files, in bytes, are not read to find their publisher.
_LARGEST = 1 << 28


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The state of one benchmark."""

    name: str
    folder: Path | None
    state: State
    missing: tuple[PublishedPart, ...] = ()
    """Parts that are not there."""
    problem: str = ""
    """Why nothing can be read, in one sentence."""
    summary: Summary | None = None
    """What can be read."""
    set_aside: int = 0
    """Annotated entries that are no step performed."""
    graphs: int | None = None
    """Task graphs, where the benchmark has any and they can be read."""
    graph_problem: str = ""
    with_video: int | None = None
    """Annotated videos that have a video file; None where files were not counted."""
    video_problem: str = ""
    """Why the file of a video could not be looked for: the first such problem."""

    @classmethod
    def of(cls, folder: Path | None, name: str, benchmark: Benchmark, has_video: HasVideo | None) -> "Diagnosis":
        """The state of a benchmark whose folder is found, or is None."""
        if folder is None:
            return cls(name, None, "absent", benchmark.parts)
        missing = tuple(part for part in benchmark.parts if not part.is_in(folder))
        try:
            procedures = benchmark.read(folder)
            set_aside = sum(map(len, benchmark.set_aside(folder).values())) if benchmark.set_aside else 0
        except (InputError, OSError) as error:
            return cls(name, folder, "broken", missing, str(error))
        graphs, graph_problem = None, ""
        if benchmark.graphs:
            try:
                graphs = benchmark.graphs(folder)
            except (InputError, OSError) as error:
                graph_problem = str(error)
        with_video, video_problem = 0, ""
        for procedure in procedures if has_video else ():
            try:
                with_video += has_video is not None and has_video(procedure)
            except (InputError, OSError) as error:
                video_problem = video_problem or str(error)
        return cls(
            name,
            folder,
            "partial" if missing else "complete",
            missing,
            summary=Summary.of(procedures),
            set_aside=set_aside,
            graphs=graphs,
            graph_problem=graph_problem,
            with_video=with_video if has_video else None,
            video_problem=video_problem,
        )


@dataclass(frozen=True, slots=True)
class Report:
    """The state of every benchmark under a folder, in the order of `BENCHMARKS`, and what lies in a wrong place."""

    diagnoses: tuple[Diagnosis, ...]
    misplaced: tuple[tuple[Path, str], ...]
    """Files and folders of a benchmark that lie outside its folder, each with the benchmark."""

    @property
    def healthy(self) -> bool:
        """Whether something can be used and nothing is broken."""
        states = {diagnosis.state for diagnosis in self.diagnoses}
        damaged = any(diagnosis.graph_problem for diagnosis in self.diagnoses)
        return bool(states & {"complete", "partial"}) and "broken" not in states and not damaged


def examine(root: Path, has_video: HasVideo | None = None, progress: Progress = SILENT) -> Report:
    """Look at every benchmark under `root`, or at `root` as one. Raises InputError where `root` is no folder."""
    if not root.is_dir():
        problem = "this is a file" if root.exists() else "the folder does not exist"
        raise InputError.at(root, problem, "give the folder that holds the benchmarks")
    diagnoses = []
    with progress.task("examining benchmarks", total=len(BENCHMARKS)) as advance:
        for name, benchmark in BENCHMARKS.items():
            diagnoses.append(Diagnosis.of(find_benchmark(root, name), name, benchmark, has_video))
            advance(1)

    # What a benchmark publishes, where it is not looked for: directly in `root` and in the folders there.
    misplaced = []
    here = [name for name in BENCHMARKS if find_benchmark(root, name) == root]
    places = [(root, here, sorted(root.glob("*.json")))]
    for folder in sorted(path for path in root.iterdir() if path.is_dir() and not here):
        places.append((folder, [folder.name], sorted((*folder.glob("*.json"), *folder.glob("*/*.json")))))
    for folder, owners, files in places:
        for name, benchmark in BENCHMARKS.items():
            for marker in benchmark.markers if name not in owners else ():
                if (folder / marker).is_dir():
                    misplaced.append((folder / marker, name))
        for path in files:
            publisher = None
            # What cannot be read is no file of a benchmark, or is reported above as broken.
            with suppress(InputError, OSError):
                if path.stat().st_size <= _LARGEST:
                    publisher = publisher_of(read_json(path))
            if publisher is not None and publisher not in owners:
                misplaced.append((path, publisher))
    return Report(tuple(diagnoses), tuple(misplaced))
