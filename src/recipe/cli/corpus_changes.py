"""Commands of `recipe corpus` for a corpus that grows: add, remove, list, diff, compact."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recipe.cli.console import CommandOutput, progress, shows
from recipe.cli.inputs import Exclude, ExcludeSplit, Folder, Ids, Titles, exclusions_of
from recipe.progress import LOADING

if TYPE_CHECKING:
    from recipe.corpus.change import CorpusChange

_LOG = logging.getLogger(__name__)
# Video ids of a kind that `recipe corpus diff` names; --json names all.
_NAMED = 20

Given = Annotated[
    list[Path], typer.Argument(help="Files, folders or archives of narrations (docs/data.md); or another corpus.")
]


@shows
def add(
    folder: Folder,
    narrations: Given,
    titles: Titles = None,
    exclude: Exclude = None,
    exclude_split: ExcludeSplit = "",
    ids: Ids = None,
    encoder: Annotated[
        str | None, typer.Option(help="Where the corpus's own encoder is now, if its folder has moved.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Device that encodes, such as cuda:0.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts encoded at once.")] = 64,
) -> CommandOutput:
    """Add narrations to a corpus, and replace those that changed; only new texts are encoded.

    The files are read as those of the build were. A narration that the corpus holds as it is is left alone, so that the
    same command can be run again. Where videos were kept out of the build, give the same --exclude.

    Example: recipe corpus add corpora/mine more.jsonl
    """
    LOADING.info("loading narrations ...")
    from recipe.corpus.encoder_identity import licence_note
    from recipe.corpus.encoders import encoder_extra
    from recipe.corpus.layout import open_manifest
    from recipe.errors import require_packages

    recorded = open_manifest(folder)["encoder"]
    require_packages({"cpu": "corpus search"} | encoder_extra(encoder or recorded["name"]))
    from recipe.config import EncoderConfig
    from recipe.corpus.change import add_narrations, source_for

    settings = EncoderConfig(name=encoder or recorded["name"], dtype="auto", device=device, batch_size=batch_size)
    stream, origin = source_for(folder, narrations, exclusions_of(exclude, exclude_split, ids), titles)
    if note := licence_note(recorded):
        _LOG.warning(note)
    return _changed(folder, add_narrations(folder, stream, progress(), origin=origin, encoder=settings))


@shows
def remove(
    folder: Folder,
    videos: Annotated[list[str], typer.Argument(metavar="ID...", help="Video ids, or a .txt file with one a line.")],
) -> CommandOutput:
    """Remove narrations from a corpus by their video ids.

    Nothing is encoded. Their texts leave the disk when their shard is compacted: by itself where over 1 % of it is
    removed, and by `recipe corpus compact`.

    Example: recipe corpus remove corpora/mine dQw4w9WgXcQ
    """
    from recipe.corpus.change import ids_of, remove_narrations

    return _changed(folder, remove_narrations(folder, ids_of(videos), progress()))


@shows
def compact(folder: Folder) -> CommandOutput:
    """Write shards with removed narrations anew without them, and small neighbouring shards as one.

    Nothing is encoded. Searches and rewards stay the same; the corpus gets a new id.

    Example: recipe corpus compact corpora/mine
    """
    from recipe.corpus.change import compact_corpus

    return _changed(folder, compact_corpus(folder, progress()))


@shows
def listing(
    folder: Folder,
    grep: Annotated[
        str, typer.Option(help="Only narrations with this text in id or title; case does not matter.")
    ] = "",
) -> CommandOutput:
    """List the narrations of a corpus: video id, segments, title, and the collection or address that they are from.

    Example: recipe corpus list corpora/mine --grep tea
    """
    from recipe.corpus.layout import NARRATIONS, SHARDS, HeldManifest, read_live

    held, rows = HeldManifest(folder), list[dict[str, Any]]()
    columns = ("video_id", "title", "source", "url", "segments")
    for shard in held.manifest["shards"]:
        rows += read_live(folder / SHARDS / shard["name"], shard, NARRATIONS, columns).to_pylist()
    wanted = grep.casefold()
    chosen = [row for row in rows if wanted in f"{row['video_id']}\n{row['title'] or ''}".casefold()]
    width = max((len(row["video_id"]) for row in chosen), default=0)
    lines = [
        f"{row['video_id']:<{width}}  {row['segments']:>5}  {row['title'] or 'without a title'}"
        + (f"  ({origin})" if (origin := row["url"] or row["source"]) else "")
        for row in chosen
    ]
    lines.append(f"{len(chosen):,} of {len(rows):,} narrations")
    return CommandOutput({"corpus": str(folder), "id": held.manifest["id"], "narrations": chosen}, lines)


@shows
def diff(
    folder: Folder,
    narrations: Given,
    titles: Titles = None,
    exclude: Exclude = None,
    exclude_split: ExcludeSplit = "",
    ids: Ids = None,
) -> CommandOutput:
    """Show what narrations would add to a corpus and change in it, and which of its own are not among them.

    They are read as by `recipe corpus add`; nothing is encoded or written.

    Example: recipe corpus diff corpora/mine narrations.jsonl
    """
    from recipe.corpus.change import require_exclusions, source_for
    from recipe.corpus.comparison import difference
    from recipe.corpus.store import Corpus

    stream, origin = source_for(folder, narrations, exclusions_of(exclude, exclude_split, ids), titles)
    corpus = Corpus.open(folder)
    require_exclusions(folder, corpus.manifest, origin)
    changes = difference(corpus, stream)
    kinds: dict[str, Sequence[str]] = {
        "added": changes.added,
        "changed": changes.changed,
        "not among them": changes.removed,
    }
    lines = [f"{changes.equal:,} narrations are in the corpus as they are"]
    for kind, videos in kinds.items():
        more = f", and {len(videos) - _NAMED:,} more" if len(videos) > _NAMED else ""
        lines.append(f"{kind}: {len(videos):,}" + (f" ({', '.join(videos[:_NAMED])}{more})" if videos else ""))
    return CommandOutput({"corpus": str(folder), **changes._asdict()}, lines)


def _changed(folder: Path, change: "CorpusChange") -> CommandOutput:
    """What a change has done, in words."""
    counts = {
        "added": change.added,
        "replaced": change.replaced,
        "there already": change.equal,
        "removed": change.removed,
        "texts encoded": change.encoded,
        "shards written anew": change.compacted,
    }
    done = ", ".join(f"{name} {count:,}" for name, count in counts.items() if count) or "nothing to do"
    unchanged = "still " if change.id == change.before else ""
    lines = [f"{folder}: {done}", f"{change.narrations:,} narrations; the corpus id is {unchanged}{change.id[:16]}"]
    return CommandOutput({"corpus": str(folder), **change._asdict()}, lines)
