"""Encoders adapted on a corpus, without labels: the same step is recognised in other words.

Two narrations of one activity say many of its steps in words of their own. Two segments are taken for one step where

* each is the other's nearest in its narration, counted from what it has in common with narrations of anything else;
* they lie on the best monotone matching of the two narrations (`recipe.alignment.reference.free_matching`);
* the words of one are not those of the other.

A map of the base encoder's vectors then learns to tell each pair from the other segments of its two narrations:

    x -> (I + U V) (I - m m' / |m|^2) x,    loss = InfoNCE + keep |U V x|^2

m is the corpus's mean vector, which says nothing of a text. U V is of low rank and starts at 0. The map becomes a
module of the model's folder, so that the adapted encoder is a sentence-transformers model like any other.

A fifth of the narrations is held out: their pairs decide whether the encoder may be used.
"""

import hashlib
import shutil
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import huggingface_hub
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch.nn import functional

from recipe.alignment.backends import Float32, Int64
from recipe.alignment.reference import free_matching
from recipe.artifacts import atomic_path, read_json, write_json
from recipe.config import AdaptationConfig, EncoderConfig
from recipe.corpus.encoders import EncoderIdentity, open_encoder
from recipe.corpus.near_copies import words_of
from recipe.corpus.sentence_transformer import MODEL_FILES, packaged_minilm
from recipe.corpus.store import Corpus
from recipe.errors import ComputeError, ConfigError, InputError, RecipeError
from recipe.progress import SILENT, Progress
from recipe.types import Hit, Narration

RECORD = "adaptation.json"
"""In the folder of an adapted encoder: what it was made from, and how it did on the narrations that were held out."""
FEWEST_NARRATIONS, FEWEST_PAIRS = 20, 100
"""Below these, a map of vectors learns the narrations by heart."""
FALSE_POSITIVES = 0.05
"""The share of pairs of other segments above the similarity from which on a pair counts as found."""

_HELD_OUT = 5
"""One narration in so many is held out."""
_OTHERS = 12
"""Random narrations that tell what a segment has in common with narrations of anything else."""
_CENTRAL = 8
"""Segments nearest to a narration's mean, by which its nearest narrations are searched."""
_WIDER = 6
"""So many times the partners are searched for, because some of those found are on the other side of the split."""
_COPIED = 0.75
"""Share of the shorter segment's words in the longer one from which on a pair says the same words."""
_DOUBTFUL = 0.7
"""Share of a pair's similarity from which on a third segment may be the same step and is no negative."""
_NEGATIVES = 12
"""Other segments of its two narrations that a pair is told from: those that are most like it."""
_ANYWHERE = 256
"""Segments of any narration that the pairs of a batch are told from, too."""
_BATCH, _LEARNING_RATE = 256, 2e-3
_PAIRS_A_SECOND, _COMPARED_A_SECOND = 1000, 300
"""Pairs of segments seen by training, and pairs of narrations compared, on one core of 2020."""

_DEFAULTS = AdaptationConfig()


class NarrationVectors(Protocol):
    """What a corpus is asked for; `recipe.corpus.store.Corpus` is one."""

    def __len__(self) -> int: ...

    def narration(self, index: int, /) -> Narration: ...

    def embeddings(self, index: int, /) -> Float32: ...

    def search_batch(self, queries: Sequence[Float32], k: int) -> list[list[Hit]]: ...


class StepPairs(NamedTuple):
    """Segments of two narrations that are taken for one step, and what each pair is told from; rows of `vectors`."""

    pairs: Int64
    """[n, 2]."""
    negatives: Int64
    """[n, 12], segments of the same two narrations, the most like the pair first; some recur where there are few."""


class Gate(NamedTuple):
    """The share of held-out pairs that are found at 5% false ones, before and after."""

    pairs: int
    before: float
    after: float


@dataclass(frozen=True)
class Adaptation:
    """An encoder that was adapted, as `adaptation.json` records it."""

    corpus: str
    """The corpus's id."""
    base: EncoderIdentity
    settings: dict[str, Any]
    narrations: int
    compared: int
    """Pairs of narrations."""
    pairs: int
    """Pairs of segments that the map learned from."""
    gate: Gate


