"""What training on rewards shares, whatever the optimiser: where rewards come from, prompts, what is recorded."""

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from recipe.artifacts import JsonObject, write_json
from recipe.config.base import parse_config
from recipe.config.models import TEMPERATURE
from recipe.config.reward import GroundedConfig, RewardConfig
from recipe.config.training import BestOfNConfig, GRPOConfig, RewardTrainingSettings
from recipe.errors import ComputeError, ConfigError, InputError
from recipe.reward.coverage import FEWEST_NARRATIONS, TaskPrompt
from recipe.reward.grounded import corpus_share
from recipe.reward.own import pinned_reward
from recipe.reward.scorer import PromptGroup, Scorer, Steps, or_none, plain_reward, prompt_outcomes, score_plans
from recipe.reward.self_trained import CARD
from recipe.reward.verifier import Verifier
from recipe.reward.watchdog import CompletionRecord, Finding
from recipe.training import ranks
from recipe.training.runs import Run, open_run, run_inputs
from recipe.types import Example, Reward

Rewarded = TypeVar("Rewarded", GRPOConfig, BestOfNConfig)

OnFinding = Callable[[Finding], None]
"""Called once with each finding of the watchdog."""

PARTS = ("steps", "aligned_history", "aligned_full", "rho", "gated")
FIRST_ROUND = "completions/round-01.jsonl"
"""Of a run in best-of-N rounds: the plans of its first round."""
PART = "part/"
"""Before the names of a reward's further parts, in a trainer's metrics."""

_LOG = logging.getLogger(__name__)


def open_reward_run(
    stage: str,
    config: Rewarded,
    scorer: Scorer | None,
    closing: ExitStack,
    further: Mapping[str, Path | str | JsonObject] | None = None,
) -> tuple[Rewarded, Scorer | None, Run]:
    """The settings of a run with those of its reward, what scores its plans, and its folder.

    With `reward_service`, the service gives settings and scores; `closing` ends the connection. `further` inputs belong
    to the run's identity as examples, model and corpus do. Raises ConfigError for a scorer given with a service, and
    for a folder with other settings or another service's verifier.
    """
    inputs = run_inputs(config)
    if isinstance(config, BestOfNConfig) and config.plans is not None:
        inputs["plans"] = config.plans / FIRST_ROUND
    if config.temperature != TEMPERATURE and ranks.main():
        _LOG.warning(
            "plans are sampled at temperature %g, and by recipe plan at %g; a gain at one need not hold at the other",
            config.temperature, TEMPERATURE,
        )  # fmt: skip
    if config.control is not None:
        config = config.model_copy(update={"corpus": None, "reward_service": None})
    elif config.corpus is not None:
        inputs["corpus"] = config.corpus
        reward = config.reward
        config = config.model_copy(update={"reward": ranks.from_main(lambda: _recorded(reward, scorer))})
        if config.reward.verifier == "grounded" and (trained := config.reward.grounded.self_trained):
            inputs["self-trained reward"] = Path(trained) / CARD
    elif scorer is not None:
        raise ConfigError("reward_service names the scorer of this run; give no other.")
    if (validation := config.validation) is not None:
        # Their content counts and not their place.
        inputs["validation examples"] = validation.examples
        if validation.graphs is not None:
            inputs["validation graphs"] = validation.graphs
    with ExitStack() as opened:  # ends the connection at once where the run cannot be opened
        if config.corpus is None and config.control is None:
            from recipe.training.served import ServedReward  # noqa: PLC0415 - an extra of its own

            scorer = service = ServedReward(config)
            opened.callback(service.client.close)
            inputs["reward"] = service.reward = ranks.from_main(service.first_reward)
            settings = parse_config(service.reward["settings"], RewardConfig, f"{config.reward_service}, verifier")
            config = config.model_copy(update={"reward": settings})
        run = open_run(stage, config, config.output, {**inputs, **(further or {})})
        closing.push(opened.pop_all())
    return config, scorer, run


def _recorded(reward: RewardConfig, scorer: Scorer | None) -> RewardConfig:
    """The settings of a run's reward, a function of the user's own with the hash of its source file."""
    if isinstance(scorer, Verifier) and scorer.config.is_function:
        return scorer.config
    return pinned_reward(reward)


