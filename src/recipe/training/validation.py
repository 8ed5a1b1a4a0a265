"""Validation while training: plans for held-out prompts, which step is best, and when to stop.

At each validation the policy writes plans for the same prompts with the same random numbers, so that steps are compared
pair by pair. A row of `validation.jsonl` holds the mean reward, the named measure, the length of plans and their KL
divergence to the reference policy. The base is validated first, as step 0, so that a run knows whether any step was
better. The adapter of the best step lies in `best/step-NNNNN`, written whole or not at all; the earliest of equals is
best. Rows are a function of the policy, so that a run that was killed gives the same rows and the same choice.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import astuple
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from peft import PeftModel

from recipe.artifacts import atomic_path, read_jsonl, remove, write_jsonl
from recipe.config.training import BestOfNConfig, GRPOConfig, ValidationSettings
from recipe.data.examples import read_training_examples
from recipe.errors import ComputeError, InputError
from recipe.models.checkpoints import Checkpoint, decode_completions, thought_opening
from recipe.models.decoding import token_log_likelihood
from recipe.plan_text import Completion
from recipe.report.elements import difference_text
from recipe.reward.scorer import Scorer, Steps, or_none, score_plans
from recipe.stats import Interval, paired_interval
from recipe.training import ranks
from recipe.training.policy import load_adapter, sample, write_errors
from recipe.training.runs import Run, run_prompt
from recipe.types import Example

Measure = Callable[[Sequence[Example], Sequence[Sequence[str]]], Sequence[float | None]]
"""What validation chooses by: of examples and a plan of each, the plans' values; None for one that has none."""

VALIDATION_ROWS = "validation.jsonl"
BEST = "best"
# Fields of a row that a card leaves out.
_NO_FIGURES = ("step", "measure", "prompts", "gain")
# Plans whose likelihood is computed at once.
_AT_ONCE = 32


