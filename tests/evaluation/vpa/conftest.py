"""A small release in CrossTask's layout, invented here."""

from collections.abc import Mapping
from pathlib import Path

import pytest

CARDS = {
    "501": ("Brew Mint Tea", ("boil water", "add mint", "pour tea", "stir")),
    "77": ("Patch a Kite", ("cut tape", "press tape", "stir")),
}
VIDEOS = {
    "train": {"501_a": "12344", "501_b": "1234", "77_c": "1212", "77_d": "123"},
    "validation": {"501_e": "1324"},
    "test": {"501_f": "12343", "501_g": "1243", "77_h": "12123", "77_i": "1"},
}


@pytest.fixture(scope="session")
def release_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of benchmarks with a CrossTask of two tasks and nine videos, of which four are for testing."""
    return write_release(tmp_path_factory.mktemp("benchmarks"), VIDEOS)


def write_release(root: Path, splits: Mapping[str, Mapping[str, str]]) -> Path:
    """CrossTask with these videos, a digit for each step of the task's card, below `root`."""
    folder = root / "crosstask"
    annotations = folder / "crosstask_release" / "annotations"
    annotations.mkdir(parents=True)
    (folder / "splits").mkdir()
    cards = [f"{task}\n{name}\nu\n{len(steps)}\n{','.join(steps)}\n" for task, (name, steps) in CARDS.items()]
    (folder / "crosstask_release" / "tasks_primary.txt").write_text("\n".join(cards))
    for split, videos in splits.items():
        (folder / "splits" / f"{split}.txt").write_text("".join(f"{name.partition('_')[2]}\n" for name in videos))
        for name, steps in videos.items():
            rows = [f"{step},{10 * place},{10 * place + 5}\n" for place, step in enumerate(steps)]
            (annotations / f"{name}.csv").write_text("".join(rows))
    return root
