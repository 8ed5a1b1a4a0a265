"""What the video demo found, in sentences made from its figures, and what those figures do not show."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from recipe.experiments.results import SPLITS, Curve, Difference, Results
from recipe.experiments.video.settings import VideoExperiment
from recipe.stats import Interval

WINDOW = 5
"""Steps averaged at either end of GRPO."""


def summary(found: Results, seen: Mapping[str, Mapping[str, float]]) -> tuple[str, ...]:
    """The findings, the most important first."""
    sentences = [_reads(found, split) for split in found.splits()]
    sentences += [_levels(found, split) for split in found.splits()]
    sentences += [_gain(found, split) for split in found.splits()]
    symbols, words = seen.values()
    sentences.append(
        f"After its first lesson the eye tells all symbols of {100 * symbols['unseen']:.1f}% of single pictures on the "
        f"background it never saw, after its second {100 * words['unseen']:.1f}% of their words."
    )
    return (*sentences, *_training(found.curves))


def caveats(config: VideoExperiment) -> tuple[str, ...]:
    """What a reader must not conclude."""
    seeds = len(config.seeds)
    return (
        f"The {seeds} seeds are seeds of SFT and GRPO: order of examples, drawings, samples. Base, eye and alignment "
        "are trained once and shared.",
        "Intervals are of each prompt's mean over the seeds, from a bootstrap over goals; they do not cover the choice "
        "of seed, which the runs one by one show.",
        "A planner of three million parameters, and drawn symbols: nothing follows for films or the paper's scale.",
        "The base planner has read careless text about every goal, also the held-out ones, as a pretrained model has.",
        "Blank frames lie off what the planner was trained on, so that they make any planner worse, one that does not "
        "read, too: the difference to other frames is the one that counts.",
    )


def _reads(found: Results, split: str) -> str:
    value = _difference(found.differences, split, "video", "other frames")
    runs = [one.value for one in found.by_seed if (one.split, one.regime, one.metric) == (split, "video", "score")]
    clear = sum(run.low is not None and run.low > 0 for run in runs)
    return (
        f"On {SPLITS.get(split, split)}, the right frames instead of other frames change exact validity by "
        f"{_signed(value)}; seed by seed {', '.join(f'{run.mean:+.3f}' for run in runs)}, of which {clear} "
        f"{'is' if clear == 1 else 'are'} clear of 0."
    )


def _levels(found: Results, split: str) -> str:
    rows = [row for row in found.scores if row.split == split]
    shown = ", ".join(f"{row.regime} {row.metrics['score'].mean:.3f}" for row in rows)
    return f"On {SPLITS.get(split, split)}, exact validity: {shown}."


def _gain(found: Results, split: str) -> str:
    value = _difference(found.differences, split, "GRPO minus SFT, video", "video")
    return f"On {SPLITS.get(split, split)}, GRPO changes exact validity after SFT by {_signed(value)}."


def _training(curves: Sequence[Curve]) -> list[str]:
    parts = []
    for name, words in (("reward", "the reward"), ("length", "steps in a plan"), ("validity", "exact validity")):
        ends = []
        for curve in curves:
            known = [value for value in curve.series.get(name, ()) if value is not None]
            if known:
                window = max(1, min(WINDOW, len(known) // 2))
                ends.append((fmean(known[:window]), fmean(known[-window:])))
        if ends:
            first, last = (fmean(end[place] for end in ends) for place in (0, 1))
            parts.append(f"{words} went from {first:.2f} to {last:.2f}")
    return [f"While GRPO trained, over its own samples and all seeds, {', '.join(parts)}."] if parts else []


def _difference(differences: Sequence[Difference], split: str, regime: str, baseline: str) -> Interval:
    wanted = (split, regime, baseline, "score")
    return next(one.value for one in differences if (one.split, one.regime, one.baseline, one.metric) == wanted)


def _signed(value: Interval) -> str:
    bounds = "" if value.low is None else f" [{value.low:+.3f}, {value.high:+.3f}]"
    return f"{value.mean:+.3f}{bounds}"
