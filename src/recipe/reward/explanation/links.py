"""Where a narrated second can be watched: a link made from a template, for videos that have one."""

import re
from urllib.parse import quote

from recipe.errors import InputError
from recipe.types import Narration, Segment

YOUTUBE = "https://www.youtube.com/watch?v={video_id}&t={start}s"

_YOUTUBE_ID = re.compile(r"[A-Za-z0-9_-]{11}")
_ELSEWHERE = {"world", "captaincook4d", "egoprocel", "egoexo4d", "ego-exo4d", "egoper", "epic-kitchens", "epic-tent"}
"""Sources whose videos are not on YouTube, whatever their ids look like."""
_TIMED = re.compile(r"[?&#][^?&#]*\{start\}[^&#]*")
"""The part of a template that says when; left out where there is no time."""


class Links:
    """Links to videos: by a template with `{video_id}` and, where it takes one, `{start}` in whole seconds.

    Without a template, ids that look like YouTube's are linked there, unless the source's videos are known to be
    elsewhere; with the template `none` nothing is linked. Raises InputError for a template that cannot be used.

    >>> Links().of(Narration("dQw4w9WgXcQ", ()), Segment("stir", 62.5, 64.0))
    'https://www.youtube.com/watch?v=dQw4w9WgXcQ&t=62s'
    >>> Links("https://host.example/{video_id}?t={start}").of(Narration("a b", ()))
    'https://host.example/a%20b'
    """

    def __init__(self, template: str = "") -> None:
        self._template = _checked(template) if template not in ("", "none") else ""
        self._guessed = template == ""

    def of(self, narration: Narration, segment: Segment | None = None) -> str | None:
        """The link to a video, at the second in which a segment starts; without a time to its beginning."""
        if self._guessed and not _on_youtube(narration):
            return None
        template = YOUTUBE if self._guessed else self._template
        if not template:
            return None
        start = None if segment is None else segment.start
        video_id = quote(narration.video_id, safe="")
        if start is None:
            return _untimed(template).replace("{start}", "0").replace("{video_id}", video_id)
        return template.replace("{start}", str(max(int(start), 0))).replace("{video_id}", video_id)


def _on_youtube(narration: Narration) -> bool:
    elsewhere = narration.source is not None and narration.source.lower() in _ELSEWHERE
    return not elsewhere and _YOUTUBE_ID.fullmatch(narration.video_id) is not None


def _untimed(template: str) -> str:
    shorter = _TIMED.sub("", template)
    return shorter if "?" in shorter else shorter.replace("&", "?", 1)


def _checked(template: str) -> str:
    if not re.match(r"https?://", template):
        raise InputError(f"--link {template!r} is no web address; begin it with https://, or give none.")
    rest = template.replace("{video_id}", "").replace("{start}", "")
    if "{video_id}" not in template or set(rest) & set("{}"):
        raise InputError(f"--link {template!r} does not say where a video is; use {{video_id}} and {{start}} in it.")
    return template