class Segments:
    """The segments of some narrations of a corpus: centred unit vectors, texts, and floors of similarity."""

    def __init__(
        self, corpus: NarrationVectors, numbers: Sequence[int], seed: int, progress: Progress = SILENT
    ) -> None:
        raw = [corpus.embeddings(number) for number in numbers]
        narrations = [corpus.narration(number) for number in numbers]
        self.numbers = list(numbers)
        self.titles = [" ".join((narration.title or "").split()).casefold() for narration in narrations]
        self.texts = [segment.text for narration in narrations for segment in narration.segments]
        self.offsets: Int64 = np.cumsum([0, *map(len, raw)])
        self.raw: Float32 = np.concatenate(raw)
        self.mean: Float32 = self.raw.mean(axis=0)
        self.vectors = unit(self.raw - self.mean)
        self._words = [words_of(text) for text in self.texts]

        # What a narration of anything else says that is most like the segment, on average: high for small talk.
        others = np.random.default_rng(seed).choice(len(raw), min(_OTHERS, len(raw)), replace=False)
        sums, counts = np.zeros((2, len(self.texts)), np.float32)
        with progress.task("comparing with other narrations", len(others)) as advance:
            for other in others:
                own = self.span(other)
                nearest = (self.vectors @ self.vectors[own].T).max(axis=1)
                nearest[own] = 0.0  # not with itself
                sums += nearest
                counts += 1.0
                counts[own] -= 1.0
                advance(1)
        self.floors = np.asarray(sums / np.maximum(counts, 1.0), dtype=np.float32)

    def span(self, narration: int) -> slice:
        """The rows of a narration's segments."""
        return slice(int(self.offsets[narration]), int(self.offsets[narration + 1]))

    def central(self, narration: int) -> Float32:
        """The vectors, not centred, of the segments that are nearest to the narration's mean, in their order."""
        rows = self.vectors[self.span(narration)]
        near = rows @ rows.mean(axis=0) - self.floors[self.span(narration)]
        chosen = np.sort(np.argsort(-near, kind="stable")[:_CENTRAL])
        return self.raw[self.span(narration)][chosen]

    def same_steps(self, first: int, second: int) -> list[tuple[int, int]]:
        """The pairs of segments, as rows, that two narrations of one activity say of one step in other words."""
        here, there = self.span(first), self.span(second)
        floors = np.maximum(self.floors[here][:, None], self.floors[there][None, :])
        above = self.vectors[here] @ self.vectors[there].T - floors
        similar = np.clip(above / np.maximum(1.0 - floors, 1e-6), 0.0, 1.0)
        nearest, back = similar.argmax(axis=1), similar.argmax(axis=0)
        pairs = []
        for i, k in free_matching(similar).path:
            if i is None or k is None or nearest[i] != k or back[k] != i:
                continue
            row, column = here.start + i, there.start + k
            shared = len(self._words[row] & self._words[column])
            if shared < _COPIED * min(len(self._words[row]), len(self._words[column])):
                pairs.append((row, column))
        return pairs

    def negatives(self, first: int, second: int, pair: tuple[int, int]) -> Int64:
        """Rows of the two narrations' segments that are hardly another wording of the pair's step, the nearest first.

        They are 12, of which some recur where there are few; or none where there are none.
        """
        rows = np.r_[self.span(first), self.span(second)]
        here, there = self.vectors[list(pair)]
        likeness = np.maximum(self.vectors[rows] @ here, self.vectors[rows] @ there)
        # The pair's own segments are like themselves, and so left out, too.
        others = np.flatnonzero(likeness < _DOUBTFUL * max(float(here @ there), 0.0))
        nearest_first = others[np.argsort(-likeness[others], kind="stable")]
        return np.asarray(np.resize(rows[nearest_first], _NEGATIVES if len(others) else 0))


