"""`open_model` opens a local checkpoint, an endpoint or a replay, with cache, ledger and budget around it."""

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from recipe.artifacts import JsonObject, fingerprint
from recipe.config.models import FrameConfig, ModelConfig, SamplingConfig
from recipe.errors import InputError
from recipe.models.costs import Budget, Ledger, Prices
from recipe.models.protocol import (
    Answer,
    Engine,
    ModelRequest,
    OnAnswer,
    Refusal,
    Refusals,
    ReplayEngine,
    Stopped,
    WrittenPieces,
    digest,
    without_arrays,
)
from recipe.models.sampling import Decoding, decoding_of
from recipe.models.smollm2 import NAME, smollm2_identity
from recipe.models.store import AnswerStore
from recipe.progress import LOADING, SILENT, Progress
from recipe.prompting import remembered_prompt
from recipe.types import Frames

Name = Callable[[Frames], str]
Fields = Callable[[ModelRequest, Name], object]
"""All that makes the answer to a request, as JSON can hold it, with a name in place of each clip."""
# Requests of a group where tokens are bounded.
_GROUP = 32


def open_model(config: ModelConfig, *, frames: FrameConfig | None = None, budget: Budget | None = None) -> "Model":
    """The model that the settings name: a folder or hub id on this machine, a model at an endpoint, or a replay.

    `frames` may bound the area of frames that it is shown; `budget` is shared with other models, in place of the bounds
    in the settings. The model is a context manager. Raises InputError for settings that cannot be used.
    """
    engine: Engine
    fields: Fields
    decoding: Callable[[SamplingConfig], Decoding]
    note: JsonObject
    ledger = Ledger(Prices(config.price_in, config.price_out))
    if config.replay and config.cache is None:
        raise InputError("--replay answers from the cache alone; give its folder with --cache.")
    if config.endpoint is None and (unknown := sorted({*config.extra_body} - {"chat_template_kwargs"})):
        raise InputError(f"model.extra_body holds {unknown[0]!r}, which needs an endpoint; give one, or leave it out.")
    if (endpoint := config.endpoint) is not None:
        from recipe.models.endpoint.engine import EndpointEngine  # noqa: PLC0415 - an extra of its own
        from recipe.models.endpoint.wire import answer_fields  # noqa: PLC0415

        if frames is not None:
            config = config.model_copy(update={"max_pixels": frames.max_pixels})
        identity: JsonObject = config.model_dump(include={"model", "clips", "jpeg_quality"})
        if config.extra_body:
            identity["extra_body"] = config.extra_body
        decoding = functools.partial(decoding_of, extra_body=config.extra_body)
        decoding(SamplingConfig())  # refuses a field that is no number
        engine = ReplayEngine({}) if config.replay else EndpointEngine(config, ledger)
        fields = functools.partial(answer_fields, config=config)
        note = {"model": config.model, "url": endpoint.rstrip("/")}
    else:
        identity = _model_identity(
            config.model, config.revision, None if config.cache is None else AnswerStore(config.cache)
        )
        if config.extra_body:
            identity = identity | {"extra_body": config.extra_body}
        if config.engine == "vllm":  # other random numbers
            identity |= {"engine": "vllm", "structured": config.structured}
        if config.replay:
            engine = ReplayEngine({})
        elif config.engine == "vllm":
            LOADING.info("loading model %r ...", config.model)
            from recipe.models.vllm import VllmEngine  # noqa: PLC0415 - an extra of its own

            engine = VllmEngine(config, frames)
        else:
            LOADING.info("loading model %r ...", config.model)
            from recipe.models.local import LocalEngine  # noqa: PLC0415 - loads torch

            template = config.extra_body.get("chat_template_kwargs")
            engine = LocalEngine(config.model, config.revision, config.device, frames, template)
        fields, note = functools.partial(_local_fields, identity=identity), {}
        decoding = functools.partial(decoding_of, checkpoint=functools.partial(_own_sampling, config))
    budget = budget or Budget(config.max_calls, config.max_tokens_total)
    around: dict[str, Any] = {"identity": identity, "note": note, "ledger": ledger, "budget": budget}
    model = Model(engine, fields, config.cache, decoding=decoding, **around)
    if endpoint is None:  # of a replay, too, which reads the folder only
        model.prompt = remembered_prompt(config.model)
    return model


