"""What the service counts, in Prometheus's format."""

from collections.abc import Callable, Sequence

from recipe.errors import MissingExtra
from recipe.types import Reward

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
except ModuleNotFoundError as error:
    raise MissingExtra("the reward service", "serve") from error

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_SHARES = tuple(n / 10 for n in range(-10, 11))


class ServiceMetrics:
    """Counters of one service, apart from those of any other in the process."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(f"recipe_reward_{name}", meaning, labels, registry=registry)

        def histogram(name: str, meaning: str, buckets: Sequence[float], *labels: str) -> Histogram:
            return Histogram(f"recipe_reward_{name}", meaning, labels, buckets=buckets, registry=registry)

        self._requests = counter("requests", "Requests by endpoint and status.", "endpoint", "status")
        self._seconds = histogram("request_seconds", "Time from request to answer.", _SECONDS, "endpoint")
        self._failures = counter("failures", "Requests that ended without a reward, by class.", "class")
        self._batch = histogram("batch_plans", "Plans in a batch.", _SIZES)
        self._prompts = histogram("batch_prompts", "Distinct prompts in a batch.", _SIZES)
        self.batch_seconds = histogram("batch_seconds", "Time of scoring a batch.", _SECONDS)
        self._plans = counter("plans", "Plans scored.")
        self._gated = counter("gated", "Rewards below the gate.")
        self._abstained = counter("abstained", "Rewards without the corpus, which covers the prompt too little.")
        self._empty = counter("empty", "Plans without steps.")
        self._total = histogram("total", "Rewards.", _SHARES)
        self._coverage = histogram("coverage", "How far the corpus covers the prompts.", _SHARES)
        replaced = "1 where the folder on disk no longer holds the corpus served."
        self.replaced = Gauge("recipe_reward_corpus_replaced", replaced, registry=registry)
        self._corpus = Gauge("recipe_reward_corpus", "1 for the corpus that is served.", ["id"], registry=registry)

    def corpus(self, identity: str) -> None:
        """The corpus that is served."""
        self._corpus.labels(identity).set(1)

    def follow(self, waiting: Callable[[], float], ready: Callable[[], float]) -> None:
        """Read the length of the queue, and whether the service is ready, whenever metrics are asked for."""
        Gauge("recipe_reward_queue_plans", "Plans that wait.", registry=self._registry).set_function(waiting)
        Gauge("recipe_reward_ready", "1 where requests are welcome.", registry=self._registry).set_function(ready)

    def request(self, endpoint: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self._requests.labels(endpoint, str(status)).inc()
        self._seconds.labels(endpoint).observe(seconds)

    def failed(self, code: str) -> None:
        """A request ended without a reward."""
        self._failures.labels(code).inc()

    def batch(self, plans: int, prompts: int) -> None:
        """A batch is about to be scored."""
        self._batch.observe(plans)
        self._prompts.observe(prompts)

    def rewards(self, rewards: Sequence[Reward]) -> None:
        """Plans of one prompt were scored."""
        self._plans.inc(len(rewards))
        self._gated.inc(sum(reward.gated for reward in rewards))
        self._abstained.inc(sum(reward.abstained for reward in rewards))
        self._empty.inc(sum(reward.steps == 0 for reward in rewards))
        for reward in rewards:
            self._total.observe(reward.total)
            if reward.coverage is not None:
                self._coverage.observe(reward.coverage)

    def text(self) -> bytes:
        """The page that Prometheus reads."""
        return generate_latest(self._registry)
