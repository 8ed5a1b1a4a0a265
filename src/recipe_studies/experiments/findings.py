"""What an experiment found, in sentences made from its figures, and what those figures do not show."""

from collections.abc import Sequence
from statistics import fmean

from recipe.errors import listed
from recipe.evaluation.controls import control_sentences, is_beaten
from recipe.evaluation.metrics import METRICS
from recipe.stats import Interval
from recipe_studies.experiments.design import BASE, Design
from recipe_studies.experiments.probes import REFERENCE
from recipe_studies.experiments.results import NAMES, SPLITS, Results
from recipe_studies.experiments.settings import AnyExperiment, TeachingConfig, VideoConfig

FIRST = 3
"""Findings that stand first where there is no base to compare with."""
WINDOW = 8
"""Steps averaged at either end of training; a quarter of a short run."""


def summary(results: Results, recognised: Sequence[float] = ()) -> tuple[str, ...]:
    """The findings, the most important first.

    `recognised` are the shares of pictures that the visual tower recognises whole after learning symbols and words.
    """
    sentences = [*_bought(results), *_drift(results)]
    for split in results.splits():
        sentences += [
            _plans(results, split),
            *_changes(results, split),
            *_controls(results, split),
            *_law(results, split),
            *_lengths(results, split),
            *_choices(results, split),
        ]
    sentences += [*_training(results), *_probes(results), *_alarms(results)]
    if recognised:
        symbols, words = (f"{100 * share:.1f}%" for share in recognised)
        sentences.append(
            f"After the first stage of vision pre-training the tower recognises all symbols of {symbols} of single "
            f"pictures on the unseen background; after the second, the words of {words}."
        )
    shares = ", ".join(f"{cost.regime} {100 * cost.share:.1f}%" for cost in results.costs)
    return (*sentences, *([f"Share of the reward in the time of a GRPO step: {shares}."] if shares else []))


def headline(results: Results) -> tuple[str, ...]:
    """What the page says first: who is above and below the base, only where the interval excludes zero, and controls.

    Without a base to compare with, the first findings.
    """
    sentences = _bought(results)
    for split in results.splits():
        if not sentences or results.control_differences:
            sentences += _against_base(results, split)
        sentences += _controls(results, split)
    return tuple(sentences) or results.summary[:FIRST]


def _against_base(results: Results, split: str) -> list[str]:
    """The regimes by what is shown of them against the base, in the main metric."""
    metric = results.main_metric()
    own = [one for one in results.differences if (one.split, one.metric, one.baseline) == (split, metric, BASE)]
    name = _metric_name(metric)
    words: dict[str, list[str]] = {
        f"{name} above the base": [],
        f"{name} below the base": [],
        f"no difference to the base in {name} shown": [],
        f"too little to compare with the base in {name}": [],
    }
    above, below, unclear, untold = words.values()
    for one in sorted(own, key=lambda one: -one.value.mean):
        shown = {1: above, -1: below, 0: unclear, None: untold}[one.value.sign]
        shown.append(f"{one.regime} {_signed(one.value)}")
    return [f"On {SPLITS.get(split, split)}, {what}: {'; '.join(who)}." for what, who in words.items() if who]


def _bought(results: Results) -> list[str]:
    """What each run that validated gained, and how long its plans are, against the base and the reference."""
    metric, sentences = results.main_metric(), []
    rows = {(row.split, row.regime): row.metrics for row in results.scores}
    changes = {(one.split, one.regime, one.metric): one.value for one in results.differences if one.baseline == BASE}
    for split in results.splits():
        for regime in dict.fromkeys(curve.regime for curve in results.validations):
            gain, longer = changes.get((split, regime, metric)), changes.get((split, regime, "steps"))
            if gain is None or longer is None:
                continue
            words = {1: "bought", -1: "cost", 0: "bought no", None: "may have bought"}[gain.sign]
            metrics = rows[split, regime]
            lengths = [f"{_signed(longer, 1)} against the base"]
            if "length_error" in metrics:
                lengths.append(f"{_signed(metrics['length_error'], 1)} against the reference continuation")
            sentences.append(
                f"On {SPLITS.get(split, split)}, {regime} {words} {_metric_name(metric)}: {_signed(gain)} against the "
                f"base. Its plans have {metrics['steps'].mean:.1f} steps, {' and '.join(lengths)}."
            )
    return sentences


def _drift(results: Results) -> list[str]:
    """How reward and measure moved together on the validation prompts, and which step was kept."""
    sentences = []
    for curve in results.validations:
        base, last, kept = curve.points[0], curve.points[-1], curve.chosen
        name = NAMES.get(curve.measure, curve.measure)
        trained = f"{last.step} {curve.unit}{'' if last.step == 1 else 's'}"
        kept_words = (
            f"no {curve.unit} was better than the base" if kept is base else f"{curve.unit} {kept.step} was kept"
        )
        if curve.measure == "reward":
            moved = f"the reward went from {base.reward:.3f} to {last.reward:.3f}"
        else:
            moved = (
                f"the reward went from {base.reward:.3f} to {last.reward:.3f} and {name} from {base.measured:.3f} to "
                f"{last.measured:.3f}, at most {kept.measured:.3f}"
            )
        sentences.append(
            f"{curve.regime}, on {curve.prompts} validation prompts: in {trained} {moved}; "
            f"plans went from {base.length:.1f} to {last.length:.1f} steps and are {last.kl:.1f} nats from the base; "
            f"{kept_words}."
        )
    return sentences


