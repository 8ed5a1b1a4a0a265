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
        name = "recipe_reward_"
        self._requests = Counter(
            f"{name}requests", "Requests by endpoint and status.", ["endpoint", "status"], registry=registry
        )
        self._seconds = Histogram(
            f"{name}request_seconds", "Time from request to answer.", ["endpoint"], buckets=_SECONDS, registry=registry
        )
        self._failures = Counter(
            f"{name}failures", "Requests that ended without a reward, by class.", ["class"], registry=registry
        )
        self._batch = Histogram(f"{name}batch_plans", "Plans in a batch.", buckets=_SIZES, registry=registry)
        self._prompts = Histogram(
            f"{name}batch_prompts", "Distinct prompts in a batch.", buckets=_SIZES, registry=registry
        )
        self.batch_seconds = Histogram(
            f"{name}batch_seconds", "Time of scoring a batch.", buckets=_SECONDS, registry=registry
        )
        self._plans = Counter(f"{name}plans", "Plans scored.", registry=registry)
        self._gated = Counter(f"{name}gated", "Rewards below the gate.", registry=registry)
        self._abstained = Counter(f"{name}abstained", "Rewards that do not judge by the corpus.", registry=registry)
        self._empty = Counter(f"{name}empty", "Plans without steps.", registry=registry)
        self._total = Histogram(f"{name}total", "Rewards.", buckets=_SHARES, registry=registry)
        self._coverage = Histogram(
            f"{name}coverage", "How far the corpus covers the prompts.", buckets=_SHARES, registry=registry
        )
        self.replaced = Gauge(
            f"{name}corpus_replaced", "1 where the folder on disk no longer holds the corpus served.", registry=registry
        )
        self._corpus = Gauge(f"{name}corpus", "1 for the corpus that is served.", ["id"], registry=registry)

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
