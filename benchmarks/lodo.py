"""Leave one dataset out: is it warranted to change the default verifier?

    python benchmarks/lodo.py --corpus CORPUS --procedures coin.jsonl --procedures crosstask.jsonl \\
        --verifier grounded --verifier cheaper=cheaper.toml

A verifier that was chosen on the procedures it is shown on looks better than it is, and what leads on some sources may
fall behind on another. So each source is left out in turn. The candidate whose MEAN, averaged over the other sources,
is highest is chosen, and its figures on the source that is left out count: paired with those of the default, which is
the first candidate, and with those of R0, which reads no corpus. The differences are averaged over sources, each source
with the same weight; the interval draws whole goals within their source, and says nothing about further sources.

A change, to the candidate that is best on all sources, is warranted where what is chosen is better on average, with an
interval above 0, and on no source worse than the default with an interval below 0.

A candidate may be trained on audited sources. It is given as a function of a source that returns a scorer that never
saw that source; each source is scored by its own scorer. Where it is compared on the other sources to be chosen, its
scorers have seen the source that is left out, but not the one that they score.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from recipe.audit.classes import CORRUPTIONS, GROUP_OF
from recipe.audit.perturb import AuditPrompt, Embed, build_prompts, select
from recipe.audit.score import Array, NamedScorer, ScoredPrompt, controls, prompt_means, win_table
from recipe.config import RewardConfig, load_config
from recipe.corpus.store import Corpus
from recipe.data.procedures import read_procedures
from recipe.errors import ComputeError, InputError
from recipe.progress import SILENT, Progress
from recipe.report.numbers import MINUS
from recipe.reward.embeddings import StepEmbeddings
from recipe.reward.scorer import Scorer
from recipe.reward.verifier import Verifier
from recipe.stats import Interval, macro_interval, mean_interval
from recipe.text import same_goal


class SourceScorer(NamedTuple):
    """A reward that is trained: for each source, a scorer that never saw it."""

    name: str
    scorer_for: Callable[[str], Scorer]


@dataclass(frozen=True, slots=True)
class SourceFigures:
    """The figures of one candidate on one source, on the prompts that all candidates and R0 scored."""

    mean: Interval
    worst: float
    worst_class: str
    gaming_worst: float | None
    """Lowest share among the classes of the group `gaming`."""
    gaming_worst_class: str | None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What was chosen without one source, and how it does there."""

    source: str
    chosen: str
    over_default: Interval
    """MEAN on this source less that of the default, paired by prompt."""
    over_relevance: Interval


@dataclass(frozen=True, slots=True)
class Lodo:
    """The whole protocol."""

    default: str
    figures: dict[str, dict[str, SourceFigures]]
    """Candidate, or R0 -> source -> figures."""
    left_out: tuple[LeftOut, ...]
    over_default: Interval
    """Mean over sources of what is chosen without them, less the default."""
    over_relevance: Interval
    prompts: int
    """Prompts that all candidates and R0 scored; the others are left out."""
    warranted: bool
    verdict: str


def lodo(
    candidates: Sequence[NamedScorer | SourceScorer],
    prompts: Sequence[AuditPrompt],
    embed: Embed,
    progress: Progress = SILENT,
) -> Lodo:
    """The protocol for these candidates, the first of which is the default.

    Raises InputError for fewer than two candidates or sources or a name that occurs twice, ComputeError where no prompt
    of a source is scored by all candidates.
    """
    scored: dict[str, list[ScoredPrompt]] = {}
    for candidate in candidates:
        if candidate.name in scored:
            raise InputError(f"{candidate.name!r} is given twice; give each candidate a name of its own.")
        if isinstance(candidate, NamedScorer):
            scored[candidate.name] = candidate.score(prompts, progress).prompts
            continue
        scored[candidate.name] = []
        for source in dict.fromkeys(prompt.source for prompt in prompts):
            own = [prompt for prompt in prompts if prompt.source == source]
            scorer = NamedScorer(f"{candidate.name} without {source}", candidate.scorer_for(source))
            scored[candidate.name] += scorer.score(own, progress).prompts
    _, relevance = controls(prompts, embed)
    return leave_one_out(scored, relevance.name, relevance.score(prompts, progress).prompts)