class Validation:
    """The validations of one run, in every process; the first one scores, measures and writes."""

    def __init__(
        self,
        config: GRPOConfig | BestOfNConfig,
        run: Run,
        policy: Checkpoint,
        ends: Sequence[int],
        at_once: int,
        scorer: Scorer | None,
        measure: Measure | None,
        unit: str = "step",
    ) -> None:
        """Plans are sampled as those of the run, `at_once` in a batch, until one of `ends`.

        `scorer` and `measure` are needed in the first process; `measure` only where it is not the reward. `unit` is
        what the steps are called in sentences.

        Raises InputError for examples that cannot be read, ComputeError where the measure is missing.
        """
        settings = config.validation
        assert settings is not None
        if measure is None and settings.measure != "reward" and ranks.main():
            raise ComputeError(f"validation chooses by {settings.measure}, which has no measure here; give it.")
        self._settings, self._run, self._measure = settings, run, measure
        self._scorer, self._unit = scorer, unit
        self._tokenizer, self._ends, self._at_once = policy.tokenizer, ends, at_once
        self._prompt, self._longest, self._seed = run_prompt(config), config.max_completion_tokens, config.seed
        self._temperature = config.temperature
        self._examples = read_training_examples(settings.examples, settings.split)[: settings.prompts]
        # One a validation, the base first; their fields are those of `validation.jsonl`.
        self.rows: list[dict[str, Any]] = []

    def open(self, done: int | None) -> None:
        """Begin, or go on after step `done`: what was validated later is dropped, and validated again.

        Raises InputError for rows that are missing or damaged.
        """
        self.rows = ranks.from_main(lambda: self._kept_rows(done))

    def _kept_rows(self, done: int | None) -> list[dict[str, Any]]:
        path, rows = self._run.folder / VALIDATION_ROWS, list[dict[str, Any]]()
        if done == 0 and path.is_file() and not path.stat().st_size:
            done = None  # rounds have a checkpoint before the base is validated, and the run was stopped in between
        for line, (_, row) in enumerate([] if done is None else read_jsonl(path), start=1):
            figures = (row.get("kl_plan"), row.get(self._settings.measure))
            known = type(row.get("step")) is int and all(type(figure) in (int, float) for figure in figures)
            prompts = row.get("prompts")
            if not known or not isinstance(prompts, list) or len(prompts) != len(self._examples):
                remedy = "delete the run's folder to start over"
                raise InputError.at(path, "this is no row of the run's validation", remedy, line=line)
            if done is not None and row["step"] <= done:
                rows.append(row)
        write_jsonl(path, rows)
        for folder in (self._run.folder / BEST).glob("step-*"):
            if done is None or int(folder.name.rpartition("-")[2]) > done:
                remove(folder)
        return rows

    @property
    def best(self) -> dict[str, Any]:
        """The row of the best step so far."""
        # `max` takes the first of equals: the earliest step is the one that has moved least.
        return max(self.rows, key=self._value)

    @property
    def stopped(self) -> bool:
        """Whether so many validations as `patience` says came after the best one."""
        patience = self._settings.patience
        return patience is not None and bool(self.rows) and self.rows.index(self.best) + patience < len(self.rows)

    def due(self, step: int, last: int) -> bool:
        """Whether a step of a run of `last` steps is to be validated, and was not yet."""
        return (step % self._settings.every == 0 or step == last) and all(row["step"] != step for row in self.rows)

    def validate(self, model: PeftModel, step: int) -> dict[str, Any]:
        """Sample, measure and record the policy after a step; the adapter is kept where none was better.

        Raises ComputeError where no plan could be scored or measured.
        """
        chats = [self._prompt.training_chat(example) for example in self._examples]
        rendered = self._tokenizer.apply_chat_template(chats, add_generation_prompt=True, return_dict=True)["input_ids"]
        samples = self._settings.samples
        # Every process writes a share of the plans: the index of each among all, its steps, and its KL estimate.
        share = range(len(rendered) * samples)[ranks.rank() :: ranks.world()]
        opening, own = thought_opening(self._tokenizer), list[tuple[int, Steps, float]]()
        for first in range(0, len(share), self._at_once):
            indices = share[first : first + self._at_once]
            prompts = [rendered[index // samples] for index in indices]
            written = sample(
                model.get_base_model(),
                prompts,
                # The same random numbers at each validation, so that steps are compared pair by pair.
                [f"{self._seed} validation {index // samples} {index % samples}" for index in indices],
                temperature=self._temperature,
                longest=self._longest,
                ends=self._ends,
            )
            steps = [
                Completion.of(text, cut=tokens[-1] not in self._ends).steps
                for text, tokens in zip(decode_completions(self._tokenizer, written, opening), written, strict=True)
            ]
            own += zip(indices, steps, divergences(model, prompts, written, self._temperature), strict=True)
        plans = sorted(ranks.gathered(own))  # in one order, whatever the number of processes
        # Measured in one process, so that a row does not depend on how plans were dealt out.
        row = ranks.from_main(lambda: self._measured(step, [steps for _, steps, _ in plans], [kl for *_, kl in plans]))
        gain = self.gain(row) if self.rows else None
        row["gain"] = None if gain is None else list(astuple(gain))
        self.rows.append(row)
        if ranks.main():
            # The adapter before the row: a run that is killed between the two validates this step again, and a row
            # never names an adapter that is not there.
            if self.best is row:
                with self._run.on_disk(), atomic_path(self._adapter(step)) as partial, write_errors(partial):
                    model.save_pretrained(partial)
            write_jsonl(self._run.folder / VALIDATION_ROWS, self.rows)
        ranks.barrier()
        return row

    def prune(self) -> None:
        """Remove the adapters of all but the best step: once a checkpoint holds the last row, no run goes back."""
        for folder in (self._run.folder / BEST).glob("step-*"):
            if folder != self._adapter(self.best["step"]):
                shutil.rmtree(folder)

    def restore(self, model: PeftModel) -> int:
        """Give the model the adapter of the best step, and return this step; the base's is step 0."""
        load_adapter(model, self._adapter(self.best["step"]))
        return int(self.best["step"])

    def notes(self, last: int) -> list[str]:
        """What was chosen and why training stopped, in sentences; `last` is the step after which it could go on."""
        base, best, name = self.rows[0], self.best, self._settings.measure.replace("_", " ")
        prompts = f"on {len(base['prompts'])} validation prompts"
        if best is base:
            sentences = [
                f"No {self._unit} was better than the base {prompts}: {name} {self._value(base):.3f}; "
                "model/ holds the base's weights."
            ]
        else:
            gain = self.gain(best) or Interval(self._value(best) - self._value(base))
            # The gain is of the step that was chosen for its gain: the interval is of the prompts and leaves that
            # choice out.
            noise = "" if gain.sign == 1 else " This gain is within the noise of the prompts."
            if gain.sign is None:
                noise = " Whether this gain is more than the noise of the prompts cannot be told."
            sentences = [
                f"{self._unit.capitalize()} {best['step']} was best {prompts}: {name} {self._value(best):.3f}, "
                f"the base {self._value(base):.3f}, difference {difference_text(gain)}; "
                f"model/ holds its weights.{noise}"
            ]
        if (end := self.rows[-1]["step"]) < last and self.stopped:
            waited = len(self.rows) - 1 - self.rows.index(best)
            sentences.append(
                f"Training stopped after {self._unit} {end} of {last}: {waited} validations brought no better one."
            )
        return sentences

    @property
    def figures(self) -> dict[str, Any]:
        """Of the best step, for a card."""
        return {f"validation {name}": value for name, value in self.best.items() if name not in _NO_FIGURES}

    def gain(self, row: dict[str, Any]) -> Interval | None:
        """The named measure of a row minus the base's over prompts that both have, with an interval by goal."""
        pairs = [
            (after, before, example.goal)
            for after, before, example in zip(row["prompts"], self.rows[0]["prompts"], self._examples, strict=True)
            if after is not None and before is not None
        ]
        if not pairs:
            return None
        after, before, goals = zip(*pairs, strict=True)
        return paired_interval(after, before, goals)

    def _value(self, row: dict[str, Any]) -> float:
        return float(row[self._settings.measure])

    def _adapter(self, step: int) -> Path:
        return self._run.folder / BEST / f"step-{step:05d}"

    def _measured(self, step: int, plans: Sequence[Steps], kls: Sequence[float]) -> dict[str, Any]:
        """The row of a step, from the plans and their KL estimates in the order of prompts and samples."""
        if self._scorer is None:
            raise ComputeError("the first process of a run needs a scorer to validate; give it one.")
        examples = [example for example in self._examples for _ in range(self._settings.samples)]
        outcomes = score_plans(self._scorer, [(example.goal, example.history) for example in examples], plans)
        scored = or_none(outcomes, earlier=bool(self.rows))
        rewards = [None if reward is None else reward.total for reward in scored]
        name = self._settings.measure
        values = rewards if name == "reward" or self._measure is None else list(self._measure(examples, plans))
        means: dict[str, float | None] = {"reward": _mean(rewards), name: _mean(values)}
        for key, mean in means.items():
            if mean is None:
                raise ComputeError(
                    f"Validation after {self._unit} {step}: the {key} of not one of {len(plans)} plans could be "
                    "computed; the same command resumes the run."
                )
        samples = self._settings.samples
        return {
            "step": step,
            **means,
            "steps": fmean(map(len, plans)),
            "kl_plan": fmean(kls),
            "plans": len(plans),
            "unscored": fmean(value is None for value in rewards),
            "unmeasured": fmean(value is None for value in values),
            "measure": name,
            "prompts": [_mean(values[first : first + samples]) for first in range(0, len(values), samples)],
        }


def divergences(
    model: PeftModel, prompts: Sequence[Sequence[int]], written: Sequence[Sequence[int]], temperature: float
) -> list[float]:
    """KL of each plan in nats to the model without its adapter, at the temperature that it was sampled at."""
    totals: list[float] = []
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            for first in range(0, len(written), _AT_ONCE):
                rows = slice(first, first + _AT_ONCE)
                read = (model.get_base_model(), prompts[rows], written[rows], temperature)
                policy = token_log_likelihood(*read)
                with model.disable_adapter():
                    reference = token_log_likelihood(*read)
                # After a completion's end both are 0, so that every token may count.
                mask = torch.ones_like(policy[:1])
                totals += [
                    float(plan_kl(ours[None], theirs[None], mask)[0])
                    for ours, theirs in zip(policy, reference, strict=True)
                ]
    finally:
        model.train(training)
    return totals


def require_held_out(
    settings: ValidationSettings, training: Path, examples: Sequence[Example], corpus: Path | None
) -> None:
    """Raises InputError where validation prompts are of the `examples` of the file `training`, or of their videos, or
    where the corpus holds one of their videos, also under another id (`recipe.corpus.leaks`). The first is named. A
    warning says of how many videos this cannot be known.
    """
    ids = {example.example_id for example in examples}
    videos = {example.video_id for example in examples if example.video_id}
    remedy = "validate on other videos"
    validation = read_training_examples(settings.examples, settings.split)
    for example in validation:
        if example.example_id in ids:
            problem = f"example {example.example_id!r} is also in the training examples, {training}"
            raise InputError.at(settings.examples, problem, remedy)
        if example.video_id in videos:
            problem = f"video {example.video_id!r} is also in the training examples, {training}"
            raise InputError.at(settings.examples, problem, remedy)
    if corpus is not None:
        from recipe.corpus.leaks import Exclusions, leakage, videos_of, warn_unchecked  # noqa: PLC0415 - for a corpus alone

        leaks = leakage(corpus, Exclusions.of(videos_of(validation, settings.examples.name)))
        held = [
            *leaks.videos,
            *(name for name, _ in leaks.unclear),
            *(copied.video_id for copied in leaks.copied_videos),
        ]
        if held:
            problem = f"{len(held):,} of its videos are in the corpus {corpus}, the first is {held[0]!r}"
            remedy = f"{remedy}, or build the corpus with --exclude {settings.examples}"
            raise InputError.at(settings.examples, problem, remedy)
        warn_unchecked(leaks.checked, str(settings.examples))


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean of those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def plan_kl(log_probs: torch.Tensor, reference: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Sum of the plans' KL divergences in nats, and the number of plans, as float64 [2].

    All arguments are [plans, tokens]: log-probabilities of what was written, and which tokens count; a plan without any
    does not count. The estimate is exact in expectation for plans that the policy wrote: a token's is exp(r) - r - 1
    with r the log-ratio of the reference to the policy, as TRL's (Schulman, Approximating KL divergence, 2020).
    """
    # In float64: exp(r) - r - 1 is about r^2 / 2, which float32 loses to cancellation where the policies are close.
    ratio = (reference - log_probs).double()
    tokens = (ratio.exp() - ratio - 1) * mask
    return torch.stack([tokens.sum(), (mask.sum(-1) > 0).double().sum()])