def unit(vectors: Float32) -> Float32:
    """Rows of unit norm; a row of zeros stays."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12), dtype=np.float32)


def partners(
    corpus: NarrationVectors, segments: Segments, count: int, side: NDArray[np.bool_]
) -> list[tuple[int, int]]:
    """Pairs of narrations of one activity, each once: of one title, else near each other; both on one side of a split.

    `side` [n] says for each narration on which side it is.
    """
    places = {number: place for place, number in enumerate(segments.numbers)}
    titled: dict[tuple[str, bool], list[int]] = defaultdict(list)
    for place, title in enumerate(segments.titles):
        if title:
            titled[title, bool(side[place])].append(place)
    queries = [segments.central(place) for place in range(len(side))]
    hits = corpus.search_batch(queries, min(len(corpus), _WIDER * (count + 1)))
    pairs: set[tuple[int, int]] = set()
    for place, nearest in enumerate(hits):
        near = [places[hit.narration] for hit in nearest if hit.narration in places]
        alike = titled.get((segments.titles[place], bool(side[place])), [place])
        # Those that follow in the list, so that all of a title are compared with equally many.
        turn = alike.index(place)
        chosen = [other for other in (*alike[turn + 1 :], *alike[:turn], *near) if side[other] == side[place]]
        chosen = [other for other in dict.fromkeys(chosen) if other != place][:count]
        pairs.update((min(place, other), max(place, other)) for other in chosen)
    return sorted(pairs)


def step_pairs(segments: Segments, compared: Sequence[tuple[int, int]], progress: Progress = SILENT) -> StepPairs:
    """What pairs of narrations say of the same steps, and the negatives of each pair."""
    pairs: list[tuple[int, int]] = []
    negatives: list[Int64] = []
    with progress.task("comparing narrations", len(compared)) as advance:
        for first, second in compared:
            for pair in segments.same_steps(first, second):
                others = segments.negatives(first, second, pair)
                if len(others):
                    pairs.append(pair)
                    negatives.append(others)
            advance(1)
    rows = np.array(pairs, np.int64).reshape(-1, 2)
    return StepPairs(rows, np.array(negatives, np.int64).reshape(-1, _NEGATIVES))


def learned_map(
    segments: Segments, learned: StepPairs, config: AdaptationConfig, progress: Progress = SILENT
) -> NDArray[np.float64]:
    """The map of vectors that tells each pair from its negatives, float64 [d, d]. Raises ComputeError."""
    size = segments.raw.shape[1]
    direction = segments.mean.astype(np.float64) / np.linalg.norm(segments.mean)
    without_mean = np.eye(size) - np.outer(direction, direction)
    generator = torch.Generator().manual_seed(config.seed)
    wider = torch.zeros(size, config.rank, requires_grad=True)
    narrower = (torch.randn(config.rank, size, generator=generator) / size**0.5).requires_grad_(True)
    optimizer = torch.optim.Adam([wider, narrower], lr=_LEARNING_RATE)
    vectors = torch.from_numpy(unit((segments.raw @ without_mean).astype(np.float32)))
    rows = torch.from_numpy(np.concatenate([learned.pairs, learned.negatives], axis=1))
    steps = config.epochs * -(-len(rows) // _BATCH)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    with progress.task("learning from pairs", config.epochs * len(rows)) as advance:
        for _ in range(config.epochs):
            for batch in torch.randperm(len(rows), generator=generator).split(_BATCH):
                # Segments of any narration keep activities apart, which the two narrations of a pair say nothing of.
                drawn = torch.randint(len(vectors), (_ANYWHERE,), generator=generator)
                here = vectors[torch.cat([rows[batch].ravel(), drawn])]
                moved = here @ narrower.T @ wider.T
                mapped = functional.normalize(here + moved, dim=-1)
                first, second, *others = mapped[:-_ANYWHERE].view(*rows[batch].shape, -1).unbind(1)
                near, far = torch.stack(others, dim=1), mapped[-_ANYWHERE:]
                similar = [(first * second).sum(-1, keepdim=True)]
                for side in (first, second):
                    similar += [torch.einsum("bd,bnd->bn", side, near), side @ far.T]
                targets = torch.zeros(len(batch), dtype=torch.long)
                loss = functional.cross_entropy(torch.cat(similar, dim=1) / config.temperature, targets)
                loss = loss + config.keep * moved.square().sum(-1).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                advance(len(batch))
    added = (wider.detach().double() @ narrower.detach().double()).numpy()
    if not np.isfinite(added).all():
        raise ComputeError("the map of vectors is not finite after training; no encoder was written.")
    return np.asarray((np.eye(size) + added) @ without_mean)


def recall(vectors: Float32, pairs: StepPairs) -> float:
    """The share of pairs whose similarity only 5% of all pairs have with the nearest of their negatives."""
    first, second = vectors[pairs.pairs[:, 0]], vectors[pairs.pairs[:, 1]]
    others = [np.einsum("nd,nkd->nk", side, vectors[pairs.negatives]).max(axis=1) for side in (first, second)]
    threshold = np.quantile(np.maximum(*others), 1.0 - FALSE_POSITIVES)
    return float(((first * second).sum(axis=1) > threshold).mean())


def held_out(segments: Segments, corpus: NarrationVectors, seed: int) -> NDArray[np.bool_]:
    """Whether each narration is held out, by its video's id: the same ones whatever else the corpus holds."""
    ids = (corpus.narration(number).video_id for number in segments.numbers)
    digests = (hashlib.sha256(f"{seed} {video_id}".encode(errors="replace")).digest() for video_id in ids)
    return np.array([digest[0] % _HELD_OUT == 0 for digest in digests])