def _plans(results: Results, split: str) -> str:
    metric = results.main_metric()
    means = ", ".join(f"{row.regime} {row.metrics[metric].mean:.3f}" for row in results.scores if row.split == split)
    return f"On {SPLITS.get(split, split)}, {_metric_name(metric)}: {means}."


def _changes(results: Results, split: str) -> list[str]:
    """The paired differences in the main metric, a sentence for each baseline."""
    metric = results.main_metric()
    changes: dict[str, list[str]] = {}
    for one in results.differences:
        if (one.split, one.metric) == (split, metric):
            seeds = [
                run.value
                for run in results.by_seed
                if (run.split, run.metric, run.regime, run.baseline) == (split, metric, one.regime, one.baseline)
            ]
            changes.setdefault(one.baseline, []).append(f"{one.regime} {_signed(one.value)}{_seeds(seeds)}")
    return [
        f"On {SPLITS.get(split, split)}, difference in {_metric_name(metric)} to "
        f"{'the base' if baseline == BASE else baseline}: {'; '.join(parts)}."
        for baseline, parts in changes.items()
    ]


def _controls(results: Results, split: str) -> list[str]:
    own = [one for one in results.control_differences if one.split == split]
    regimes = dict.fromkeys(one.regime for one in own)
    beaten = [name for name in regimes if all(is_beaten(one.value) for one in own if one.regime == name)]
    sentences = [*control_sentences(own), *([f"{listed(beaten)}: every control is beaten."] if beaten else [])]
    return [f"On {SPLITS.get(split, split)}, {sentence}" for sentence in sentences]


def _law(results: Results, split: str) -> list[str]:
    points = [one for one in results.law if one.split == split]
    if not points:
        return []
    trained = ", ".join(f"{one.narrations}: {_signed(one.trained)}" for one in points)
    chosen = ", ".join(f"{one.narrations}: {one.chosen.mean:+.3f}" for one in points)
    return [
        f"On {SPLITS.get(split, split)}, gain in {_metric_name(results.main_metric())} by the number of narrations "
        f"that cover a goal: after training {trained}; chosen among the base's samples {chosen}."
    ]


def _seeds(runs: Sequence[Interval]) -> str:
    if not runs:
        return ""
    clear = sum(run.sign in (1, -1) for run in runs)
    means = ", ".join(f"{run.mean:+.3f}" for run in runs)
    return f" (seeds {means}; {clear} of {len(runs)} intervals exclude 0)"


def _lengths(results: Results, split: str) -> list[str]:
    choices = {name for row in results.scores if (name := row.regime).startswith("best of")}
    rows = [row for row in results.scores if row.split == split and row.regime not in choices]
    if not rows or any("length_error" not in row.metrics or "copied" not in row.metrics for row in rows):
        return []
    errors = ", ".join(f"{row.regime} {row.metrics['length_error'].mean:+.1f}" for row in rows)
    copied = ", ".join(f"{row.regime} {100 * row.metrics['copied'].mean:.0f}%" for row in rows)
    return [
        f"On {SPLITS.get(split, split)}, mean steps more (+) or less than the reference continuation: {errors}; "
        f"steps copied from the history: {copied}."
    ]


def _choices(results: Results, split: str) -> list[str]:
    own = [one for one in results.rerankings if one.split == split]
    if not own:
        return []
    first, chosen = own[0], ", ".join(f"{one.verifier} {one.best.mean:.3f}" for one in own)
    return [
        f"On {SPLITS.get(split, split)}, best of {first.count} samples of the base, without training: mean sample "
        f"{first.mean.mean:.3f}, chosen by {chosen}, best sample {first.oracle.mean:.3f}."
    ]