def leave_one_out(
    scored: Mapping[str, Sequence[ScoredPrompt]], control: str, relevance: Sequence[ScoredPrompt]
) -> Lodo:
    """The protocol for candidates that have scored their prompts; `control` names R0. Raises as `lodo` does."""
    if len(scored) < 2:
        raise InputError("leaving one dataset out compares candidates; give at least two verifiers.")
    sources = sorted({scored_prompt.prompt.source for own in scored.values() for scored_prompt in own})
    if len(sources) < 2:
        raise InputError(f"leaving one dataset out needs two sources; the procedures are of {sources or 'none'}.")
    everyone = {**scored, control: relevance}
    common = set.intersection(*({scored_prompt.key for scored_prompt in own} for own in everyone.values()))
    # In an order that does not depend on the candidate.
    kept = {
        name: {
            source: sorted(
                (
                    scored_prompt
                    for scored_prompt in own
                    if scored_prompt.key in common and scored_prompt.prompt.source == source
                ),
                key=lambda scored_prompt: scored_prompt.key,
            )
            for source in sources
        }
        for name, own in everyone.items()
    }
    if missing := [source for source in sources if not kept[control][source]]:
        raise ComputeError(f"no prompt of {missing[0]} is scored by all candidates; see which are unscored.")
    tables = {name: {source: win_table(own) for source, own in by.items()} for name, by in kept.items()}
    goals = {
        source: [same_goal(scored_prompt.prompt.goal) for scored_prompt in own] for source, own in kept[control].items()
    }
    figures = {
        name: {source: _figures(table, goals[source]) for source, table in by.items()} for name, by in tables.items()
    }
    default = next(iter(scored))
    values = {name: {source: prompt_means(table) for source, table in by.items()} for name, by in tables.items()}
    chosen = {
        source: _best(list(scored), figures, [other_source for other_source in sources if other_source != source])
        for source in sources
    }
    left_out = tuple(
        LeftOut(
            source,
            name,
            mean_interval(values[name][source] - values[default][source], goals[source]),
            mean_interval(values[name][source] - values[control][source], goals[source]),
        )
        for source, name in chosen.items()
    )
    datasets = [source for source in sources for _ in goals[source]]
    clusters = [goal for source in sources for goal in goals[source]]
    over_default, over_relevance = (
        macro_interval(
            np.concatenate([values[chosen[source]][source] - values[other][source] for source in sources]),
            datasets,
            clusters,
        )
        for other in (default, control)
    )
    new = _best(list(scored), figures, sources)
    # A loss without an interval is not known to be chance, so that it counts.
    losses = [(choice, choice.over_default.sign) for choice in left_out if choice.over_default.mean < 0]
    worse = [choice for choice, sign in losses if sign in (-1, None)]
    warranted = new != default and over_default.sign == 1 and not worse
    if set(chosen.values()) == {default}:
        verdict = (
            f"Changing the default from {default} is not warranted: on the other sources, it is the best each time."
        )
    else:
        choices = dict.fromkeys(chosen.values())
        by_source = ", ".join(f"{name} for {source}" for source, name in chosen.items())
        which = f"what is chosen on the other sources ({by_source})"
        if len(choices) == 1:
            which = f"{next(iter(choices))}, chosen each time on the other sources,"
        in_words = ", ".join(f"{points(source_left.over_default)} on {source_left.source}" for source_left in worse)
        against = f", and worse on a source that was left out ({in_words})" if worse else ", and on no source worse"
        change = default if new == default else f"{default} to {new}"
        verdict = (
            f"Changing the default from {change} is {'' if warranted else 'not '}warranted: {which} is "
            f"{points(over_default)} points from it on average{against} beyond its interval."
        )
    return Lodo(
        default=default,
        figures=figures,
        left_out=left_out,
        over_default=over_default,
        over_relevance=over_relevance,
        prompts=len(common),
        warranted=warranted,
        verdict=verdict,
    )


def _figures(table: Array, goals: Sequence[str]) -> SourceFigures:
    known = [column[np.isfinite(column)] for column in table.T]
    shares = {name: float(own.mean()) for name, own in zip(CORRUPTIONS, known, strict=True) if len(own)}
    gaming = {name: share for name, share in shares.items() if GROUP_OF[name] == "gaming"}
    worst, worst_gaming = min(shares, key=shares.__getitem__), min(gaming, key=gaming.__getitem__, default=None)
    return SourceFigures(
        mean=mean_interval(prompt_means(table), goals),
        worst=shares[worst],
        worst_class=worst,
        gaming_worst=None if worst_gaming is None else gaming[worst_gaming],
        gaming_worst_class=worst_gaming,
    )


def _best(candidates: list[str], figures: Mapping[str, Mapping[str, SourceFigures]], sources: Sequence[str]) -> str:
    """The candidate with the highest MEAN over these sources, the first of equals."""
    return max(candidates, key=lambda name: float(np.mean([figures[name][source].mean.mean for source in sources])))


def points(gain: Interval) -> str:
    """A difference of shares in points with its interval.

    >>> points(Interval(0.04, -0.01, 0.09))
    '+4.0 [−1.0, +9.0]'
    """
    ends = f" (no interval: {gain.reason})" if gain.reason else ""
    if gain.low is not None and gain.high is not None:
        ends = f" [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}]"
    return f"{100 * gain.mean:+.1f}{ends}".replace("-", MINUS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--procedures", type=Path, action="append", required=True, help="a file; repeat")
    parser.add_argument(
        "--verifier", action="append", required=True, help="NAME, or NAME=CONFIG.toml; the first is the default"
    )
    parser.add_argument("--limit", type=int, default=100, help="procedures of each source")
    arguments = parser.parse_args()
    corpus = Corpus.open(arguments.corpus)
    embeddings = StepEmbeddings(corpus.encoder)
    candidates = []
    for given in arguments.verifier:
        name, _, file = given.partition("=")
        config = load_config(Path(file), RewardConfig) if file else RewardConfig(verifier=name)
        candidates.append(NamedScorer(name, Verifier(corpus, config, embeddings=embeddings)))
    procedures = [row for file in arguments.procedures for row in read_procedures(file, "skip").procedures]
    prompts = build_prompts(select(procedures, limit=arguments.limit), embeddings.stacked)
    compared = lodo(candidates, prompts, embeddings.stacked)
    print(compared.verdict)
    for fold in compared.left_out:
        print(
            f"{fold.source}: {fold.chosen}, {points(fold.over_default)} against the default, "
            f"{points(fold.over_relevance)} against R0"
        )
    for name, by_source in compared.figures.items():
        for source, own in by_source.items():
            print(
                f"{name} on {source}: mean {100 * own.mean.mean:.1f}, worst {100 * own.worst:.1f} ({own.worst_class})"
            )


if __name__ == "__main__":
    main()
