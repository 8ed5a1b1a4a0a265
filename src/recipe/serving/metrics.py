"""What the planner page counts, in Prometheus's format."""

from collections.abc import Callable

from recipe.web.guard import SECONDS, WebMetrics


class PageMetrics(WebMetrics):
    """Counters of one planner page."""

    def __init__(self) -> None:
        super().__init__("recipe_page")
        self.ended = self.counter("runs", "Runs that are over, by how they ended.", "state")
        self.first_step = self.histogram("first_step_seconds", "Time from request to first step.", SECONDS)
        self.evidence = self.histogram("evidence_seconds", "Time of asking the corpus about steps.", SECONDS)
        self.tokens = self.counter("tokens", "Tokens written.")

    def follow(self, waiting: Callable[[], float], under_way: Callable[[], float]) -> None:
        """Read the queue whenever metrics are asked for."""
        self.gauge("waiting", "Runs that wait.", follow=waiting)
        self.gauge("running", "Runs that are written.", follow=under_way)
