"""Plans against the annotated continuation: matched step F1 of predictions, with controls on the same examples."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from recipe.config.corpus import EncoderConfig
from recipe.corpus.encoders import open_encoder
from recipe.evaluation.controls import control_plans
from recipe.evaluation.matching import Embed, StepMatcher
from recipe.evaluation.measures import Measure
from recipe.evaluation.scores import Row
from recipe.evaluation.validity.measure import plan_metrics, score_predictions
from recipe.evaluation.validity.readings import MOST_LINES, shown
from recipe.planning.predictions import Prediction
from recipe.progress import SILENT, Progress
from recipe.prompting import visible
from recipe.text import copied_share
from recipe.types import Example

MAIN = "matched_ordered_f1"
"""The metric in which systems are compared with controls."""


def match_metrics(matcher: StepMatcher, example: Example, steps: Sequence[str]) -> dict[str, float]:
    """Metrics of a plan compared with its reference continuation."""
    matched, apart = matcher.agreement(example, steps), float(len(steps) - len(example.continuation))
    return {
        "matched_f1": matched.f1,
        "matched_ordered_f1": matched.ordered_f1,
        "length_error": apart,
        "length_apart": abs(apart),
        "copied": copied_share(example.history, steps),
    }


class MatchMeasure(Measure):
    """Agreement with annotated continuations, step by step."""

    name = "match"
    title = "matched step F1 in order"
    about = (
        "No judge: a line of a plan matches the step of the annotated continuation that it is most alike by "
        "embedding, or none: where it is not alike enough, or is more alike a step that is done or the goal "
        "itself. Matched step F1 counts the steps in common, each as often as the annotation has it; in order, "
        "those of the longest common subsequence. A right plan that differs from the annotation counts as wrong. "
        "Controls are plans that no planner made, on the same examples."
    )
    main = MAIN
    further = ("matched_f1", "length_apart", "steps")
    digits = 3
    scale = (0.0, 1.0)
    cluster = "goal"
    beats_controls = True

    def __init__(
        self,
        embed: Callable[[], Embed] | None = None,
        encoder: str = "minilm",
        annotated: Sequence[Example] | None = None,
        seed: int = 0,
    ) -> None:
        """`embed` opens the encoder of this name.

        With `annotated` examples there are rows of controls; labels of a goal are those of other videos among them,
        drawn by `seed`.
        """
        super().__init__()
        self.matcher = StepMatcher(open_encoder(EncoderConfig(name=encoder)).encode if embed is None else embed())
        self.identity = {"encoder": encoder}
        scale = {"chance": self.matcher.scale.chance, "same": self.matcher.scale.same, "floor": self.matcher.floor}
        self.settings = {"encoder": encoder} | {name: f"{value:.3f}" for name, value in scale.items()}
        self._annotated, self._seed = annotated, seed
        # Control to the plan of each example, by its id, besides the controls made here.
        self.more_controls: dict[str, dict[str, Prediction]] = {}

    @classmethod
    def open(cls, settings: Any, embed: Callable[[], Embed], model: Any = None) -> "MatchMeasure":
        opened = cls(embed, settings.encoder)
        scale, floor = opened.matcher.scale, opened.matcher.floor
        opened.identity |= {"chance": f"{scale.chance:.6f}", "same": f"{scale.same:.6f}", "floor": f"{floor:g}"}
        return opened

    def rows(
        self, examples: Sequence[Example], predictions: Sequence[Prediction], progress: Progress = SILENT
    ) -> list[Row]:
        """A row for each plan: its lines, and the step of the reference that each matches, None for none.

        The whole plan is measured; the row holds its first lines, without invisible characters and no longer than a
        limit.
        """
        rows = self._rows(examples, predictions)
        if self._annotated is not None:
            made = control_plans(examples, self._annotated, self._seed) | self.more_controls
            for control, plans in made.items():
                rows += [replace(row, control=control) for row in self._rows(examples, [*plans.values()])]
        return rows

    def _rows(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> list[Row]:
        known = {example.example_id: example for example in examples}
        self.matcher.learn(step for prediction in predictions for step in prediction.steps)
        scored = [
            replace(plan, more=match_metrics(self.matcher, known[plan.example_id], plan.texts))
            for plan in score_predictions(None, examples, predictions)
        ]
        return [
            Row(
                plan.example_id,
                metrics,
                plan.sample,
                details={
                    "goal": visible(plan.goal),
                    # As judges and validity write them, so that a report shows equal plans of a system as one.
                    "steps": [shown(text) for text in plan.texts[:MOST_LINES]],
                    "matched": list(self.matcher.names(known[plan.example_id], plan.texts[:MOST_LINES])),
                },
            )
            for plan, metrics in zip(scored, plan_metrics(scored), strict=True)
        ]
