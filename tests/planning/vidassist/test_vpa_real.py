"""The samples of the real CrossTask: as many as the protocol has, with the 105 actions and shots for every goal."""

from pathlib import Path

import pytest

from recipe.cli.vpa import SampleSource
from recipe.config.planning import VidAssistConfig

pytestmark = pytest.mark.real_data


def test_the_samples_of_the_protocol(shared_data: Path) -> None:
    source = SampleSource(shared_data, None, None, None, None, False, "hash:64")
    examples, actions, shown = source.read(VidAssistConfig(few_shot=3))
    assert len(examples) == 4123
    goals = {example.goal for example in examples}
    assert set(shown) == goals
    assert len(goals) == 18
    assert all(len(of_goal) == 3 for of_goal in shown.values())
    assert len(actions("any").actions) == 105
    assert len({example.video_id for example in examples}) > 600
    few, actions, _ = source._replace(limit=100, card=True).read(VidAssistConfig())
    assert len({example.example_id for example in few}) == 100
    assert max(len(actions(goal).actions) for goal in {example.goal for example in few}) <= 11
