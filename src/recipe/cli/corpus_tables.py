"""How the results of `recipe corpus` are shown."""

from typing import TYPE_CHECKING, Any, NamedTuple

from rich.markup import escape
from rich.table import Table

from recipe.cli.console import out, print_json

if TYPE_CHECKING:
    from recipe.corpus.leaks.report import LeakReport
    from recipe.corpus.matches import Match
    from recipe.corpus.scan.certificate import Certificate
    from recipe.corpus.store import Corpus
    from recipe.types import Hit, Narration


class Found(NamedTuple):
    """A hit with what it says: its narration, and for each step the segment that covers it."""

    hit: "Hit"
    narration: "Narration"
    matches: "list[Match]"


def as_row(found: Found, steps: list[str]) -> dict[str, Any]:
    """A hit as plain values."""
    segments = found.narration.segments
    return {
        "narration": found.hit.narration,
        "video_id": found.narration.video_id,
        "title": found.narration.title,
        "source": found.narration.source,
        "score": found.hit.score,
        "matches": [
            {
                "step": steps[match.step],
                "segment": match.segment,
                "similarity": match.similarity,
                "start": segments[match.segment].start,
                "end": segments[match.segment].end,
                "text": segments[match.segment].text,
            }
            for match in found.matches
        ],
    }


def show_found(rank: int, found: Found, steps: list[str]) -> None:
    """Print a hit: its narration, and the segment that covers each step."""
    name = found.narration.title or "without a title"
    heading = f"{rank}. {found.narration.video_id} ({name}): {found.hit.score:.3f}"
    out.print(heading, style="bold", markup=False, highlight=False)
    table = Table("step", "similarity", "time", "segment", box=None, padding=(0, 2, 0, 2))
    for match in found.matches:
        segment = found.narration.segments[match.segment]
        time = "untimed" if segment.start is None else f"{segment.start:.1f}-{segment.end:.1f} s"
        cells = (steps[match.step], f"{match.similarity:.3f}", time, segment.text)
        table.add_row(*map(escape, cells))
    out.print(table)


def show_certificate(certificate: "Certificate", narrations: int) -> None:
    """Print why the hits are the best."""
    others = narrations - certificate.survivors
    proof = f"; the other {others:,} are proven to score less than {certificate.threshold:.3f}" if others else ""
    counted = f"{certificate.survivors:,} of {narrations:,} narrations"
    out.print(f"certificate ({certificate.method}): {counted} scored exactly{proof}", markup=False, soft_wrap=True)


def show_summary(corpus: "Corpus", as_json: bool) -> None:
    """Print a corpus in figures."""
    from recipe.corpus.summary import summarise

    summary = summarise(corpus)
    if as_json:
        print_json(summary)
        return
    memory = {name: size(count) for name, count in summary["search_bytes"].items()}
    table = Table(show_header=False, box=None)
    table.add_row("narrations", f"{summary['narrations']:,}")
    table.add_row("segments", f"{summary['segments']:,} ({summary['mean_length']:.1f} a narration)")
    table.add_row("timed / untimed", f"{summary['timed']:,} / {summary['untimed']:,} narrations")
    table.add_row("encoder", _settings(summary["encoder"]))
    if summary["licence"]:
        table.add_row("licence", summary["licence"])
    table.add_row("read with", _settings(summary["reading"] or {"": "narrations handed over in Python"}))
    for sentence in (summary["read"] or {}).get("left_out", []):
        table.add_row("left out", sentence)
    table.add_row("on disk", f"{size(summary['disk_bytes'])} in {summary['shards']:,} shards")
    table.add_row("search on a CPU", f"{memory['cpu_int8']} mapped, and the originals of a few narrations")
    table.add_row("search on a GPU", f"{memory['gpu_int8']} as int8, {memory['gpu_float16']} as float16")
    table.add_row("corpus id", summary["id"][:16])
    out.print(table, highlight=False, markup=False)
    longest = max(summary["lengths"].values())
    for length, count in summary["lengths"].items():
        out.print(f"  {length:>9} segments  {count:>9,}  {'#' * round(40 * count / longest)}", highlight=False)


def show_leaks(report: "LeakReport", as_json: bool) -> None:
    """Print what a corpus holds of excluded videos."""
    if as_json:
        print_json(report.as_dict())
        return
    table = Table(show_header=False, box=None)
    for row in report.rows():
        table.add_row(*map(escape, row))
    out.print(table, highlight=False)
    for copied in report.examples:
        heading = f"  {copied.video_id}: {100 * copied.similarity:.0f} % alike"
        out.print(f"{heading}\n    corpus    {copied.caption}\n    excluded  {copied.excluded}", markup=False)


def size(count: float) -> str:
    """A number of bytes, for people."""
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def _settings(values: dict[str, Any]) -> str:
    return escape(", ".join(f"{key} {value}".strip() for key, value in values.items() if value is not None))
