"""`recipe publish`: a corpus, a model or a report to a place where others find it."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from recipe.cli.console import CommandOutput, progress, shows

_LOG = logging.getLogger(__name__)


@shows
def publish(
    folder: Annotated[
        Path, typer.Argument(help="A corpus, a training run, its model or a checkpoint, or the folder of a report.")
    ],
    target: Annotated[
        str,
        typer.Argument(
            help="hf://OWNER/NAME for a model, hf://datasets/OWNER/NAME for a corpus or a report; for a corpus also a "
            "folder or an address of fsspec such as s3://bucket/mine."
        ),
    ],
    name: Annotated[str, typer.Option(help="Title of the card of a corpus or a report.")] = "",
    license: Annotated[
        str, typer.Option(help="Terms, for the card: an id of the hub such as cc-by-4.0, or a text.")
    ] = "",
    public: Annotated[
        bool, typer.Option("--public", help="Make a new repository on the hub public; it is private without.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the files with their bytes; nothing is sent.")
    ] = False,
) -> CommandOutput:
    """Publish a corpus, a model or a report with its card; the same command resumes what was stopped.

    Of a model the weights, the tokenizer and the cards are sent, of a report its values and pages, of a corpus all of
    it with the texts of its narrations. Logs, completions and the state of an optimiser stay here.

    Example: recipe publish runs/grpo hf://me/planner --license apache-2.0
    """
    from recipe.errors import require_packages

    require_packages({"release": "recipe publish"})
    from recipe.corpus.layout import MANIFEST
    from recipe.hub import publication
    from recipe.hub import publish as send

    if (folder / MANIFEST).is_file():
        return _publish_corpus(folder, target, dry_run, name=name, licence=license, public=public)
    made = publication(folder, name, license)
    for file in made.places:
        _LOG.warning("%s names a folder of this machine", folder / file)
    if not license:
        _LOG.warning("the card states no licence; --license names one")
    sizes = made.sizes
    value = {"folder": str(folder), "target": target, "kind": made.kind, "files": len(sizes), "sizes": sizes}
    if dry_run:
        return CommandOutput(value | {"commit": None}, _listed(sizes))
    with progress().task(f"publishing a {made.kind}"):
        commit = send(made, target, public=public)
    lines = [f"{target}: {made.kind} published, {len(sizes):,} files, {sum(sizes.values()):,} bytes; {commit}"]
    return CommandOutput(value | {"commit": commit}, lines)


def _publish_corpus(folder: Path, target: str, dry_run: bool, **options: Any) -> CommandOutput:
    """Publish a corpus, with its checksums."""
    from recipe.cli.corpus import size_in_words
    from recipe.corpus.encoder_identity import licence_note
    from recipe.corpus.layout import open_manifest
    from recipe.corpus.release import publish_corpus

    manifest = open_manifest(folder)
    if note := licence_note(manifest["encoder"]):
        _LOG.warning(note)
    if not options["licence"]:
        _LOG.warning("the card states no terms for the texts; --license names them")
    release = publish_corpus(folder, target, dry_run=dry_run, progress=progress(), **options)
    sent = f"{size_in_words(release.transferred)} of {size_in_words(release.bytes)} sent"
    lines = [f"{target}: published, {release.files:,} files; {sent}; corpus id {release.id[:16]}"]
    if release.sizes is not None:
        lines = _listed(release.sizes)
    if release.id != manifest["id"]:
        lines.append(
            f"The release has another id than {folder} ({manifest['id'][:16]}): paths of this machine were removed."
        )
    value = {"folder": str(folder), "target": target, "kind": "corpus"} | release._asdict()
    return CommandOutput(value, lines)


def _listed(sizes: Mapping[str, int]) -> list[str]:
    """Files with their bytes, and how many there are."""
    width = max(len(f"{size:,}") for size in sizes.values())
    lines = [f"{size:>{width},}  {name}" for name, size in sorted(sizes.items())]
    return [*lines, f"{len(sizes):,} files, {sum(sizes.values()):,} bytes; nothing was sent"]
