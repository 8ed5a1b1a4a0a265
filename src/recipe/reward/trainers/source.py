"""Where a trainer's rewards come from, a verifier in its own process or the service, and what a trainer hands over."""

import asyncio
import atexit
import json
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from recipe.config.base import load_config
from recipe.config.reward import RewardConfig
from recipe.corpus.store import Corpus
from recipe.errors import ConfigError, InputError, MissingExtra
from recipe.plan_text import Completion
from recipe.reward.batcher import ThreadBatcher
from recipe.reward.scorer import Outcome, Scorer, Steps, or_none, score_plans
from recipe.reward.verifier import Verifier
from recipe.text import whole_text
from recipe.types import Reward

# Types of the parts of a message that are its text; a thought, an image or a call of a tool is none.
_TEXT = ("text", "output_text")
_LOG = logging.getLogger(__name__)


class Row(NamedTuple):
    """A prompt, and the text that a policy wrote for it."""

    goal: str
    history: Steps
    completion: str

    @classmethod
    def of(cls, completion: Any, goal: Any, history: Any) -> "Row":
        """The row of what a trainer hands over: a history is a list, an array or the text of a JSON list.

        Raises InputError, which names the field.

        >>> Row.of("1. Pour", "Make tea", '["Boil water"]').history
        ('Boil water',)
        """
        whole_text("goal", goal)
        steps = _parsed(history) if isinstance(history, str) else history
        if hasattr(steps, "tolist"):  # a column read from Parquet is an array
            steps = steps.tolist()
        if not isinstance(steps, list | tuple) or not all(isinstance(step, str) for step in steps):
            value = f"{history!r:.160}"
            raise InputError(f"the history is {value}; give the steps that are done as a list of texts, [] for none.")
        row = cls(goal, tuple(steps), whole_text("completion", text_of(completion)))
        for step in row.history:
            whole_text("history", step)
        return row


def read_rows(read: Callable[..., Row], *columns: Iterable[Any]) -> list[Row | InputError]:
    """What `read` makes of each row of a batch in columns, or the InputError that it raises, with the row's number."""
    batch = list(zip(*columns, strict=True))
    rows: list[Row | InputError] = []
    for number, values in enumerate(batch):
        try:
            rows.append(read(*values))
        except InputError as error:
            rows.append(InputError(f"row {number} of the batch: {error}") if len(batch) > 1 else error)
    return rows


def row_of(completion: Any, *prompts: Any) -> Row:
    """A completion with its goal and history, from the first of `prompts` that holds a goal.

    A prompt is a mapping, the text of a JSON object, or an object with the attributes. Raises InputError, which names
    the field.

    >>> row_of("1. Pour", None, '{"goal": "Make tea", "history": ["Boil water"]}')
    Row(goal='Make tea', history=('Boil water',), completion='1. Pour')
    """
    for prompt in prompts:
        value = _parsed(prompt) if isinstance(prompt, str) else prompt
        if value is None or isinstance(value, str | list):
            continue
        if not isinstance(value, Mapping):
            value = {name: getattr(value, name, None) for name in ("goal", "history")}
        if value.get("goal") is not None:
            return Row.of(completion, value["goal"], value.get("history"))
    raise InputError('a sample comes without its goal; give {"goal": "...", "history": ["...", ...]} with it.')


def text_of(completion: Any) -> str:
    """A completion's text if it is a string, else the text of the assistant's last message: its text parts, joined.

    A message whose content is null, as with a tool call, has no text. Raises InputError for a completion of
    another kind, without a message of the assistant, or whose message has no content.

    >>> text_of([{"role": "assistant", "content": [{"type": "text", "text": "1. Pour"}]}, {"role": "tool"}])
    '1. Pour'
    """
    if isinstance(completion, str):
        return completion
    turns = completion if isinstance(completion, list | tuple) else []
    own = [turn for turn in turns if isinstance(turn, Mapping) and turn.get("role", "assistant") == "assistant"]
    if not own:
        problem = f"the completion is {completion!r:.160}"
        raise InputError(f"{problem}; give a text, or messages of which one is the assistant's.")
    if "content" not in own[-1]:
        raise InputError("the completion's last message of the assistant has no 'content'; give it, null for no text.")
    content = own[-1]["content"]
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list | tuple) and all(isinstance(part, Mapping) for part in content):
        texts = [part.get("text") or "" for part in content if part.get("type", "text") in _TEXT]
        if all(isinstance(text, str) for text in texts):
            return "".join(texts)
    raise InputError(f"the completion's content is {content!r:.160}; give a text or a list of parts.")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # no JSON, a number of thousands of digits, or too deep
        return text


