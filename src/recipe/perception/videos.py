"""Finding the video file of an example in a folder of downloads."""

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from recipe.errors import InputError, listed
from recipe.types import Example, Procedure

# What ends the name of a video file, in small or capital letters: each kind that `footage.CONTAINERS` reads.
_EXTENSIONS = {".3gp", ".asf", ".avi", ".flv", ".m2ts", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts"}
_EXTENSIONS |= {".ogv", ".ts", ".webm", ".wmv"}


class VideoFolder:
    """Videos as downloaded: `<folder>/<video_id>.<ext>` or `<folder>/<source>/<video_id>.<ext>`."""

    def __init__(self, folder: Path | str) -> None:
        """Raises InputError where the folder does not exist."""
        folder = Path(folder)
        if not folder.is_dir():
            problem = "this is a file, not a folder" if folder.exists() else "the folder does not exist"
            raise InputError.at(folder, problem, "give the folder that holds the videos")
        self.folder = folder
        self._listed: dict[Path, dict[str, list[Path]]] = {}

    def find(self, source: str, video_id: str) -> Path | None:
        """The file of a video, or None; links are followed. A folder is listed once, when first looked into.

        Raises InputError where two different files stand for the video, and for an id that leads out of the folder.
        """
        name = PurePosixPath(video_id)
        if not name.name or name.is_absolute() or ".." in name.parts or ".." in PurePosixPath(source).parts:
            raise InputError.at(self.folder, f"{video_id!r} is no name of a video", "repair the annotation")
        matches = []
        for place in [self.folder, self.folder / source] if source else [self.folder]:
            folder = (place / name).parent
            if folder not in self._listed:
                files: dict[str, list[Path]] = {}
                try:
                    entries = sorted(folder.iterdir())
                except (FileNotFoundError, NotADirectoryError):
                    entries = []
                except OSError as error:
                    problem = f"the folder cannot be read ({error.strerror})"
                    raise InputError.at(folder, problem, "check its permissions") from None
                for file in entries:
                    # Not by Path.suffix: an id may hold dots, and may begin with one or with a hyphen.
                    stem, dot, ending = file.name.rpartition(".")
                    if dot + ending.lower() in _EXTENSIONS and file.is_file():
                        files.setdefault(stem, []).append(file)
                self._listed[folder] = files
            matches += self._listed[folder].get(name.name, [])
        if len({file.resolve() for file in matches}) > 1:
            named = " and ".join(str(file.relative_to(self.folder)) for file in matches)
            raise InputError.at(self.folder, f"more than one file for video {video_id!r}: {named}", "keep one of them")
        return matches[0] if matches else None


def name_of(video: Example | Procedure) -> str:
    """A video as source/video_id."""
    return f"{video.source}/{video.video_id}" if video.source else video.video_id


class VideoPaths(NamedTuple):
    """The videos of examples."""

    paths: dict[str, Path]
    """File of each example whose video is there, by example_id, in the order of the examples."""
    missing: tuple[str, ...]
    """Videos that are not there, as `source/video_id`, each once, in the order of the examples."""

    def require_all(self, folder: VideoFolder) -> None:
        """Raises InputError, naming the first of them, where videos are missing."""
        if self.missing:
            counted = f"{len(self.missing)} {'videos are' if len(self.missing) > 1 else 'video is'} missing"
            problem = f"{counted}: {listed(self.missing)}"
            raise InputError.at(folder.folder, problem, "download the videos, or skip the missing ones")


def locate(folder: VideoFolder | Path | str, examples: Iterable[Example]) -> VideoPaths:
    """The file of each example's video, and the videos that are missing; to skip those is the caller's decision.

    Raises InputError where the folder does not exist, or where two different files stand for one video.
    """
    videos = folder if isinstance(folder, VideoFolder) else VideoFolder(folder)
    paths: dict[str, Path] = {}
    missing: dict[str, None] = {}
    for example in examples:
        path = videos.find(example.source, example.video_id)
        if path is None:
            missing[name_of(example)] = None
        else:
            paths[example.example_id] = path
    return VideoPaths(paths, tuple(missing))