def cost(corpus: NarrationVectors, config: AdaptationConfig) -> str:
    """What adapting takes, in a sentence, before it begins."""
    narrations = min(len(corpus), config.narrations)
    compared = narrations * config.partners
    seconds = compared / _COMPARED_A_SECOND + 3 * compared * config.epochs / _PAIRS_A_SECOND
    return (
        f"{narrations:,} narrations are compared with up to {config.partners} others each; "
        f"about {max(1, round(seconds / 60))} min on one core, and nothing is written before the end."
    )


def adapt_encoder(
    corpus: Corpus, output: Path, config: AdaptationConfig = _DEFAULTS, progress: Progress = SILENT
) -> Adaptation:
    """Write the corpus's encoder, adapted on the corpus, to the folder `output`.

    Raises ConfigError for an encoder that cannot be adapted, InputError for a folder that is not empty and a corpus
    that has too few narrations, activities or pairs, and ComputeError where the held-out narrations are told worse
    than before; the folder is then not written.
    """
    base = corpus.manifest["encoder"]
    model = _model_folder(base)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError.at(output, "the path is taken, and a corpus may be built with what is there", "choose another")
    if len(corpus) < FEWEST_NARRATIONS:
        raise InputError(
            f"{corpus.folder}: an encoder is adapted on {FEWEST_NARRATIONS} narrations or more, and the corpus has "
            f"{len(corpus)}; add narrations."
        )
    chosen = np.random.default_rng(config.seed).permutation(len(corpus))[: config.narrations]
    segments = Segments(corpus, np.sort(chosen).tolist(), config.seed, progress)
    if len(set(segments.titles)) == 1 and segments.titles[0]:
        raise InputError(
            f"{corpus.folder}: all narrations have the title {segments.titles[0]!r}, and one activity does not tell "
            "its steps from those of others; add narrations of other activities."
        )

    side = held_out(segments, corpus, config.seed)
    compared = partners(corpus, segments, config.partners, side)
    learned, kept = (
        step_pairs(segments, [pair for pair in compared if side[pair[0]] == held], progress) for held in (False, True)
    )
    if len(learned.pairs) < FEWEST_PAIRS or not len(kept.pairs):
        raise InputError(
            f"{corpus.folder}: only {len(learned.pairs)} pairs of segments, and {len(kept.pairs)} held-out ones, say "
            f"the same step in other words, where {FEWEST_PAIRS} and 1 are needed; add narrations of them."
        )
    mapping = learned_map(segments, learned, config, progress)
    after = unit((segments.raw @ mapping.T).astype(np.float32))
    gate = Gate(len(kept.pairs), recall(segments.raw, kept), recall(after, kept))
    if gate.after < gate.before:
        raise ComputeError(
            f"the adapted encoder finds {gate.after:.1%} of the {gate.pairs:,} held-out pairs and its base "
            f"{gate.before:.1%}; no encoder was written: keep the base, or add narrations."
        )

    settings = config.model_dump()
    record = Adaptation(
        corpus.manifest["id"], base, settings, len(segments.numbers), len(compared), len(learned.pairs), gate
    )
    with atomic_path(output) as partial:
        _write_model(partial, model, mapping)
        _require_same(partial, base, segments, after)
        write_json(partial / RECORD, {"format": 1, **vars(record), "gate": gate._asdict()})
    return record