class RewardSource:
    """A scorer as the trainers call it: by the batch, or one sample at a time.

    Calls of one sample that come within `window` seconds are scored together. Safe to share between threads and event
    loops.
    """

    def __init__(self, scorer: Scorer, *, window: float = 0.005) -> None:
        self._scorer = scorer
        self._single: ThreadBatcher[Row | InputError, Reward] = ThreadBatcher(self.score, window=window)
        self._lock = threading.Lock()
        # Rows that had no reward so far.
        self.failures = 0
        self._rewarded = False

    def score(self, rows: Sequence[Row | InputError]) -> list[Outcome]:
        """The outcome of each row; that of a row that could not be read is its InputError, which is logged.

        A completion that holds no steps is scored as an empty plan.
        """
        readable = [row for row in rows if isinstance(row, Row)]
        plans = [Completion.of(row.completion).steps for row in readable]
        scored = iter(score_plans(self._scorer, [(row.goal, row.history) for row in readable], plans))
        outcomes: list[Outcome] = [next(scored) if isinstance(row, Row) else row for row in rows]
        for row in rows:
            if isinstance(row, InputError):
                _LOG.warning("no reward: %s", row)
        failures = sum(not isinstance(outcome, Reward) for outcome in outcomes)
        with self._lock:
            self.failures += failures
            self._rewarded = self._rewarded or failures < len(outcomes)
        return outcomes

    def score_or_none(self, rows: Sequence[Row | InputError]) -> list[Reward | None]:
        """The reward of each row, None where there is none. Raises InputError as `or_none`."""
        earlier = self._rewarded  # before `score`, which counts the rewards of this batch too
        return or_none(self.score(rows), earlier=earlier)

    def score_each(self, rows: Sequence[Row | InputError]) -> list[Reward]:
        """The rewards of a caller's few rows, computed together with those of other threads. Raises as `score`."""
        return self._single.submit(rows).result()

    async def score_one(self, row: Row | InputError) -> Reward:
        """The reward of one row, computed together with those that others await. Raises as `score`."""
        [reward] = await asyncio.wrap_future(self._single.submit([row]))
        return reward


_VARIABLES = {
    "corpus": "RECIPE_CORPUS",
    "reward_config": "RECIPE_REWARD_CONFIG",
    "service": "RECIPE_SERVICE",
    "token": "RECIPE_TOKEN",
}
_opened: dict[tuple[str, ...], RewardSource] = {}
_opening = threading.Lock()


def reward_source(settings: Mapping[str, Any] | None = None) -> RewardSource:
    """The source that the settings name, opened once in a process.

    Settings are `corpus` (a folder) with `reward_config` (a TOML file; the paper's reward without one), or
    `service` (an address) with `token`; what is left out is read from RECIPE_CORPUS, RECIPE_REWARD_CONFIG,
    RECIPE_SERVICE and RECIPE_TOKEN, unless the settings name the other of corpus and service. Other keys are left
    alone. Raises ConfigError where neither or both of corpus and service are named.
    """
    environment = {name: os.environ.get(variable, "") for name, variable in _VARIABLES.items()}
    named = {name: str((settings or {}).get(name) or "") for name in _VARIABLES}
    if not named["corpus"] and not named["service"]:
        named |= {name: environment[name] for name in ("corpus", "service")}
    if bool(named["corpus"]) == bool(named["service"]):
        problem = "neither a corpus nor a service is named"
        if named["corpus"]:
            problem = "both a corpus and a service are named"
        raise ConfigError(f"{problem}; set one of {_VARIABLES['corpus']} and {_VARIABLES['service']}.")
    further = "token" if named["service"] else "reward_config"
    named[further] = named[further] or environment[further]
    key = tuple(named.values())
    # Trainers call from several threads at once, and a corpus takes seconds to open.
    with _opening:
        if key not in _opened:
            _opened[key] = _open(**named)
        return _opened[key]


def _open(corpus: str, reward_config: str, service: str, token: str) -> RewardSource:
    if service:
        try:
            from recipe.reward.client import ServiceClient  # noqa: PLC0415  # a local verifier needs none of its packages
        except ModuleNotFoundError as error:
            if error.name == "httpx2":
                raise MissingExtra("the client of the reward service", "client") from None
            raise
        client = ServiceClient(service, token or None)
        atexit.register(client.close)
        return RewardSource(client)
    config = load_config(Path(reward_config), RewardConfig) if reward_config else RewardConfig()
    return RewardSource(Verifier(Corpus.open(corpus), config))
