"""The task of Inspect AI: its prompts, readings and numbers are those of `recipe plan` and `recipe evaluate`."""

import json
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest

inspect_ai = pytest.importorskip("inspect_ai", reason="Inspect AI is in an environment of its own (extra inspect)")

from inspect_ai.model import ModelOutput, ModelUsage, get_model  # noqa: E402

from recipe.data.examples import read_examples  # noqa: E402
from recipe.errors import InputError  # noqa: E402
from recipe.evaluation import measure_named  # noqa: E402
from recipe.evaluation.measures import measured_rows, select_plans, summarise  # noqa: E402
from recipe.models.protocol import Answer  # noqa: E402
from recipe.planning.planner import Request, prediction_of  # noqa: E402
from recipe.prompting import PLAIN  # noqa: E402
from recipe.text import format_plan  # noqa: E402
from recipe.types import Example  # noqa: E402
from recipe.world.examples import draw_examples  # noqa: E402
from recipe.world.load import load_world  # noqa: E402

# Of Inspect AI's own packages and connections.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
[entry] = entry_points(group="inspect_ai", name="recipe")
plans: Any = entry.load().plans
"""What Inspect AI finds by the name of the package."""
STEPS = ["boil the water", "warm the pot", "add the leaves", "pour the water", "let it steep", "strain it", "drink it"]


def evaluated(task: Any, answers: Sequence[str], folder: Path, stop: str = "stop") -> Any:
    """The log of the task, whose model gives these answers in the order of the samples."""
    outputs = [ModelOutput.from_content("mockllm/model", text, stop_reason=stop) for text in answers]
    for output in outputs:
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    model = get_model("mockllm/model", custom_outputs=outputs, memoize=False)
    [log] = inspect_ai.eval(task, model=model, log_dir=str(folder), display="none", max_connections=1, max_samples=1)
    assert log.status == "success", log.error
    return log


def figures(log: Any) -> dict[str, Any]:
    """Mean and standard error of each metric."""
    return {score.name: {name: metric.value for name, metric in score.metrics.items()} for score in log.results.scores}


def ours(name: str, examples: Sequence[Example], answers: Sequence[str], **options: Any) -> Any:
    """What `recipe evaluate` says of the same answers."""
    plans = [prediction_of(one.example_id, 0, Answer(text)) for one, text in zip(examples, answers, strict=True)]
    kind: Any = measure_named(name)
    measure = kind(**options)
    rows = measured_rows(measure, select_plans(examples, plans))
    return rows, summarise(measure, "m", rows, examples).overall.values


def test_the_world_is_scored_as_recipe_evaluate_does(tmp_path: Path) -> None:
    examples = draw_examples(load_world(), "test_goals", 4)
    answers = [format_plan(one.continuation) for one in examples[:2]] + ["1. dance\n2. sing", ""]
    log = evaluated(plans(count=4), answers, tmp_path)
    rows, values = ours("validity", examples, answers)
    found = figures(log)
    for name in ("score", "order", "coverage", "clean", "perfect", "steps", "malformed"):
        assert found[name]["mean"] == pytest.approx(values[name].mean), name
    goals, goal = np.unique([example.goal for example in examples], return_inverse=True)
    sums = np.bincount(goal, weights=[row.metrics["score"] - values["score"].mean for row in rows])
    # Clustered by goal (Miller, Adding Error Bars to Evals, appendix A), with the correction for few clusters.
    error = np.sqrt(len(goals) / (len(goals) - 1) * np.square(sums).sum()) / len(rows)
    assert found["score"]["stderr"] == pytest.approx(error)
    assert [sample.id for sample in log.samples] == [example.example_id for example in examples]
    asked = [{"role": message.role, "content": message.content} for message in log.samples[0].messages[:-1]]
    assert asked == PLAIN.chat(examples[0].goal, examples[0].history)
    assert asked == Request.of(examples[0]).chat(PLAIN)


def test_an_answer_without_a_plan_fails_with_its_reason(tmp_path: Path) -> None:
    answers = ["", "<think>I think and think", "1. boil"]
    log = evaluated(plans(count=3), answers, tmp_path)
    scores = [sample.scores["plan_scorer"] for sample in log.samples]
    assert [score.reason for score in scores] == ["no_response", "invalid_response_format", None]
    assert [score.value["malformed"] for score in scores] == [1.0, 1.0, 0.0]
    assert [bool(score.explanation) for score in scores] == [True, True, False]
    for text, stop, reason in (
        ("1. bo", "max_tokens", "invalid_response_format"),
        ("", "content_filter", "no_response"),
    ):
        [sample] = evaluated(plans(count=1), [text], tmp_path, stop).samples
        assert (sample.scores["plan_scorer"].reason, sample.scores["plan_scorer"].answer) == (reason, "")


def test_own_procedures_are_matched_with_their_references(tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    rows = [
        {"goal": "brew tea", "steps": STEPS},
        {"goal": "make an infusion", "history": [], "continuation": STEPS[1:]},
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    examples = read_examples(file)
    answers = [format_plan(examples[0].continuation), format_plan(STEPS[:2])]
    log = evaluated(plans(procedures=str(file), encoder="hash:256"), answers, tmp_path)
    _, values = ours("match", examples, answers, encoder="hash:256")
    found = figures(log)
    for name in ("matched_ordered_f1", "matched_f1", "length_apart", "steps"):
        assert found[name]["mean"] == pytest.approx(values[name].mean), name
    assert 0 < found["matched_f1"]["mean"] < 1


@pytest.mark.parametrize(
    "options",
    [{"split": "nowhere"}, {"measure": "match", "graphs": "g"}, {"procedures": "absent.jsonl"}, {"prompt": "no"}],
)
def test_settings_that_cannot_be_used_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        plans(**options)
