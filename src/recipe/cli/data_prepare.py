"""`recipe data prepare`: from annotated videos to the examples of training and evaluation."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from recipe.cli.console import err, out, print_json, progress
from recipe.cli.data_options import AsJson, Benchmarks, Root, known, show_groups, show_left_out, show_written

if TYPE_CHECKING:
    from recipe.data.cut_points import CutCount, CutExamples
    from recipe.data.procedures import ProcedureFile
    from recipe.data.supervision import Mixture
    from recipe.types import Procedure

Procedures = Annotated[
    Path | None, typer.Option(help="Procedures of your own, JSON lines; see docs/data.md for the fields.")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out unusable rows of --procedures and list them.")]
ZeroShotTraining = Annotated[
    bool,
    typer.Option(
        "--zero-shot-training", help="Also give training and validation examples of benchmarks for zero-shot tests."
    ),
]
Pseudo = Annotated[
    Path | None, typer.Option(help="Pseudo-traces of `recipe perceive`, JSON lines, for weak supervision.")
]
Weak = Annotated[
    float | None,
    typer.Option(min=0, max=100, metavar="PERCENT", help="Share of the training examples to take from --pseudo."),
]
Cuts = typer.Option(metavar="N|all", help="Cut points per video of the split train.")
TestCuts = typer.Option(metavar="N|all", help="Cut points per video of the splits val and test.")
Limit = Annotated[
    int | None,
    typer.Option(min=1, help="At most this many videos of each source and split, drawn by the seed."),
]
Seed = Annotated[int, typer.Option(help="Decides which cut points, videos (--limit) and weak examples are drawn.")]
Output = Annotated[Path, typer.Option(help="Examples file to write, JSON lines.")]

_LEFT_OUT = {
    "zero_shot": "videos of the splits train and val: the benchmark is for zero-shot tests (--zero-shot-training)",
    "no_split": "videos, in no split",
    "too_short": "videos, fewer than two steps",
    "no_trace": "weak examples whose video has no pseudo-trace of two steps or more",
    "one_sided": "weak examples whose pseudo-trace has no step on one side of the cut",
}


class _Videos(NamedTuple):
    procedures: list["Procedure"]
    own: "ProcedureFile"
    zero_shot: Counter[str]


def prepare(
    output: Output,
    root: Root = None,
    benchmark: Benchmarks = None,
    procedures: Procedures = None,
    cuts_train: Annotated[str, Cuts] = "4",
    cuts_test: Annotated[str, TestCuts] = "1",
    pseudo: Pseudo = None,
    weak: Weak = None,
    zero_shot_training: ZeroShotTraining = False,
    limit: Limit = None,
    seed: Seed = 0,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
) -> None:
    """Cut annotated videos into examples; the same options always give the same bytes.

    Example: recipe data prepare --root data --benchmark coin --benchmark crosstask --output examples.jsonl
    """
    from recipe.data.cut_points import cut_procedures, limit_videos
    from recipe.data.examples import write_examples
    from recipe.data.supervision import mix_supervision
    from recipe.errors import InputError

    train, test = _cut_count(cuts_train, "--cuts-train"), _cut_count(cuts_test, "--cuts-test")
    if (pseudo is None) != (weak is None):
        raise typer.BadParameter("give --pseudo and --weak together.", param_hint="--weak")
    videos = _read(root, benchmark or [], procedures, skip_bad, zero_shot_training)
    chosen = videos.procedures if limit is None else limit_videos(videos.procedures, limit, seed)
    cut = cut_procedures(chosen, train=train, test=test, seed=seed)
    if not cut.examples:
        raise InputError(
            f"none of {len(chosen)} videos gave an example: {len(cut.no_split)} are in no split and "
            f"{len(cut.too_short)} have fewer than two steps; give videos with a split and two steps or more."
            + (" Training videos of zero-shot benchmarks need --zero-shot-training." if videos.zero_shot else "")
        )
    mixture = mix_supervision(cut.examples, _traces(pseudo), weak or 0.0, seed)
    if not mixture.examples:
        raise InputError(
            f"{pseudo}: no example has a pseudo-trace that can be cut; run `recipe perceive` on the videos."
        )
    write_examples(output, mixture.examples)
    result = _result(output, chosen, videos, cut, mixture)
    if as_json:
        print_json(result)
    else:
        _show_result(result)


def _cut_count(text: str, option: str) -> "CutCount":
    if text == "all":
        return "all"
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"{text!r} is neither a number of at least 1 nor 'all'.", param_hint=option)
    return int(text)


def _read(root: Path | None, names: list[str], file: Path | None, skip_bad: bool, zero_shot_training: bool) -> _Videos:
    """All procedures, benchmarks first, then the user's own by source and video."""
    from recipe.data.benchmarks import Planned, by_role, read_benchmarks, require_benchmarks
    from recipe.data.procedures import ProcedureFile, read_procedures

    names = known(names)
    if root is None and (names or file is None):
        raise typer.BadParameter("give --root, a folder of benchmarks, or --procedures alone.", param_hint="--root")
    found = read_benchmarks(require_benchmarks(root, names), progress()) if root else []
    planned = Planned(found, Counter()) if zero_shot_training else by_role(found)
    own = read_procedures(file, "skip" if skip_bad else "error") if file else ProcedureFile([], [])
    ordered = sorted(own.procedures, key=lambda video: (video.source, video.video_id))
    return _Videos(planned.procedures + ordered, own, planned.held_back)


def _traces(path: Path | None) -> list["Procedure"]:
    from recipe.data.procedures import read_procedures

    return read_procedures(path).procedures if path else []


def _result(
    output: Path, chosen: list["Procedure"], videos: _Videos, cut: "CutExamples", mixture: "Mixture"
) -> dict[str, Any]:
    from recipe.data.benchmarks import trained_and_tested

    groups = Counter((example.source, example.split) for example in mixture.examples)
    weak = Counter((e.source, e.split) for e in mixture.examples if e.supervision == "weak")
    seen = {(example.source, example.split, example.video_id) for example in mixture.examples}
    counted = Counter((source, split) for source, split, _ in seen)
    return {
        "output": str(output),
        "examples": len(mixture.examples),
        "groups": [
            {
                "source": source,
                "split": split,
                "videos": counted[source, split],
                "examples": count,
                "weak": weak[source, split],
            }
            for (source, split), count in groups.items()
        ],
        "zero_shot": videos.zero_shot,
        "no_split": Counter(procedure.source for procedure in cut.no_split),
        "too_short": Counter(procedure.source for procedure in cut.too_short),
        "no_trace": mixture.no_trace,
        "one_sided": mixture.one_sided,
        "skipped": [row._asdict() for row in videos.own.skipped],
        "trained_and_tested": sorted(trained_and_tested(chosen)),
    }


def _show_result(result: dict[str, Any]) -> None:
    show_groups(result["groups"], "examples")
    if weak := sum(group["weak"] for group in result["groups"]):
        out.print(f"weakly supervised: {weak:,} examples", highlight=False)
    show_left_out(result, _LEFT_OUT)
    for row in result["skipped"]:
        err.print(f"skipped: {row['reason']}", highlight=False, markup=False, soft_wrap=True)
    if result["skipped"]:
        out.print(f"left out of the procedures file: {len(result['skipped']):,} unusable rows", highlight=False)
    if shared := result["trained_and_tested"]:
        out.print(f"note: {len(shared):,} videos are trained on in one set and held out in another", highlight=False)
    show_written(result, "examples")