def _own_sampling(config: ModelConfig) -> Mapping[str, float]:
    """What the checkpoint's generation_config.json sets; needs no weights."""
    from recipe.models.checkpoints import sampling_settings  # noqa: PLC0415 - loads torch

    return sampling_settings(config.model, config.revision)


def _model_identity(name: str, revision: str | None, store: AnswerStore | None) -> JsonObject:
    """The identity of a local model: its hub id and revision, the hash of its folder's files, which may be replaced, or
    the package of the named base.
    """
    if name == NAME:
        return dict(smollm2_identity())
    folder = Path(name)
    if store is None or not folder.is_dir():
        return {"model": name, "revision": revision}
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    return {"sha256": fingerprint({path.name: store.sha256(path) for path in files})}


def _local_fields(request: ModelRequest, name: Name, identity: Mapping[str, object]) -> object:
    """All that makes the answer of a model on this machine, but for its decoding card."""
    fields: JsonObject = {
        "engine": dict(identity),
        "messages": without_arrays(request.chat, name),
        "seed": request.sampling.seed,
    }
    optional = {
        "schema": request.schema,
        "logprobs": request.logprobs or None,
    }
    fields |= {name: value for name, value in optional.items() if value is not None}
    return [fingerprint(fields), request.sample]


class Model(Engine):
    """An engine with a cache of answers, a ledger and a budget around it; safe to share between threads.

    An answer is kept the moment it arrives, under the fingerprint of all that makes it. It is never asked for again:
    not by the next run after a kill, not by another thread at the same time, and not twice in one call. Refusals are
    not kept. With a cache, requests are asked as far as the budget goes, because the next run goes on from there;
    without one, nothing is asked where the calls do not suffice for all.
    """

    def __init__(
        self,
        engine: Engine,
        fields: Fields | None = None,
        cache: Path | None = None,
        *,
        identity: JsonObject | None = None,
        decoding: Callable[[SamplingConfig], Decoding] = decoding_of,
        note: JsonObject | None = None,
        ledger: Ledger | None = None,
        budget: Budget | None = None,
    ) -> None:
        """`identity` tells the model from others, and `decoding` makes the card that a request asks for; `note` is
        stored with each answer.
        """
        self.engine, self.identity, self.prompt = engine, identity or {}, engine.prompt
        self.decoding = functools.cache(decoding)
        self.reads_video = engine.reads_video
        self.ledger, self.budget = ledger or Ledger(), budget or Budget()
        self.store = None if cache is None else AnswerStore(cache)
        self._fields = fields or functools.partial(_local_fields, identity=self.identity)
        self._note = note or {}
        self._lock, self._under_way = threading.Lock(), dict[str, threading.Event]()

    def answer(
        self,
        requests: Sequence[ModelRequest],
        progress: Progress = SILENT,
        *,
        on_answer: OnAnswer | None = None,
        refusals: Refusals = "return",
    ) -> list[Answer | Refusal]:
        """As the engine does. Raises BudgetSpent, what the engine raises, and OSError where the cache cannot grow."""
        if self.store is None:
            return self._ask(requests, [None] * len(requests), progress, on_answer, refusals)
        name = functools.cache(digest)
        keys = [self.key(request, name) for request in requests]
        places: dict[str, list[int]] = {}
        for place, key in enumerate(keys):
            places.setdefault(key, []).append(place)
        outcomes: dict[str, Answer | Refusal] = {}
        waiting, paid = list(places), set[str]()
        while waiting:
            # Each key is asked for by one thread; the others wait for the event that ends its call.
            done = threading.Event()
            with self._lock:
                others = {key: self._under_way[key] for key in waiting if key in self._under_way}
                own = [key for key in waiting if key not in others]
                self._under_way |= dict.fromkeys(own, done)
            try:
                # After the claim: what another thread paid for is in the store before it gives up its claim.
                for key in own:
                    if (known := self.store.answer(key)) is not None:
                        outcomes[key] = known
                asking = [key for key in own if key not in outcomes]
                if asking:
                    # A request of this form was answered before, so that a refusal concerns its own chat.
                    settled: Refusals = "return" if refusals == "raise if all" and outcomes else refusals
                    firsts = [places[key][0] for key in asking]
                    new = [requests[place] for place in firsts]
                    report: OnAnswer | None = None
                    if on_answer is not None:
                        report = lambda at, answer, firsts=firsts: on_answer(firsts[at], answer)  # noqa: E731
                    outcomes |= zip(asking, self._ask(new, asking, progress, report, settled), strict=True)
                    paid.update(asking)
            finally:
                with self._lock:
                    for key in own:
                        del self._under_way[key]
                done.set()
            for event in others.values():
                event.wait()
            waiting = [key for key in waiting if key not in outcomes]
        self.store.flush()

        # Equal requests in one call pay once, and the others count as cached.
        placed: list[Answer | Refusal] = []
        for place, key in enumerate(keys):
            outcome = outcomes[key]
            if isinstance(outcome, Answer) and key in paid:
                paid.remove(key)
            elif isinstance(outcome, Answer):
                outcome = outcome._replace(cached=True)
                self.ledger.add(outcome)
                if on_answer:
                    on_answer(place, outcome)
            placed.append(outcome)
        return placed

    def stream_all(self, requests: Sequence[ModelRequest], stopped: Stopped = lambda _: False) -> WrittenPieces:
        """As the engine does; an answer in the cache comes in one piece, and one that ends is kept."""
        keys = [None if self.store is None else self.key(request) for request in requests]
        asking = []
        for place, key in enumerate(keys):
            known = None if self.store is None or key is None else self.store.answer(key)
            if known is None:
                asking.append(place)
            else:
                self.ledger.add(known)
                yield place, known.text
                yield place, known
        if not asking:
            return
        # All or none, also with a cache: a stream that lacks one of its plans is of no use to whoever reads it.
        self.budget.reserve(len(asking), whole=True)
        paid: list[Answer] = []
        try:
            engine = self.engine.stream_all([requests[place] for place in asking], lambda at: stopped(asking[at]))
            with closing(engine) as written:
                for at, piece in written:
                    if isinstance(piece, Answer):
                        paid.append(piece)
                        self._keep(requests[asking[at]], keys[asking[at]], piece)
                    yield asking[at], piece
        finally:
            self.budget.settle(len(asking), paid)

    def key(self, request: ModelRequest, name: Name = digest) -> str:
        """The fingerprint under which the answer to a request is kept; a `content` holds its own decoding card."""
        if request.content is not None:
            return fingerprint(request.content)
        return fingerprint([self._fields(request, name), self.decoding(request.sampling).settings()])

    def _ask(
        self,
        requests: Sequence[ModelRequest],
        keys: Sequence[str | None],
        progress: Progress,
        on_answer: OnAnswer | None,
        refusals: Refusals,
    ) -> list[Answer | Refusal]:
        """Ask the engine within the budget, and keep each answer as it arrives."""
        outcomes: list[Answer | Refusal] = []
        # The tokens of an answer are known only once it has come, so that their bound is checked group by group.
        group = len(requests) if self.budget.tokens is None or self.store is None else _GROUP
        while len(outcomes) < len(requests):
            start = len(outcomes)
            wanted = min(group, len(requests) - start)
            allowed = self.budget.reserve(wanted, whole=self.store is None)
            paid: list[Answer] = []

            def receive(place: int, answer: Answer, start: int = start, paid: list[Answer] = paid) -> None:
                paid.append(answer)
                self._keep(requests[start + place], keys[start + place], answer)
                if on_answer:
                    on_answer(start + place, answer)

            try:
                allowed_requests = requests[start : start + allowed]
                outcomes += self.engine.answer(allowed_requests, progress, on_answer=receive, refusals=refusals)
            finally:  # after Ctrl-C as well: what arrived was paid for
                self.budget.settle(allowed, paid)
        return outcomes

    def _keep(self, request: ModelRequest, key: str | None, answer: Answer) -> None:
        self.ledger.add(answer)
        if self.store is not None and key is not None:
            kept = answer._asdict() | {"decoding": answer.decoding and answer.decoding.settings()}
            self.store.keep(key, kept | self._note | (request.note or {}))

    def __exit__(self, *raised: Any) -> None:
        try:
            self.engine.__exit__(*raised)
        finally:
            if self.store is not None:
                self.store.flush()
