"""The samples of the real CrossTask: as many as the protocol has, with the 105 actions and shots for every goal."""

from pathlib import Path

import pytest

from recipe.cli.vpa import Source, read_samples
from recipe.config.planning import VidAssistConfig

pytestmark = pytest.mark.real_data


def test_the_samples_of_the_protocol(shared_data: Path) -> None:
    source = Source(shared_data, None, None, None, None, False, "hash:64")
    samples = read_samples(source, VidAssistConfig(few_shot=3))
    assert len(samples.examples) == 4123
    goals = {example.goal for example in samples.examples}
    assert set(samples.shown) == goals
    assert len(goals) == 18
    assert all(len(shown) == 3 for shown in samples.shown.values())
    assert len(samples.actions("any").actions) == 105
    tested = {example.video_id for example in samples.examples}
    assert len(tested) > 600
    few = read_samples(source._replace(limit=100, card=True), VidAssistConfig())
    assert len({example.example_id for example in few.examples}) == 100
    assert max(len(few.actions(goal).actions) for goal in {one.goal for one in few.examples}) <= 11
