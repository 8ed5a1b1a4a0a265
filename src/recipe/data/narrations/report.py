"""What was read and what was left out, in numbers."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class ReadingReport:
    """Counts of one pass over narration files; filled while `read_narrations` is consumed."""

    narrations: int = 0
    segments: int = 0
    files: Counter[str] = field(default_factory=Counter)
    """Files read, by format."""
    skipped_captions: Counter[str] = field(default_factory=Counter)
    """Captions that could not be used, by reason."""
    skipped_narrations: Counter[str] = field(default_factory=Counter)
    """Narrations that could not be used, or of which no caption was left, by reason."""
    duplicates: int = 0
    """Narrations of a video that was read before."""
    below_score: int = 0
    """Captions with a score below the smallest asked for."""
    not_alignable: int = 0
    """Sentences left out because they are marked as not alignable."""
    no_goal: int = 0
    """Procedures without a goal, read as narrations without a title."""
    collapsed: int = 0
    """Cues that only repeated lines already said."""
    passed_over: int = 0
    """Files in folders and archives that hold no narrations in a layout that is recognised."""
    passed_over_names: list[str] = field(default_factory=list)
    """The first hundred of them."""

    def lines(self) -> list[str]:
        """What was left out, one sentence each; empty where everything was read."""
        parts = [
            *(_line(n, f"caption{_s(n)} skipped: {reason}") for reason, n in self.skipped_captions.most_common()),
            *(_line(n, f"narration{_s(n)} skipped: {reason}") for reason, n in self.skipped_narrations.most_common()),
            _line(self.duplicates, f"narration{_s(self.duplicates)} of a video that was read before"),
            _line(self.below_score, f"caption{_s(self.below_score)} below the smallest score"),
            _line(self.not_alignable, f"sentence{_s(self.not_alignable)} not alignable"),
            _line(self.no_goal, f"procedure{_s(self.no_goal)} without a goal, read without a title"),
            _line(self.collapsed, f"rolling cue{_s(self.collapsed)} collapsed"),
            _line(self.passed_over, f"file{_s(self.passed_over)} without narrations passed over"),
        ]
        return [part for part in parts if part]


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _line(count: int, what: str) -> str:
    return f"{count:,} {what}" if count else ""
