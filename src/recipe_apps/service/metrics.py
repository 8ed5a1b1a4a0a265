"""What the service counts, in Prometheus's format."""

from collections.abc import Sequence

from recipe.types import Reward
from recipe_apps.web.guard import SECONDS, WebMetrics

_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_SHARES = tuple(n / 10 for n in range(-10, 11))


class ServiceMetrics(WebMetrics):
    """Counters of one reward service."""

    def __init__(self) -> None:
        super().__init__("recipe_reward")
        self.batch_plans = self.histogram("batch_plans", "Plans in a batch.", _SIZES)
        self.batch_prompts = self.histogram("batch_prompts", "Distinct prompts in a batch.", _SIZES)
        self.batch_seconds = self.histogram("batch_seconds", "Time of scoring a batch.", SECONDS)
        self._plans = self.counter("plans", "Plans scored.")
        self._gated = self.counter("gated", "Rewards below the gate.")
        self._empty = self.counter("empty", "Plans without steps.")
        self._total = self.histogram("total", "Rewards.", _SHARES)
        self._coverage = self.histogram("coverage", "How far the corpus covers the prompts.", _SHARES)
        replaced = "1 where the folder on disk no longer holds the corpus served."
        self.replaced = self.gauge("corpus_replaced", replaced)
        self.corpus = self.gauge("corpus", "1 for the corpus that is served.", "id")

    def rewards(self, rewards: Sequence[Reward]) -> None:
        """Plans of one prompt were scored."""
        self._plans.inc(len(rewards))
        self._gated.inc(sum(reward.gated for reward in rewards))
        self._empty.inc(sum(reward.steps == 0 for reward in rewards))
        for reward in rewards:
            self._total.observe(reward.total)
            if reward.coverage is not None:
                self._coverage.observe(reward.coverage)
