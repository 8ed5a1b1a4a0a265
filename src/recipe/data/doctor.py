"""What is the matter with a folder of benchmarks: what is there, what is missing, what still works, in counts.

A fault is a finding here and never an error, so that one damaged file does not hide the state of the other benchmarks.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from recipe.artifacts import read_json
from recipe.data.benchmarks import BENCHMARKS, Part, Summary, find_benchmark, summarise
from recipe.data.signatures import publisher_of
from recipe.errors import InputError
from recipe.progress import SILENT, Progress
from recipe.types import Procedure

State = Literal["complete", "partial", "broken", "absent"]
"""All parts are there; some are not, but what is there can be read; nothing can be read; no part is there."""

HasVideo = Callable[[Procedure], bool]
"""Whether there is a video file of an annotated video."""


class Misplaced(NamedTuple):
    """A file or folder of one benchmark in the folder of another, or of none."""

    path: Path
    belongs_to: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The state of one benchmark."""

    name: str
    folder: Path | None
    state: State
    missing: tuple[Part, ...] = ()
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
    """Annotated videos that have a video file; None where nobody looked."""


@dataclass(frozen=True, slots=True)
class Report:
    """The state of every benchmark under a folder, in the order of `BENCHMARKS`, and what lies in a wrong place."""

    diagnoses: tuple[Diagnosis, ...]
    misplaced: tuple[Misplaced, ...]

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
        for name in BENCHMARKS:
            diagnoses.append(_diagnose(root, name, has_video))
            advance(1)
    return Report(tuple(diagnoses), tuple(_misplaced(root)))


def _diagnose(root: Path, name: str, has_video: HasVideo | None) -> Diagnosis:
    benchmark = BENCHMARKS[name]
    folder = find_benchmark(root, name)
    if folder is None:
        return Diagnosis(name, None, "absent", benchmark.parts)
    missing = tuple(part for part in benchmark.parts if not part.found(folder))
    try:
        procedures = benchmark.read(folder)
        set_aside = sum(map(len, benchmark.set_aside(folder).values()))
    except (InputError, OSError) as error:
        return Diagnosis(name, folder, "broken", missing, str(error))
    graphs, graph_problem = None, ""
    if benchmark.graphs:
        try:
            graphs = benchmark.graphs(folder)
        except (InputError, OSError) as error:
            graph_problem = str(error)
    return Diagnosis(
        name,
        folder,
        "partial" if missing else "complete",
        missing,
        summary=summarise(procedures),
        set_aside=set_aside,
        graphs=graphs,
        graph_problem=graph_problem,
        with_video=sum(map(has_video, procedures)) if has_video else None,
    )


def _misplaced(root: Path) -> Iterator[Misplaced]:
    """What another benchmark publishes, in the folder of each benchmark and directly in `root`."""
    for name in BENCHMARKS:
        if (root / name).is_dir():
            yield from _foreign(root / name, name)
    if not any((root / name).is_dir() or find_benchmark(root, name) == root for name in BENCHMARKS):
        yield from _foreign(root, None)


def _foreign(folder: Path, owner: str | None) -> Iterator[Misplaced]:
    for other, benchmark in BENCHMARKS.items():
        for marker in benchmark.markers if other != owner else ():
            if (folder / marker).is_dir():
                yield Misplaced(folder / marker, other)
    for path in sorted((*folder.glob("*.json"), *folder.glob("*/*.json"))):
        if (belongs_to := _publisher(path)) not in (None, owner):
            yield Misplaced(path, str(belongs_to))


def _publisher(path: Path) -> str | None:
    try:
        return publisher_of(read_json(path))
    except (InputError, OSError):
        return None