def _training(results: Results) -> list[str]:
    """How reward, length and validity of a regime's own samples moved, averaged over its seeds."""
    sentences = []
    for regime in dict.fromkeys(curve.regime for curve in results.curves):
        curves = [curve for curve in results.curves if curve.regime == regime]
        window = max(1, min(WINDOW, len(curves[0].steps) // 4))
        parts = []
        for name, words in (("reward", "the reward"), ("length", "steps in a plan"), ("validity", "exact validity")):
            runs = [[value for value in curve.series.get(name, ()) if value is not None] for curve in curves]
            if all(runs):
                first = fmean(fmean(run[:window]) for run in runs)
                last = fmean(fmean(run[-window:]) for run in runs)
                parts.append(f"{words} went from {first:.2f} to {last:.2f}")
        seeds = f" of {len(curves)} seeds" if len(curves) > 1 else ""
        ends = f"means of {window} steps at either end" if window > 1 else "first and last step"
        if parts:
            sentences.append(f"{regime}, over its own samples{seeds} while it trained: {', '.join(parts)} ({ends}).")
    return sentences


def _probes(results: Results) -> list[str]:
    totals = {plan.name: plan.parts.total for plan in results.hand_made}
    if REFERENCE not in totals:
        return []
    reference = totals.pop(REFERENCE)
    better = ", ".join(f"{name} ({total:.3f})" for name, total in totals.items() if total >= reference)
    if not better:
        return [f"The {REFERENCE} has reward {reference:.3f}, more than each of {len(totals)} perturbed plans."]
    return [f"The {REFERENCE} has reward {reference:.3f}. These plans have no less: {better}."]


def _alarms(results: Results) -> list[str]:
    counts = dict.fromkeys((curve.regime for curve in results.curves), 0)
    for alarm in results.alarms:
        counts[alarm.regime] += 1
    shown = ", ".join(f"{regime} {count}" for regime, count in counts.items())
    return [f"Findings of the watchdog: {shown}."] if counts else []


def _metric_name(metric: str) -> str:
    return "exact validity" if metric == "score" else METRICS[metric]


def _signed(value: Interval, digits: int = 3) -> str:
    bounds = f" (no interval: {value.reason})" if value.reason else ""
    if value.low is not None:
        bounds = f" [{value.low:+.{digits}f}, {value.high:+.{digits}f}]"
    return f"{value.mean:+.{digits}f}{bounds}"


def caveats(config: AnyExperiment, design: Design) -> tuple[str, ...]:
    """What a reader must not conclude."""
    return (*_scale(config, design), *(_on_world(config, design) if config.has_world else _on_files(design)))


def _scale(config: AnyExperiment, design: Design) -> list[str]:
    if isinstance(config, VideoConfig):
        sentences = [
            "A planner of three million parameters, and drawn symbols: nothing follows for films or the paper's scale."
        ]
    else:
        planner = config.model or "A base planner of two million parameters"
        sentences = [f"{planner} and a small corpus: nothing follows for the paper's scale."]
    if isinstance(config, TeachingConfig):
        how = {"grpo": "GRPO", "best-of-n": "best-of-N rounds"}
        sentences.append(
            f"Arms are trained by {listed([how[name] for name in config.optimisers])}, controls by the first."
        )
    if len(design.seeds) == 1:
        sentences.append("One seed: intervals come from a bootstrap over goals and do not cover the choice of seed.")
    else:
        sentences.append(
            f"Intervals are of each prompt's mean over {len(design.seeds)} seeds, from a bootstrap over goals. They do "
            "not cover the choice of seed, which the differences seed by seed show. All runs start from one base "
            "and are measured on one set of prompts."
        )
    if design.controls:
        sentences.append(
            "Controls are trained with the same budget. RL on R0 is also the run without a corpus: relevance is what "
            "is left of the grounded reward without narrations."
        )
        if not config.has_wrong_corpus:
            sentences.append(
                "No control has a wrong corpus: source.wrong_narrations names no narrations of another domain."
            )
        elif config.has_world and not isinstance(config, TeachingConfig):
            sentences.append("The wrong corpus covers the goals of one domain of the world, and no others.")
    if design.choices:
        sentences.append(
            "Best of N chooses by a reward, so that this reward is high by choice there and proves nothing."
        )
    return sentences


def _on_world(config: AnyExperiment, design: Design) -> list[str]:
    if isinstance(config, TeachingConfig):
        return [
            "The base planner is trained on clean text about the goals of half of the domains, and on noisy text about "
            "the taught goals, as a pretrained model has read about everything.",
            "Exact validity and SFT on gold are ceilings: they know the task graphs that evaluation uses.",
            "A corpus tells the known goals, too. The wrong corpus tells those alone.",
        ]
    sentences = [
        "The base planner is trained on noisy text about every goal, also the held-out ones, as a pretrained model has "
        "read about everything.",
        "A line counts as a step if its words match a wording of the world; a right step in other words counts as "
        "foreign.",
    ]
    if isinstance(config, VideoConfig):
        sentences += [
            "The seeds are seeds of SFT and GRPO: order of examples, drawings, samples. Base and vision pre-training "
            "have one seed and are shared.",
            "Blank frames are unlike all training frames, so that they make every planner worse, also one that ignores "
            "its frames. The difference to other frames is the one that counts.",
        ]
    if any(run.exact for run in design.training):
        sentences.append(
            "RL on exact validity is rewarded by the task graphs that evaluation uses; the verifiers know narrations "
            "only."
        )
    if design.reward is not None:
        sentences.append(
            "SFT learns from gold continuations of the task graphs that evaluation uses; RL is given the narrations "
            "only."
        )
    return sentences


def _on_files(design: Design) -> list[str]:
    corpus = "The corpus covers cooking; most goals of the benchmarks do not occur in it."
    if design.compares_references:
        return [
            "No exact validity is known here. Step F1 compares a plan with the one continuation that was annotated: a "
            "right plan that differs from it counts as wrong. It is not the paper's judge, and what it gives a regime "
            "means something only beside what it gives the controls.",
            corpus,
        ]
    return [
        "No exact validity is known here: the reward is the verifier's own opinion, and its rise proves nothing about "
        "plans.",
        corpus,
    ]