def _model_folder(recorded: EncoderIdentity) -> Path:
    """Where the files of a corpus's encoder lie. Raises ConfigError for one that cannot take a map of vectors."""
    name = recorded["name"]
    problem = ""
    if name.startswith("hash:"):
        problem = "has no model"
    elif recorded["task"] is not None:
        problem = f"has the task {recorded['task']!r}, whose adapter is applied beside the model"
    folder = packaged_minilm() if name == "minilm" else Path(name)
    if not problem:
        # Opened first: what cannot be loaded is said there, and a model of the hub is then in the local cache.
        full = open_encoder(EncoderConfig(name=name, revision=recorded["revision"])).identity["dimension"]
        if full != recorded["dimension"]:
            problem = f"gives {full} dimensions, of which the corpus keeps {recorded['dimension']}"
        elif not folder.is_dir():
            repository = name if "/" in name else f"sentence-transformers/{name}"
            snapshot = huggingface_hub.snapshot_download(
                repository, revision=recorded["revision"], local_files_only=True
            )
            folder = Path(snapshot)
        if not problem and not (folder / "modules.json").is_file():
            problem = "has no modules.json"
    if problem:
        raise ConfigError(
            f"encoder {name!r} {problem}, so that it cannot be adapted; build the corpus with `minilm`, or another "
            "sentence-transformers model without a task, in all its dimensions."
        )
    return folder


def _write_model(target: Path, model: Path, mapping: NDArray[np.float64]) -> None:
    """A copy of a sentence-transformers folder with a map of vectors and a norm behind its modules."""
    for file in sorted(path for path in model.rglob("*") if path.is_file() and path.suffix in MODEL_FILES):
        copy = target / file.relative_to(model)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    modules = read_json(model / "modules.json")
    dense = f"{len(modules)}_Dense"
    for kind, path in (("Dense", dense), ("Normalize", f"{len(modules) + 1}_Normalize")):
        number = len(modules)
        modules.append(
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        )
    write_json(target / "modules.json", modules)
    (target / dense).mkdir()
    settings = {
        "in_features": len(mapping),
        "out_features": len(mapping),
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    write_json(target / dense / "config.json", settings)
    save_file({"linear.weight": torch.from_numpy(mapping).float().contiguous()}, target / dense / "model.safetensors")


def _require_same(folder: Path, base: EncoderIdentity, segments: Segments, after: Float32) -> None:
    """Encode some segments by the folder and compare. Raises RecipeError where it gives other vectors."""
    rows = np.linspace(0, len(segments.texts) - 1, 16).astype(int)
    encoder = open_encoder(EncoderConfig(name=str(folder), dtype=base["dtype"]), emulate=True)
    again = encoder.encode([segments.texts[row] for row in rows])
    if (deviation := float(1.0 - (again * after[rows]).sum(axis=1).min())) > 0.01:
        raise RecipeError(
            f"the adapted folder gives other vectors than were learned (1 - cos {deviation:.1e}); no encoder was "
            f"written: encoder {base['name']!r} may compute more than its modules say."
        )
