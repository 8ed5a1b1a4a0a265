"""What tests of scorers share."""

import importlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from recipe.reward.scorer import PromptGroup, Scorer
from recipe.reward.trainers.source import RewardSource, Row, read_rows
from recipe.types import Reward

rewards_of_rows = TypeAdapter(list[Reward]).validate_python


def r0_of(encode: Callable[..., Any], mean: Any, goal: str, history: Sequence[str], plan: Sequence[str]) -> float:
    """R0 of one plan, spelt out from its equation (docs/audit.md): near the goal and the history, and new."""

    def centred(text: str) -> Any:
        vector = encode([text])[0] - mean
        return vector / max(np.linalg.norm(vector), 1e-12)

    done, total = [centred(step) for step in history], 0.0
    for x in map(centred, plan):
        topic = [x @ centred(goal)] if goal.strip() else []
        topic += [np.mean([x @ own for own in done[: len(history)]])] if history else []
        closest = max((x @ own for own in done), default=-1.0)
        new = 1 - np.clip((closest - 0.5) / 0.5, 0, 1)
        total += new * max(np.mean(topic), 0.0) if topic else 0.0
        done.append(x)
    return float(total / np.sqrt(max(len(plan), 1)))


class PromptScorer:
    """A scorer of one prompt at a time: `score` of a subclass, which may raise for all."""

    def score(self, history: Sequence[str], plans: Sequence[Sequence[str]], goal: str) -> list[Reward]:
        raise NotImplementedError

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Reward]]:
        return [self.score(group.history, group.plans, group.goal) for group in groups]


def trainer_reward(scorer: Scorer) -> Callable[..., list[Reward | None]]:
    """The rewards of (goals, histories, completions) as a trainer gets them that takes None."""
    source = RewardSource(scorer)

    def rewards(goals: Sequence[Any], histories: Sequence[Any], completions: Sequence[Any]) -> list[Reward | None]:
        return source.score_or_none(read_rows(Row.of, completions, goals, histories))

    return rewards


class Page(HTMLParser):
    """What is in a page: its elements with their attributes, its texts, and the tags left open."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def values(self, *names: str) -> list[str]:
        """Of all attributes with these names, where they are not empty."""
        return [value for _, own in self.elements for name, value in own.items() if name in names and value]

    def of_class(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.elements if name in (attributes.get("class") or "").split()]


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The address of an application on a port of this machine."""
    uvicorn = importlib.import_module("uvicorn")
    bound = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, args=([bound],))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    server.should_exit = True
    thread.join()
