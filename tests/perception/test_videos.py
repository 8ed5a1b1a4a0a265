"""A video is found by its id, by one rule; what is missing is listed, and what is ambiguous is refused."""

from pathlib import Path

import pytest

from recipe.errors import InputError
from recipe.perception.videos import VideoFolder, locate
from recipe.types import Example


def example(video: str, source: str = "coin", cut: int = 1) -> Example:
    return Example(f"{source}/{video}/{cut}", source, video, "make tea", ("boil",), ("pour",), cut)


def put(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"video")
    return folder


@pytest.mark.parametrize(
    ("file", "source", "video"),
    [
        ("abc.mp4", "coin", "abc"),
        ("coin/abc.webm", "coin", "abc"),
        ("abc.MP4", "", "abc"),
        ("abc.3gp", "", "abc"),
        ("abc.ogv", "coin", "abc"),
        ("-3CEg4y7mQM.mkv", "coin", "-3CEg4y7mQM"),
        ("--help.mp4", "coin", "--help"),
        ("_.a.b.avi", "coin", "_.a.b"),
        (".hidden.mov", "coin", ".hidden"),
        ("ego/P01/R02.m4v", "ego", "P01/R02"),
        ("a b*[c].mp4", "coin", "a b*[c]"),
    ],
)
def test_a_video_is_found_by_its_id(tmp_path: Path, file: str, source: str, video: str) -> None:
    assert VideoFolder(put(tmp_path, file)).find(source, video) == tmp_path / file


@pytest.mark.parametrize("video", ["ABC", "ab", "abc.mp4", "bc", "b", "gone", "notes", "part"])
def test_another_name_is_another_video(tmp_path: Path, video: str) -> None:
    put(tmp_path, "abc.mp4", "coin/b/c.mp4", "niv/b.mp4", "notes.txt", "part.mp4.part", "part.f137")
    (tmp_path / "gone.mp4").symlink_to(tmp_path / "nothing.mp4")
    assert VideoFolder(tmp_path).find("coin", video) is None


def test_links_are_followed(tmp_path: Path) -> None:
    put(tmp_path / "store", "one.mp4")
    folder = put(tmp_path / "videos", "other.mp4")
    (folder / "abc.mp4").symlink_to(tmp_path / "store" / "one.mp4")
    (folder / "coin").symlink_to(tmp_path / "store", target_is_directory=True)
    assert VideoFolder(folder).find("coin", "abc") == folder / "abc.mp4"
    assert VideoFolder(folder).find("coin", "one") == folder / "coin" / "one.mp4"


@pytest.mark.parametrize("files", [("abc.mp4", "abc.webm"), ("abc.mp4", "coin/abc.mp4"), ("abc.mp4", "abc.MP4")])
def test_two_files_for_a_video_are_refused(tmp_path: Path, files: tuple[str, str]) -> None:
    folder = VideoFolder(put(tmp_path, *files))
    if len({file for file in tmp_path.rglob("abc.*") if file.is_file()}) < 2:
        pytest.skip("this file system does not tell the two names apart")
    with pytest.raises(
        InputError, match=r"more than one file for video 'abc': .*abc\.\w+ and .*abc\.\w+; keep one of them\."
    ):
        folder.find("coin", "abc")
    assert folder.find("niv", "xyz") is None


def test_two_names_of_one_file_are_one_video(tmp_path: Path) -> None:
    put(tmp_path, "abc.mp4")
    (tmp_path / "coin").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "abc.mkv").symlink_to(tmp_path / "abc.mp4")
    assert VideoFolder(tmp_path).find("coin", "abc") is not None


@pytest.mark.parametrize("video", ["", "../abc", "/etc/passwd", "a/../../abc", ".."])
def test_an_id_cannot_lead_out_of_the_folder(tmp_path: Path, video: str) -> None:
    put(tmp_path, "abc.mp4", "videos/x.mp4")
    with pytest.raises(InputError, match="is no name of a video"):
        VideoFolder(tmp_path / "videos").find("coin", video)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the folder does not exist"):
        VideoFolder(tmp_path / "videos")
    put(tmp_path, "film.mp4")
    with pytest.raises(InputError, match="this is a file, not a folder"):
        locate(tmp_path / "film.mp4", [])


def test_missing_videos_are_listed_once_in_order(tmp_path: Path) -> None:
    put(tmp_path, "a.mp4", "coin/b.mp4")
    videos = ["z", "a", "y", "b", "z"]
    examples = [example(video, cut=cut) for cut, video in enumerate(videos)] + [example("x", "")]
    located = locate(tmp_path, examples)
    assert located.missing == ("coin/z", "coin/y", "x")
    assert located.paths == {"coin/a/1": tmp_path / "a.mp4", "coin/b/3": tmp_path / "coin" / "b.mp4"}


def test_who_needs_all_videos_is_told_which_are_missing(tmp_path: Path) -> None:
    folder = VideoFolder(put(tmp_path, "a.mp4"))
    locate(folder, [example("a")]).require_all(folder)
    with pytest.raises(InputError, match="1 video is missing: coin/b; download"):
        locate(folder, [example("a"), example("b")]).require_all(folder)
    with pytest.raises(InputError, match=r"7 videos are missing: coin/0, coin/1, coin/2, coin/3, coin/4, \.\.\.; "):
        locate(folder, [example(str(number)) for number in range(7)]).require_all(folder)
