"""The options of `recipe corpus build` and `search`: how narrations are read and encoded, where they are searched."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from recipe.corpus.cluster.corpus import ClusterCorpus
    from recipe.corpus.store import Corpus

_READING = "How narrations are read (docs/readers.md)"
_ENCODING = "How they are encoded (docs/corpus.md)"

Narrations = Annotated[list[Path], typer.Argument(help="Files, folders or archives of narrations; docs/readers.md.")]
Output = Annotated[Path, typer.Option(help="Corpus folder to write, or to go on with.")]
ShardSize = Annotated[int, typer.Option(min=1, help="Narrations in a shard.")]


def _reading(help: str, **more: Any) -> Any:
    return typer.Option(help=help, rich_help_panel=_READING, **more)


def _encoding(help: str, **more: Any) -> Any:
    return typer.Option(help=help, rich_help_panel=_ENCODING, **more)


Layout = Annotated[
    Literal[
        "auto",
        "jsonl",
        "procedures",
        "howtocaption",
        "howto100m",
        "howto100m-csv",
        "htm-align",
        "htm-aa",
        "whisperx",
        "subtitles",
        "parquet",
    ],
    typer.Option("--format", help="Layout of the files.", rich_help_panel=_READING),
]
Captions = Annotated[Literal["each", "joined", "first"], _reading("What captions of one time span become.")]
MinScore = Annotated[float | None, _reading("Leave out captions that score less.")]
Alignable = Annotated[
    bool, typer.Option("--alignable", help="Of HTM-Align, what is alignable.", rich_help_panel=_READING)
]
Rolling = Annotated[Literal["collapse", "keep"], _reading("For cues that repeat the line before.")]
Bad = Annotated[Literal["error", "skip"], _reading("For what cannot be used: stop, or leave it out and count it.")]
Encoding = Annotated[str, _reading("Character encoding of text files.")]
Source = Annotated[str | None, _reading("Name of the source, where files name none.")]
Duplicates = Annotated[Literal["error", "keep-first"], _reading("For a video id that was read before.")]
Exclude = Annotated[
    list[Path] | None,
    _reading("Examples, procedures, narrations or a .txt of video ids to keep out; may be repeated (docs/leaks.md)."),
]
ExcludeSplit = Annotated[str, _reading("Of the examples and procedures to keep out, only this split.")]

Encoder = Annotated[str, _encoding("A sentence-transformers id or folder, `minilm` (packaged) or `hash:D` (no model).")]
Revision = Annotated[str | None, _encoding("The model's revision on its hub.")]
Task = Annotated[str | None, _encoding("The model's own task or prompt name.")]
Dimension = Annotated[int | None, _encoding("Cut vectors to this length.", min=1)]
Dtype = Annotated[Literal["auto", "float32", "bfloat16"], _encoding("Number format that the encoder computes in.")]
BatchSize = Annotated[int, _encoding("Texts encoded at once.", min=1)]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run a pinned model's code.", rich_help_panel=_ENCODING)
]
Engine = Annotated[Literal["local", "ray"], _encoding("Who encodes: this machine, or a Ray cluster.")]
Devices = Annotated[str, _encoding("Devices of this machine that share the work: cuda:0,cuda:1.")]

SearchDevices = Annotated[str, typer.Option("--devices", help="GPUs to search on in place of the processor: cuda:0.")]
Actors = Annotated[int, typer.Option(min=0, help="Ray actors that each search a part; docs/cluster.md.")]


def names(devices: str) -> tuple[str, ...]:
    """The devices named in one option."""
    return tuple(name for name in map(str.strip, devices.split(",")) if name)


@contextmanager
def searched(folder: Path, devices: str, actors: int) -> "Iterator[Corpus | ClusterCorpus]":
    """The corpus in `folder`, opened where it is to be searched. Raises InputError for devices with actors."""
    from recipe.corpus.store import Corpus
    from recipe.errors import InputError

    if actors and devices:
        raise InputError("--devices and --actors exclude each other; a Ray cluster chooses its devices itself.")
    if not actors:
        yield Corpus.open(folder, devices=names(devices))
        return
    from recipe.corpus.cluster.corpus import ClusterCorpus

    with ClusterCorpus.open(folder, actors) as corpus:
        yield corpus
