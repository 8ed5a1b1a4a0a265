"""Plans as a task of Inspect AI: `inspect eval recipe/plans`, and a scorer for tasks of one's own.

Prompt, reading of answers and measures are those of `recipe plan` and `recipe evaluate`. Inspect names a task by the
package that holds it, which is why this one is in the library.
"""

from math import nan
from pathlib import Path
from typing import Any, Literal

from recipe.artifacts import to_json
from recipe.data.examples import read_examples
from recipe.errors import InputError, MissingExtra
from recipe.evaluation.match import MatchMeasure
from recipe.evaluation.measures import Measure
from recipe.evaluation.validity.scores import ValidityMeasure
from recipe.models.protocol import Answer
from recipe.planning.planner import Request, prediction_of
from recipe.prompting import open_prompt
from recipe.rows import from_json
from recipe.text import format_plan
from recipe.types import Example
from recipe.world.examples import SPLITS, draw_examples
from recipe.world.load import load_world

try:
    from inspect_ai import Task, task
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser
    from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
    from inspect_ai.solver import TaskState
except ModuleNotFoundError as error:
    raise MissingExtra("the task of Inspect AI", "inspect") from error

MeasureName = Literal["match", "validity"]
_MESSAGES: dict[str, Any] = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}
# Our words for why an answer ended, by Inspect's.
_FINISH = {"max_tokens": "length", "model_length": "length", "content_filter": "content_filter"}


@task  # type: ignore[untyped-decorator]
def plans(
    procedures: str = "",
    split: str = "",
    count: int = 100,
    measure: MeasureName | None = None,
    encoder: str = "minilm",
    graphs: str = "",
    prompt: str = "plain",
    seed: int = 0,
) -> Task:
    """Plan the rest of procedures: of a file, or of the embedded world, whose `test_goals` no planner was trained on.

    `count` examples at most; the world's are drawn by `seed`. `measure` is `validity` for the world and `match` for a
    file unless it is given; `encoder` and `graphs` are its options. Raises InputError for what `read_examples`,
    `draw_examples`, `open_prompt` and the measure refuse.
    """
    if procedures:
        examples, name = read_examples(Path(procedures), split)[:count], Path(procedures).stem
    else:
        examples = draw_examples(load_world(), split or SPLITS[-1], count, seed)
        name = "world"
    chosen = measure or ("match" if procedures else "validity")
    opened, asked = _open(chosen, encoder, graphs), open_prompt(prompt)
    opened.require(examples)
    samples = [
        Sample(
            id=example.example_id,
            input=[_MESSAGES[turn["role"]](content=turn["content"]) for turn in Request.of(example).chat(asked)],
            target=format_plan(example.continuation),
            metadata={"goal": example.goal, "cluster": opened.cluster_of(example), "example": to_json(example)},
        )
        for example in examples
    ]
    return Task(
        dataset=MemoryDataset(samples, name=name),
        scorer=plan_scorer(chosen, encoder, graphs),
        metadata={"measure": opened.title, "identity": opened.identity},
    )


@scorer(metrics={"*": [mean(), stderr(cluster="cluster")]})  # type: ignore[untyped-decorator]
def plan_scorer(measure: MeasureName = "match", encoder: str = "minilm", graphs: str = "") -> Scorer:
    """Our metrics of a plan as one score, whose errors cluster by goal.

    An answer that holds no plan is an empty plan, as in `recipe evaluate`; the score says why it holds none. A value
    that could not be computed is NaN, which Inspect leaves out of its means. A sample needs `example` and `cluster` in
    its metadata, as `plans` writes them.
    """
    opened = _open(measure, encoder, graphs)
    names = tuple(dict.fromkeys((opened.main, *opened.further, "steps", "malformed")))

    async def score(state: TaskState, target: Target) -> Score:
        example = from_json(state.metadata.get("example"), Example, f"sample {state.sample_id}, metadata.example")
        text, stop = state.output.completion, state.output.stop_reason
        plan = prediction_of(example.example_id, 0, Answer(text, finish=_FINISH.get(stop, "stop")))
        rows = opened.rows([example], [plan])
        if lost := next((row.unscored for row in rows if row.unscored), ""):
            return Score.unscored(reason="scoring_failed", answer=text, explanation=str(lost))
        reason = None
        if plan.malformed:
            filtered = "refusal" if stop == "content_filter" else "invalid_response_format"
            reason = filtered if text.strip() else "no_response"
        return Score(
            value={name: rows[0].metrics.get(name, nan) for name in names},
            answer=format_plan(plan.steps),
            explanation=plan.malformed,
            reason=reason,
            metadata=rows[0].details,
        )

    return score


def _open(measure: str, encoder: str, graphs: str) -> Measure:
    if measure == "validity":
        return ValidityMeasure(Path(graphs) if graphs else None, encoder=encoder)
    if measure != "match" or graphs:
        raise InputError(
            f"measure {measure!r} with graphs {graphs!r} is none; give match, or validity with its graphs."
        )
    return MatchMeasure(encoder=encoder)
