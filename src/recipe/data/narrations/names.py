"""The video id in the name of a file that holds one video."""

import re

_LANGUAGE = re.compile(r"\.[a-z]{2,3}(-[A-Za-z0-9]+)*$")
_BRACKETS = re.compile(r"\[([A-Za-z0-9_-]{11})\]$")


def video_id(name: str) -> str:
    """A file's name without its suffix and language: `ID.vtt`, `ID.en.vtt` and yt-dlp's `Title [ID].en-US.vtt`.

    >>> video_id("dQw4w9WgXcQ.en-orig.vtt"), video_id("How to boil [dQw4w9WgXcQ].de.srt"), video_id("a.b.csv")
    ('dQw4w9WgXcQ', 'dQw4w9WgXcQ', 'a.b')
    """
    stem = _LANGUAGE.sub("", name.rpartition(".")[0] or name)
    found = _BRACKETS.search(stem)
    return found[1] if found else stem