def covered_examples(
    config: RewardTrainingSettings, scorer: Scorer | None, examples: list[Example], run: Run
) -> list[Example]:
    """The examples whose prompts have coverage `min_coverage` or more; the others are recorded in `coverage.json`.

    An example whose coverage could not be computed is kept: it is not known to be uncovered. Raises InputError where
    no example is left, ConfigError for a scorer that reports no coverage.
    """
    least = config.min_coverage
    if scorer is None or least is None:
        raise ConfigError("min_coverage needs a scorer in the first process; give it one.")
    if isinstance(least, str):
        if not isinstance(scorer, Verifier):
            raise ConfigError(f"min_coverage = {least!r} needs the corpus here; give a number with a reward service.")
        states = scorer.coverage.of([TaskPrompt(example.goal, example.history) for example in examples])
        covered = {own.example_id: state for own, state in zip(examples, states, strict=True) if state is not None}
        enough = {"known"} if least == "known" else {"known", "partly"}
        known = {name: state.fit for name, state in covered.items()}
        left_out = {name: known[name] for name, state in covered.items() if state.state not in enough}
        reason = f": the corpus has fewer than {FEWEST_NARRATIONS} narrations"
    else:
        outcomes = prompt_outcomes(scorer, [(example.goal, example.history) for example in examples])
        known = {
            example.example_id: outcome.coverage
            for example, outcome in zip(examples, outcomes, strict=True)
            if isinstance(outcome, Reward) and outcome.coverage is not None
        }
        left_out = {name: coverage for name, coverage in known.items() if coverage < least}
        reason = next((f": {outcome}" for outcome in outcomes if not isinstance(outcome, Reward)), "").rstrip(".")
    if not known:
        remedy = "set reward.verifier to 'grounded', or leave min_coverage out"
        raise ConfigError(f"min_coverage: the coverage of no prompt can be told{reason}; {remedy}.")
    if len(left_out) == len(examples):
        problem = (
            f"not one of {len(examples):,} prompts has coverage {least} or more (highest {max(known.values()):.2f}, "
            f"mean {fmean(known.values()):.2f}), so that the corpus says little of their tasks"
        )
        command = f"recipe reward coverage --corpus {config.corpus or 'CORPUS'} --tasks {config.examples}"
        raise InputError.at(config.examples, problem, f"see which tasks need videos with: {command}")
    kept = [example for example in examples if example.example_id not in left_out]
    counts = {"examples": len(examples), "kept": len(kept), "unknown": len(examples) - len(known)}
    write_json(run.folder / "coverage.json", {"min_coverage": least, **counts, "left_out": left_out})
    _LOG.warning("%d of %d prompts are left out: coverage below %s", len(left_out), len(examples), least)
    return kept


def prompts_in_order(examples: Sequence[Example], needed: int, seed: int) -> list[Example]:
    """The prompts of a whole run, `needed` of them: in drawn order, all once before any comes again."""
    draw = random.Random(seed)
    order: list[Example] = []
    while len(order) < needed:
        order += draw.sample(examples, len(examples))
    return order[:needed]


class ReferenceScorer:
    """Rewards a plan by how well it fits the annotated continuation of its prompt: the positive control."""

    def __init__(
        self,
        examples: Sequence[Example],
        measure: Callable[[Sequence[Example], Sequence[Steps]], Sequence[float | None]],
    ) -> None:
        """`measure` gives the values of a plan of each example, None for one that it does not know."""
        # Of examples with one prompt the first counts.
        self._example_of = {(example.goal, example.history): example for example in reversed(examples)}
        self._measure = measure

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Reward]]:
        """The reward of each plan of each group. Raises ComputeError for a plan without a value."""
        plans = [plan for group in groups for plan in group.plans]
        examples = [self._example_of[group.goal, group.history] for group in groups for _ in group.plans]
        rewards = iter(zip(self._measure(examples, plans), plans, strict=True))
        return [[_measured(*next(rewards)) for _ in group.plans] for group in groups]


def _measured(value: float | None, plan: Steps) -> Reward:
    if value is None:
        raise ComputeError("the measure of the control does not know a prompt; set validation.measure to another.")
    return plain_reward(value, len(plan))


def score_completions(scorer: Scorer, records: Sequence[CompletionRecord], *, earlier: bool) -> None:
    """Give each record its reward, None where there is none; `earlier`: whether any record before these had one.

    Raises as `recipe.reward.scorer.or_none`.
    """
    prompts = [(record.goal, record.history) for record in records]
    outcomes = score_plans(scorer, prompts, [record.completion.steps for record in records])
    for record, reward in zip(records, or_none(outcomes, earlier=earlier), strict=True):
        record.reward = reward


def reward_metrics(records: Sequence[CompletionRecord], config: GroundedConfig) -> dict[str, float]:
    """Means over completions, for the parts of the reward over those that were scored, the corpus's share of the
    differences between them, and of plans whose beginnings were scored the share of steps that lower the reward.
    """
    known = [(record, record.reward) for record in records if record.reward is not None]
    means = {
        "malformed": fmean(record.completion.malformed for record in records),
        "unscored": 1 - len(known) / len(records),
    }
    if not known:
        return means
    scored = [reward for _, reward in known]
    means |= {name: fmean(getattr(reward, name) for reward in scored) for name in PARTS}
    covered = [reward.coverage for reward in scored if reward.coverage is not None]
    means |= {"coverage": fmean(covered)} if covered else {}
    named = dict.fromkeys(name for reward in scored for name in reward.parts)
    share = corpus_share(scored, [(record.goal, record.history) for record, _ in known], config)
    means |= {} if share is None else {"corpus_share": share}
    return means | {f"{PART}{name}": fmean(r.parts[name] for r in scored if name in r.parts) for name in named}
