"""Clips that people send: written to disk within limits, read in processes with limits, and deleted."""

import asyncio
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from recipe.config import FrameConfig
from recipe.errors import ComputeError, InputError, MissingExtra
from recipe.types import Frames
from recipe_apps.serving.runs import KEEP_SECONDS
from recipe_apps.web.guard import arriving
from recipe_apps.web.refusals import Refusal

if TYPE_CHECKING:
    from recipe.perception.uploads import UploadReader

Value = TypeVar("Value")
# An hour at 1.2 Mbit/s. docs/production.md gives the size to the proxy.
MAX_CLIP, MAX_CLIP_SECONDS = 512 << 20, 3600.0
"""Size and length of a clip."""
# Clips on disk at once.
# 16 of the largest size take 8 GiB of the disk.
_CLIPS = 16
# Clips that are looked at as they arrive, and as many that are decoded for a run, at once.
# Each takes a core, and a GiB of memory (`recipe.perception.uploads`).
_DECODERS = 2
# Processor time that looking at a clip may take, and decoding it; by the clock half as much again may pass.
# For clips that are made to hold a decoder: frames are sought, so that an honest one of an hour takes a part of it.
_PROBE_SECONDS, _DECODE_SECONDS = 20, 120


@dataclass(slots=True)
class StoredClip:
    """A clip on disk."""

    path: Path
    seconds: float
    last_used: float


class ClipStore:
    """Clips in a folder of their own that is deleted with the store; nothing of a refused one stays."""

    def __init__(self) -> None:
        # Readable for this user alone: what people film is nobody else's.
        self.folder = Path(tempfile.mkdtemp(prefix="recipe-clips-"))
        self._clips: dict[str, StoredClip] = {}
        self._lock = threading.Lock()
        self._receiving = 0
        self._probing = asyncio.Semaphore(_DECODERS)
        try:
            from recipe.perception.uploads import UploadReader  # noqa: PLC0415 - an extra of its own

            self._reader: UploadReader | MissingExtra = UploadReader(_DECODERS)
        except MissingExtra as missing:
            self._reader = missing

    async def receive(self, length: int, body: AsyncIterator[bytes]) -> dict[str, Any]:
        """Store a clip of `length` bytes and describe it. Raises Refusal for what is no clip within the limits."""
        if length > MAX_CLIP:
            problem = f"The clip has {length / 1e6:,.0f} MB; this page takes at most {MAX_CLIP / 1e6:,.0f} MB."
            raise Refusal("body_too_large", problem)
        with self._lock:
            if len(self._clips) + self._receiving >= _CLIPS:
                raise Refusal("queue_full", "Too many clips are kept at the moment; try again in a few minutes.")
            self._receiving += 1
        # Who knows the id of a clip does not know its file's name.
        identity, path = uuid.uuid4().hex, self.folder / uuid.uuid4().hex
        try:
            received = 0
            with path.open("wb") as file:
                async with arriving(length):
                    async for chunk in body:
                        received += len(chunk)
                        # The limit was checked for the length that was stated.
                        if received > length:
                            break
                        await asyncio.to_thread(file.write, chunk)
            if received != length:
                raise Refusal("bad_clip", "The clip did not arrive whole; send it again.")
            async with self._probing:  # not in a thread: those are for the writing of other clips, too
                info = await asyncio.to_thread(
                    self._read,
                    path,
                    "This is no video that can be read",
                    lambda reader: reader.probe(path, _PROBE_SECONDS),
                )
            if info.duration > MAX_CLIP_SECONDS:
                minutes, most = info.duration / 60, MAX_CLIP_SECONDS / 60
                problem = f"The clip is {minutes:.0f} minutes long; this page takes at most {most:.0f}."
                raise Refusal("bad_clip", problem)
            with self._lock:
                self._clips[identity] = StoredClip(path, info.duration, time.monotonic())
        except BaseException:  # a client that goes away in between leaves nothing either
            path.unlink(missing_ok=True)
            raise
        finally:
            with self._lock:
                self._receiving -= 1
        return {
            "id": identity,
            "seconds": round(info.duration, 3),
            "fps": round(info.fps, 3),
            "width": info.width,
            "height": info.height,
            "complete": info.complete,
        }

    def require(self, identity: str, until: float) -> StoredClip:
        """A clip that has a beginning of `until` seconds. Raises Refusal where there is none."""
        with self._lock:
            clip = self._clips.get(identity)
        if clip is None:
            raise Refusal("unknown_clip", "There is no such clip: it has expired, or the server was started again.")
        if until > clip.seconds + 1e-3:
            raise Refusal("bad_clip", f"The cut at {until:g} s lies behind the end of the clip, {clip.seconds:g} s.")
        clip.last_used = time.monotonic()
        return clip

    def frames(self, identity: str, until: float, config: FrameConfig) -> Frames:
        """The frames of a clip before a moment. Raises Refusal where it shows nothing there, or is damaged before."""
        clip = self.require(identity, until)
        return self._read(
            clip.path,
            f"The clip cannot be read up to {until:g} s",
            lambda reader: reader.frames(clip.path, config, min(until, clip.seconds), _DECODE_SECONDS),
        )

    def _read(self, path: Path, problem: str, read: Callable[["UploadReader"], Value]) -> Value:
        if isinstance(self._reader, MissingExtra):
            raise Refusal("bad_clip", str(self._reader))
        try:
            return read(self._reader)
        except ComputeError as error:
            raise Refusal("stopped", f"{error}") from None
        except InputError as error:
            # Without the file's path on this machine, and without the remedy, which is for its owner.
            reason = str(error).replace(f"{path}", "").lstrip(": ").partition(";")[0].rstrip(".")
            raise Refusal("bad_clip", f"{problem}: {reason}.") from None

    def delete(self, identity: str) -> None:
        """Delete a clip, if there is one."""
        with self._lock:
            clip = self._clips.pop(identity, None)
        if clip is not None:
            clip.path.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Delete the clips that nobody has used for long."""
        expired = time.monotonic() - KEEP_SECONDS
        for identity in [identity for identity, clip in list(self._clips.items()) if clip.last_used < expired]:
            self.delete(identity)

    def close(self) -> None:
        """End the reading of clips, and delete all."""
        if not isinstance(self._reader, MissingExtra):
            self._reader.close()
        shutil.rmtree(self.folder, ignore_errors=True)
