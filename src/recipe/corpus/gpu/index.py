"""The index of a corpus on one or several GPUs: the same certified search, the scan and the ranking done there."""

from collections.abc import Sequence
from pathlib import Path

from recipe.corpus.index import Index
from recipe.corpus.layout import Manifest
from recipe.corpus.scan.certificate import Scores
from recipe.corpus.scan.opened import Shard
from recipe.errors import ConfigError, MissingExtra
from recipe.progress import SILENT, Progress

try:
    import torch
    import triton

    from recipe.corpus.gpu.parts import KINDS, GpuScores, Precision, coded, divide, halved, place
    from recipe.corpus.gpu.scan import fits
    from recipe.corpus.scan.queries import Queries
except ModuleNotFoundError as error:
    if error.name not in ("torch", "triton", "numba", "llvmlite"):
        raise
    raise MissingExtra("search on a GPU", "cpu" if error.name in ("numba", "llvmlite") else "gpu") from None


class GpuIndex(Index):
    """Shards of a corpus, searched exactly on GPUs; safe to share between threads. Open one with `GpuIndex.open`."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        shards: Sequence[Shard],
        devices: Sequence[str] = ("cuda",),
        precision: Precision = "int8",
        threads: int | None = None,
        progress: Progress = SILENT,
    ) -> None:
        super().__init__(folder, manifest, shards, threads=threads)
        self.precision = precision
        there = [_device(name) for name in devices]
        self._parts = [
            place(shards[run.start : run.stop], int(self._starts[run.start]), device, precision, progress)
            for run, device in zip(divide(shards, len(there)), there, strict=False)
        ]

    @classmethod
    def open(  # type: ignore[override]  # what a processor's instructions are there, devices are here
        cls,
        folder: Path | str,
        shards: Sequence[int] | None = None,
        *,
        devices: Sequence[str] = ("cuda",),
        precision: Precision = "int8",
        streamed: bool | None = None,
        threads: int | None = None,
        progress: Progress = SILENT,
    ) -> "GpuIndex":
        """The index as `Index.open`, its vectors copied to the devices, consecutive shards to each.

        precision: `int8` for the codes, or `float16` for the originals, twice the size and of fewer survivors;
        streamed and threads: for the scores in float64, from the originals on disk. Raises as `Index.open`, and
        ConfigError for a device that is not there or whose memory is too small.
        """
        opened = Index.open(folder, shards, streamed=streamed)
        return cls(opened.folder, opened.manifest, opened.shards, devices, precision, threads, progress)

    def _scores(self, queries: Queries) -> Scores | None:
        if not fits(queries.steps.shape[1], queries.codes.shape[1], KINDS[self.precision]):
            return None
        return GpuScores(self._parts, (coded if self.precision == "int8" else halved)(queries))


def _device(name: str) -> torch.device:
    """The device of this name, with its number. Raises ConfigError where it is not there."""
    device = torch.device(name)
    if device.type == "cpu" and triton.knobs.runtime.interpret:
        return device
    if device.type != "cuda" or (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"there is no GPU {name!r} here, of {torch.cuda.device_count()} that torch {torch.__version__} can use; "
            "name one of these, or search without a device."
        )
    return torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
