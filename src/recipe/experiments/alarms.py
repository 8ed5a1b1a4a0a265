"""What the watchdog finds in the recorded completions of training runs."""

from collections.abc import Iterator
from pathlib import Path

from recipe.experiments.results import Alarm
from recipe.reward.watchdog import read_records, replay


def alarms_of(run: Path, regime: str, seed: int | None = None) -> Iterator[Alarm]:
    """The findings of one run folder, in order of step."""
    for finding in replay(read_records(run)).findings:
        yield Alarm(regime, finding.since, finding.sentence, seed)
