"""The findings of a study, in sentences made from its figures, and what those figures do not show."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from recipe.errors import listed
from recipe.evaluation.metrics import CONTROL, METRICS, Difference, control_sentences
from recipe.report.elements import difference_text
from recipe.report.numbers import format_signed
from recipe.stats import Interval
from recipe_studies.experiments.results import KEPT, NAMES, SPLITS, Results
from recipe_studies.experiments.settings import ExperimentConfig, TeachingConfig, VideoConfig
from recipe_studies.experiments.study import BASE, COPIES, GREEDY, LABELS, R0_CHOICE, ROUNDS, Study

FIRST = 3
"""Findings that stand first where there is no base to compare with."""
SIMPLER = {
    LABELS.regime: "Where you know the wordings of your steps, label instead.",
    COPIES.regime: "Copy the nearest list instead.",
}
"""What needs no training, and what to do where it does as well."""
WINDOW = 8
"""Steps averaged at either end of training; a quarter of a short run."""


def summary(
    results: Results, recognised: Sequence[float] = (), self_trained: Mapping[str, Any] | None = None
) -> tuple[str, ...]:
    """The findings, the most important first.

    `recognised` are the shares of pictures that the visual tower recognises whole after learning symbols and words,
    `self_trained` is the card of a reward that was trained on the corpus.
    """
    sentences = _validated_gains(results)
    for curve in results.validations:
        base, last, kept = curve.points[0], curve.points[-1], curve.chosen
        trained = f"{last.step} {curve.unit}{'' if last.step == 1 else 's'}"
        none_better = f"no {curve.unit} was better than the base"
        kept_words = none_better if kept is base else f"{curve.unit} {kept.step} was kept"
        moved = f"the reward went from {base.reward:.3f} to {last.reward:.3f}"
        if curve.measure != "reward":
            moved += (
                f" and {NAMES.get(curve.measure, curve.measure)} from {base.measured:.3f} to {last.measured:.3f}, "
                f"at most {kept.measured:.3f}"
            )
        sentences.append(
            f"{curve.regime}, on {curve.prompts} validation prompts: in {trained} {moved}; "
            f"plans went from {base.length:.1f} to {last.length:.1f} steps and are {last.kl:.1f} nats from the base; "
            f"{kept_words}."
        )
    for split in results.splits():
        sentences += _of_split(results, split)
    sentences += _of_training(results)
    if self_trained is not None:
        verdict = "use it" if self_trained["use"] else "do not use it; its runs and its choice were made all the same"
        counts = self_trained["counts"]
        sentences.append(
            f"The self-trained reward learned from {counts['plans']:,} plans of {counts['prompts']} pseudo-prompts of "
            f"{counts['goals']} goals of the corpus. Its own test says: {verdict} ({self_trained['reason']})."
        )
    counts = dict.fromkeys((curve.regime for curve in results.curves), 0)
    for alarm in results.alarms:
        counts[alarm.regime] += 1
    if counts:
        shown = ", ".join(f"{regime} {count}" for regime, count in counts.items())
        sentences.append(f"Findings of the watchdog: {shown}.")
    if recognised:
        symbols, words = (f"{100 * share:.1f}%" for share in recognised)
        sentences.append(
            f"After the first stage of vision pre-training the tower recognises all symbols of {symbols} of single "
            f"pictures on the unseen background; after the second, the words of {words}."
        )
    if results.costs:
        shares = ", ".join(f"{cost.regime} {100 * cost.share:.1f}%" for cost in results.costs)
        sentences.append(f"Share of the reward in the time of a GRPO step: {shares}.")
    return tuple(sentences)


def headline(results: Results) -> tuple[str, ...]:
    """What the page says first: what to do, or who is above and below the base; then the controls.

    A regime is above or below only where the interval excludes zero. Without a base to compare with, the first
    findings.
    """
    if results.opening is not None:
        return _taught(results)
    sentences, metric = _advice(results) or _validated_gains(results), results.main_metric()
    name = _metric_name(metric)
    for split in results.splits():
        if not sentences or results.control_differences:
            by_sign: dict[int | None, tuple[str, list[str]]] = {
                1: (f"{name} above the base", []),
                -1: (f"{name} below the base", []),
                0: (f"no difference to the base in {name} shown", []),
                None: (f"too little to compare with the base in {name}", []),
            }
            own = [row for row in results.differences if (row.split, row.metric, row.baseline) == (split, metric, BASE)]
            for row in sorted(own, key=lambda row: -row.value.mean):
                by_sign[row.value.sign][1].append(f"{row.regime} {_gain(results, row)}")
            shown = ((words, regimes) for words, regimes in by_sign.values() if regimes)
            sentences += [f"On {SPLITS.get(split, split)}, {words}: {'; '.join(regimes)}." for words, regimes in shown]
        sentences += _controls(results, split)
    return tuple(sentences) or results.summary[:FIRST]


def _taught(results: Results) -> tuple[str, ...]:
    """What training on the main reward taught; first of all what does as well without the corpus or without training.

    Samples and greedy plans stand side by side: a gain of samples alone may be nothing but a sharper policy.
    """
    metric, split = results.main_metric(), results.splits()[0]
    name, where = _metric_name(metric), f"on {SPLITS.get(split, split)}"
    gains = {
        (own.regime, own.baseline): own.value
        for own in results.differences
        if (own.split, own.metric) == (split, metric)
    }
    steps = {own.regime: own.metrics["steps"].mean for own in results.scores if own.split == split}
    main, *others = dict.fromkeys(own.regime for own in results.curves if not own.regime.startswith(CONTROL))

    def against(regime: str, baseline: str) -> tuple[set[int | None], str]:
        pair = gains[regime, baseline], gains[f"{regime}{GREEDY}", f"{baseline}{GREEDY}"]
        samples, greedy = map(difference_text, pair)
        return {own.sign for own in pair}, f"samples {samples}, greedy plans {greedy}"

    sentences = []
    rivals = SIMPLER | {own: "Let R0 choose among plans instead." for _, own in gains if own.endswith(R0_CHOICE)}
    for rival, remedy in rivals.items():
        # The planner may use all it has: its samples, its greedy plans, or the reward's choice among samples.
        best = max(
            ((own, gap) for (own, other), gap in gains.items() if other == rival and own.startswith(main)),
            key=lambda pair: pair[1].mean,
            default=None,
        )
        if best is not None and best[1].sign != 1:
            sentences.append(
                f"{_upper(rival)} may do as well {where}: {best[0]} minus it {difference_text(best[1])}. {remedy}"
            )
    signs, words = against(main, BASE)
    verb = "taught the planner in part"
    if signs == {1} or 1 not in signs:
        verb = "taught the planner" if signs == {1} else "taught the planner nothing that is clear"
    sentences.append(f"{main.replace('trained', 'Training', 1)} {verb}: {name} {where} against the base, {words}.")
    trained = {own.regime: len(own.steps) for own in results.curves}
    for other in others:
        signs, words = against(main, other)
        clear = "above" if signs == {1} else "below" if signs == {-1} else "not clearly above"
        fewer = trained[other] < trained[main] and not other.endswith(ROUNDS)
        shorter = f", in {trained[other]} steps instead of {trained[main]}" if fewer else ""
        sentences.append(
            f"{_upper(other)}{shorter}: {against(other, BASE)[1]} against the base, "
            f"{steps[other]:.1f} steps a plan (base {steps[BASE]:.1f}). The planner {main} is {clear} it: {words}."
        )
    for rival in rivals:
        if rows := [(own, gap) for (own, other), gap in gains.items() if other == rival]:
            beside = "; ".join(f"{own} {difference_text(gap)}" for own, gap in rows)
            sentences.append(f"Against {rival}, which takes no training: {beside}.")
    return (*sentences, *_controls(results, split))


def _upper(words: str) -> str:
    return words[:1].upper() + words[1:]


def _advice(results: Results) -> list[str]:
    """What to do, in three sentences: choose, fine-tune, train; none where a study lacks one of them.

    To do it is said where the whole interval of one of its regimes lies above 0, to leave it where those of all lie
    below, and else that nothing is clear. The figures are those of the last split: of goals that no training has seen,
    where there are such.
    """
    metric, trained = results.main_metric(), {curve.regime for curve in results.validations}
    split = next(reversed([*results.splits()]), "")
    own = [row for row in results.differences if (row.split, row.metric, row.baseline) == (split, metric, BASE)]
    tasks = (
        (
            "Let a reward choose among several plans, which takes no training",
            "It is not clear whether a reward's choice among several plans helps",
            "Do not let a reward choose among plans here",
            [row for row in own if row.regime.startswith("best of")],
        ),
        (
            "Fine-tune on annotated plans where you have them",
            "It is not clear whether fine-tuning on annotated plans of other goals helps",
            "Do not fine-tune on annotated plans of other goals here",
            [row for row in own if row.regime == "SFT"],
        ),
        (
            "Train on a reward where nobody has annotated your tasks",
            "It is not clear whether training on a reward for so short a time helps",
            "Do not train on a reward for so short a time",
            [row for row in own if row.regime in trained and not row.regime.startswith(CONTROL)],
        ),
    )
    if not all(rows for *_, rows in tasks):
        return []
    where = f"{_metric_name(metric)} on {SPLITS.get(split, split)} against the base: "
    sentences = []
    for do, unclear, leave, rows in tasks:
        rows.sort(key=lambda row: -row.value.mean)
        gains = "; ".join(f"{row.regime} {_gain(results, row)}" for row in rows)
        signs = {row.value.sign for row in rows}
        sentences.append(f"{do if 1 in signs else leave if signs == {-1} else unclear} ({where}{gains}).")
        where = ""
    return sentences


def _gain(results: Results, row: Difference) -> str:
    """A difference to the base in words: a figure would look measured where validation kept the base."""
    return KEPT if row.baseline == BASE and results.kept_base(row.regime, row.seed) else difference_text(row.value)


def _validated_gains(results: Results) -> list[str]:
    """What each run that validated gained, and how long its plans are, against the base and the reference."""
    metric, sentences = results.main_metric(), []
    rows = {(row.split, row.regime): row.metrics for row in results.scores}
    changes = {(row.split, row.regime, row.metric): row.value for row in results.differences if row.baseline == BASE}
    for split in results.splits():
        for regime in dict.fromkeys(curve.regime for curve in results.validations):
            gain, longer = changes.get((split, regime, metric)), changes.get((split, regime, "steps"))
            if gain is None or longer is None:
                continue
            if results.kept_base(regime):
                where = f"On {SPLITS.get(split, split)}"
                sentences.append(f"{where}, {regime} kept the base: on validation prompts nothing was better.")
                continue
            verb = {1: "gained", -1: "lost", 0: "showed no change in", None: "may have changed"}[gain.sign]
            metrics = rows[split, regime]
            lengths = [f"{difference_text(longer, 1)} against the base"]
            if "length_error" in metrics:
                lengths.append(f"{difference_text(metrics['length_error'], 1)} against the reference continuation")
            sentences.append(
                f"On {SPLITS.get(split, split)}, {regime} {verb} {_metric_name(metric)}: {difference_text(gain)} "
                f"against the base. Its plans have {metrics['steps'].mean:.1f} steps, {' and '.join(lengths)}."
            )
    return sentences


def _of_split(results: Results, split: str) -> list[str]:
    """Means, paired differences, controls, lengths and choices on the prompts of a split."""
    metric, where = results.main_metric(), f"On {SPLITS.get(split, split)}"
    name = _metric_name(metric)
    rows = [row for row in results.scores if row.split == split]
    means = ", ".join(f"{row.regime} {row.metrics[metric].mean:.3f}" for row in rows)
    sentences = [f"{where}, {name}: {means}."]
    changes: dict[str, list[str]] = {}
    for row in results.differences:
        if (row.split, row.metric) != (split, metric):
            continue
        seeds = [
            run
            for run in results.by_seed
            if (run.split, run.metric, run.regime, run.baseline) == (split, metric, row.regime, row.baseline)
        ]
        alone = ""
        if seeds:
            clear = sum(run.value.sign in (1, -1) for run in seeds)
            by_seed = ", ".join(_gain(results, replace(run, value=Interval(run.value.mean))) for run in seeds)
            alone = f" (seeds {by_seed}; {clear} of {len(seeds)} intervals exclude 0)"
        changes.setdefault(row.baseline, []).append(f"{row.regime} {_gain(results, row)}{alone}")
    for baseline, parts in changes.items():
        against = "the base" if baseline == BASE else baseline
        sentences.append(f"{where}, difference in {name} to {against}: {'; '.join(parts)}.")
    sentences += _controls(results, split)
    sampled = [row for row in rows if not row.regime.startswith("best of")]
    if sampled and all({"length_error", "copied"} <= row.metrics.keys() for row in sampled):
        errors = ", ".join(f"{row.regime} {format_signed(row.metrics['length_error'].mean, 1)}" for row in sampled)
        copied = ", ".join(f"{row.regime} {100 * row.metrics['copied'].mean:.0f}%" for row in sampled)
        sentences.append(
            f"{where}, mean steps more (+) or less than the reference continuation: {errors}; steps copied from the "
            f"history: {copied}."
        )
    if choices := [choice for choice in results.rerankings if choice.split == split]:
        first, chosen = choices[0], ", ".join(f"{choice.verifier} {choice.best.mean:.3f}" for choice in choices)
        sentences.append(
            f"{where}, best of {first.count} samples of the base, without training: mean sample "
            f"{first.mean.mean:.3f}, chosen by {chosen}, best sample {first.oracle.mean:.3f}."
        )
    return sentences


def _controls(results: Results, split: str) -> list[str]:
    own = [row for row in results.control_differences if row.split == split]
    regimes = dict.fromkeys(row.regime for row in own)
    beaten = [name for name in regimes if all(row.beaten for row in own if row.regime == name)]
    sentences = [*control_sentences(own), *([f"{listed(beaten)}: every control is beaten."] if beaten else [])]
    return [f"On {SPLITS.get(split, split)}, {sentence}" for sentence in sentences]


def _of_training(results: Results) -> list[str]:
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


def _metric_name(metric: str) -> str:
    return "exact validity" if metric == "score" else METRICS[metric]


def caveats(study: Study) -> tuple[str, ...]:
    """What a reader must not conclude."""
    config = study.config
    on_video = isinstance(config, VideoConfig)
    if on_video:
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
    if len(study.seeds) == 1:
        sentences.append("One seed: intervals come from a bootstrap over goals and do not cover the choice of seed.")
    else:
        sentences.append(
            f"Intervals are of each prompt's mean over {len(study.seeds)} seeds, from a bootstrap over goals. They do "
            "not cover the choice of seed, which the differences seed by seed show. All runs start from one base "
            "and are measured on one set of prompts."
        )
    if study.controls:
        sentences.append(
            "Controls are trained with the same budget. RL on R0 is also the run without a corpus: relevance is what "
            "is left of the grounded reward without narrations."
        )
        if not config.has_wrong_corpus:
            sentences.append(
                "No control has a wrong corpus: source.wrong_narrations names no narrations of another domain."
            )
        elif config.has_world:
            sentences.append("The wrong corpus covers goals of other domains of the world, and no others.")
    if study.choices:
        sentences.append(
            "Best of N chooses by a reward, so that this reward is high by choice there and proves nothing."
        )
    if config.has_world:
        sentences += [
            "The base planner is trained on noisy text about every goal, also the held-out ones, as a pretrained model "
            "has read about everything.",
            "A line counts as a step if its words match a wording of the world; a right step in other words counts as "
            "foreign.",
        ]
        if on_video:
            sentences += [
                "The seeds are seeds of SFT and GRPO: order of examples, drawings, samples. Base and vision "
                "pre-training have one seed and are shared.",
                "Blank frames are unlike all training frames, so that they make every planner worse, also one that "
                "ignores its frames. The difference to other frames is the one that counts.",
            ]
        if any(arm.exact for arm in study.arms):
            sentences.append(
                "RL on exact validity is rewarded by the task graphs that evaluation uses; the verifiers know "
                "narrations only."
            )
        if share := config.noise.get("systematic"):
            sentences.append(
                f"That the base errs systematically is an assumption: each goal has its own forgotten steps, turned "
                f"pairs and foreign steps in a share of {share:g} of its texts. Of independent errors the likeliest "
                "plan is the right one, and training gains nothing at temperature 0."
            )
        if study.reward is not None and not (isinstance(config, ExperimentConfig) and config.sft is None):
            sentences.append(
                "SFT learns from gold continuations of the task graphs that evaluation uses; RL is given the "
                "narrations only."
            )
    else:
        if study.compares_references:
            sentences.append(
                "No exact validity is known here. Step F1 compares a plan with the one continuation that was "
                "annotated: a right plan that differs from it counts as wrong. It is not the paper's judge, and a "
                "regime's score means something only compared with the scores of the controls."
            )
        else:
            sentences.append(
                "No exact validity is known here: the reward is the verifier's own opinion, and its rise proves "
                "nothing about plans."
            )
        sentences.append("The corpus covers cooking; most goals of the benchmarks do not occur in it.")
    return tuple(sentences)
