"""A corpus that was published and pulled is the same corpus; what is damaged, half sent or hostile is refused."""

import hashlib
import http.server
import os
import shutil
import threading
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from indexed import unit, write_corpus
from tests.corpus.conftest import digest, rewrite_manifest

from recipe.corpus.index import Index
from recipe.corpus.layout import MANIFEST, open_manifest
from recipe.corpus.release import publish_corpus, pull_corpus, read_checksums
from recipe.corpus.store import Corpus
from recipe.errors import CorpusError, InputError

QUERY = unit(np.random.default_rng(1), 3, 16)
SECOND = "shards/00001/embeddings.npy"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three shards, beside what a corpus folder may hold and a release must not."""
    generator = np.random.default_rng(0)
    vectors = [unit(generator, int(rows), 16) for rows in generator.integers(1, 9, 30)]
    folder = write_corpus(tmp_path_factory.mktemp("corpus") / "mine", vectors, shard_size=12)
    (folder / "inputs.json").write_text('{"files": [{"path": "/home/someone/captions.jsonl"}]}')
    (folder / ".token").write_text("secret")
    (folder / "notes.txt").write_text("private")
    return folder


@pytest.fixture
def published(corpus: Path, tmp_path: Path) -> Path:
    publish_corpus(corpus, str(tmp_path / "release"))
    return tmp_path / "release"


@pytest.fixture
def store(corpus: Path) -> Iterator[str]:
    """A store in memory, empty at first."""
    system = fsspec.filesystem("memory")
    yield "memory://bucket/mine"
    system.rm("/bucket", recursive=True)


@pytest.mark.thorough
def test_the_hub(corpus: Path, hub: Any, tmp_path: Path) -> None:
    address = "hf://datasets/me/mine"
    with pytest.raises(InputError, match="SHA256SUMS is missing"):
        pull_corpus(address, tmp_path / "pulled")
    first = publish_corpus(corpus, address, licence="cc-by-4.0")
    assert (first.files, set(hub.commits[-1]) - set(hub.commits[-2])) == (21, {"README.md", MANIFEST, "SHA256SUMS"})
    assert b"recipe corpus pull hf://datasets/me/mine" in hub.commits[-1]["README.md"]
    pull_corpus(address, tmp_path / "pulled")
    assert_same(tmp_path / "pulled", corpus)
    commits = len(hub.commits)
    assert publish_corpus(corpus, address, licence="cc-by-4.0").transferred == 0
    assert len(hub.commits) == commits
    other = write_corpus(tmp_path / "other", [unit(np.random.default_rng(5), 4, 16)])
    publish_corpus(other, address)
    assert all("SHA256SUMS" not in files for files in hub.commits[commits:-1])  # half of each is no release
    assert set(hub.commits[-1]) == {".gitattributes", "README.md", MANIFEST, "SHA256SUMS"} | {
        f"shards/{name}" for name in digest(other / "shards")
    }
    pull_corpus(address, tmp_path / "new")
    assert_same(tmp_path / "new", other)
    pull_corpus(address, tmp_path / "earlier", f"{commits - 1:040x}")
    assert_same(tmp_path / "earlier", corpus)


@pytest.fixture
def web(published: Path) -> Iterator[str]:
    """The address of a web server without ranges that has the release."""
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(published.parent))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/{published.name}"
        server.shutdown()
        thread.join()


def assert_same(pulled: Path, corpus: Path) -> None:
    """The same id, files, and scores to the last bit."""
    one, other = Corpus.open(pulled), Corpus.open(corpus)
    assert one.manifest == other.manifest
    assert digest(pulled / "shards") == digest(corpus / "shards")
    assert one.search_vectors(QUERY, 9) == other.search_vectors(QUERY, 9)
    assert one.coverage(QUERY).tobytes() == other.coverage(QUERY).tobytes()
    assert not list(pulled.parent.glob(".*"))


def test_a_folder(corpus: Path, published: Path, tmp_path: Path) -> None:
    pulled = pull_corpus(str(published), tmp_path / "pulled")
    assert_same(tmp_path / "pulled", corpus)
    files = digest(published)
    assert pulled.files == len(files) == 3 * 6 + 3
    sums = read_checksums(files.pop("SHA256SUMS").decode(), "sums")
    assert sums == {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    assert set(files) == {"README.md", MANIFEST} | {f"shards/{file}" for file in digest(corpus / "shards")}
    again = publish_corpus(tmp_path / "pulled", str(tmp_path / "again"))
    assert (again.id, again.transferred) == (pulled.id, pulled.bytes)


def test_a_store_of_objects(corpus: Path, store: str, tmp_path: Path) -> None:
    first, second = publish_corpus(corpus, store), publish_corpus(corpus, store)
    assert (first.transferred, second.transferred) == (first.bytes, 0)
    pull_corpus(store, tmp_path / "pulled")
    assert_same(tmp_path / "pulled", corpus)


def test_the_web(corpus: Path, web: str, tmp_path: Path) -> None:
    part = tmp_path / ".pulled.pull" / f"{SECOND}.part"
    with pytest.raises(InputError, match="SHA256SUMS is missing"):
        pull_corpus(f"{web}/missing", tmp_path / "pulled")
    shutil.copytree(corpus, tmp_path / ".pulled.pull" / "stale")
    part.parent.mkdir(parents=True)
    shutil.copy(tmp_path / "release" / "SHA256SUMS", part.parents[2])
    part.write_bytes((corpus / SECOND).read_bytes()[:700])  # continued where it ends, and without a range
    pull_corpus(web, tmp_path / "pulled")
    shutil.rmtree(tmp_path / "pulled" / "stale")
    assert_same(tmp_path / "pulled", corpus)
    with pytest.raises(InputError, match="web server"):
        publish_corpus(corpus, web)


def test_an_archive(corpus: Path, published: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "mine.zip", "w") as archive:
        for name, data in digest(published).items():
            archive.writestr(name, data)
    pull_corpus(f"zip://::file://{tmp_path / 'mine.zip'}", tmp_path / "pulled")
    assert_same(tmp_path / "pulled", corpus)


@pytest.mark.usefixtures("as_large")
def test_a_pulled_corpus_counts_as_verified(corpus: Path, published: Path, tmp_path: Path) -> None:
    pull_corpus(str(published), tmp_path / "pulled")
    assert Index.open(tmp_path / "pulled").verified
    shutil.copytree(published, tmp_path / "copied")
    assert not Index.open(tmp_path / "copied").verified


@pytest.mark.parametrize("change", ["flip", "lengthen"])
def test_a_damaged_file_is_the_only_one_that_is_pulled_again(
    corpus: Path, published: Path, tmp_path: Path, change: str
) -> None:
    path = published / SECOND
    whole = path.read_bytes()
    path.write_bytes({"flip": whole[:-1] + bytes([whole[-1] ^ 1]), "lengthen": whole + b"x"}[change])
    with pytest.raises(CorpusError, match=SECOND):
        pull_corpus(str(published), tmp_path / "pulled")
    assert not (tmp_path / "pulled").exists()
    path.write_bytes(whole)
    for file in (published / "shards" / "00000").iterdir():
        if (tmp_path / ".pulled.pull" / "shards" / "00000" / file.name).exists():
            file.unlink()  # needed no more
    result = pull_corpus(str(published), tmp_path / "pulled")
    assert 0 < result.transferred < result.bytes
    assert_same(tmp_path / "pulled", corpus)


def test_a_damaged_corpus_is_not_published(corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(corpus, tmp_path / "mine")
    path = tmp_path / "mine" / SECOND
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(CorpusError, match=r"00001.*embeddings\.npy"):
        publish_corpus(tmp_path / "mine", str(tmp_path / "release"))
    with pytest.raises(InputError, match="not finished"):
        pull_corpus(str(tmp_path / "release"), tmp_path / "pulled")
    path.write_bytes(whole)
    result = publish_corpus(tmp_path / "mine", str(tmp_path / "release"))
    assert 0 < result.transferred < result.bytes
    pull_corpus(str(tmp_path / "release"), tmp_path / "pulled")
    assert_same(tmp_path / "pulled", corpus)


def test_files_that_a_release_has_lost_are_sent_again(corpus: Path, published: Path, tmp_path: Path) -> None:
    size = (published / SECOND).stat().st_size
    (published / SECOND).unlink()
    with pytest.raises(InputError, match=SECOND):
        pull_corpus(f"file://{published}", tmp_path / "pulled")
    assert publish_corpus(corpus, str(published)).transferred == size
    pull_corpus(str(published), tmp_path / "pulled")
    assert_same(tmp_path / "pulled", corpus)


def test_the_corpus_itself_is_never_written_to(corpus: Path, tmp_path: Path) -> None:
    before = digest(corpus)
    for target in (corpus, corpus / "release", f"file://{corpus}"):
        with pytest.raises(InputError, match="corpus itself"):
            publish_corpus(corpus, str(target))
    linked = tmp_path / "linked"
    for name in before:
        if name.startswith(("shards", MANIFEST)):
            (linked / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(corpus / name, linked / name)
    publish_corpus(corpus, str(linked))
    assert digest(corpus) == before


def test_targets_that_hold_something_else(corpus: Path, published: Path, tmp_path: Path) -> None:
    other = write_corpus(tmp_path / "other", [unit(np.random.default_rng(5), 4, 16)])
    with pytest.raises(InputError, match=MANIFEST):
        publish_corpus(other, str(published))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").touch()
    with pytest.raises(InputError, match="full"):
        publish_corpus(other, str(tmp_path / "full"))
    with pytest.raises(InputError, match="public"):
        publish_corpus(other, str(tmp_path / "new"), public=True)
    with pytest.raises(InputError, match="nosuch"):
        publish_corpus(other, "nosuch://bucket/x")
    (tmp_path / "other" / "build.json").touch()
    with pytest.raises(CorpusError, match="not finished"):
        publish_corpus(other, str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_a_card_can_be_changed(corpus: Path, published: Path) -> None:
    result = publish_corpus(corpus, str(published), name="Made corpus", licence="cc-by-4.0")
    assert result.transferred == 0
    card = (published / "README.md").read_text()
    front = yaml.safe_load(card.split("---")[1])
    assert (front["pretty_name"], front["license"], front["size_categories"]) == ("Made corpus", "cc-by-4.0", "n<1K")
    assert front["configs"][1] == {"config_name": "segments", "data_files": "shards/*/segments.parquet"}
    manifest = open_manifest(published)
    for fact in (manifest["id"], f"{manifest['segments']:,}", "30", "numbered", "@article"):
        assert fact in card
    publish_corpus(corpus, str(published), licence="For research, see our terms")
    front = yaml.safe_load((published / "README.md").read_text().split("---")[1])
    assert (front["license"], front["license_name"]) == ("other", "For research, see our terms")
    assert not (published / "SHA256SUMS.part").exists()


def test_paths_of_the_machine_are_not_published(corpus: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(corpus, tmp_path / "mine")
    encoder = {**open_manifest(folder)["encoder"], "name": "/home/someone/models/jina-v3", "weights": "0" * 64}
    read = {
        "passed_over_names": {"no narrations": ["/data/a/x.bin", "C:\\data\\y.bin"]},
        "excluded": {"examples": [{"caption": "/ then stir"}]},
    }
    rewrite_manifest(folder, encoder=encoder, read=read)
    built = open_manifest(folder)["id"]
    result = publish_corpus(folder, str(tmp_path / "release"))
    assert result.id != built
    pull_corpus(str(tmp_path / "release"), tmp_path / "pulled")
    held = open_manifest(tmp_path / "pulled")
    assert held["encoder"]["name"] == "jina-v3"
    assert held["read"] == {
        "passed_over_names": {"no narrations": ["x.bin", "y.bin"]},
        "excluded": {"examples": [{"caption": "/ then stir"}]},
    }
    text = b"".join(data for name, data in digest(tmp_path / "release").items() if not name.startswith("shards"))
    assert b"someone" not in text
    assert str(tmp_path).encode() not in text
    assert built.encode() in text


def test_sources_that_are_refused(corpus: Path, published: Path, tmp_path: Path) -> None:
    new = tmp_path / "pulled"
    with pytest.raises(InputError, match="SHA256SUMS is missing"):
        pull_corpus(str(corpus), new)
    assert not list(tmp_path.glob(".*"))
    with pytest.raises(InputError, match="revision"):
        pull_corpus(str(published), new, "main")
    with pytest.raises(InputError, match="exists"):
        pull_corpus(str(published), corpus)
    for address in ("nosuch://bucket/x", "hf://models/x", "http://127.0.0.1:9/x"):
        with pytest.raises(InputError, match=address):
            pull_corpus(address, new)
    sums = (published / "SHA256SUMS").read_text()
    for line in (f"{'0' * 64}  ../x", f"{'0' * 64}  /etc/x", f"{'0' * 64}  shards/00009/x", sums.splitlines()[0], "x"):
        (published / "SHA256SUMS").write_text(f"{sums}{line}\n")
        with pytest.raises(InputError, match="SHA256SUMS"):
            pull_corpus(str(published), new)
    assert not new.exists()
    assert not (tmp_path / "x").exists()


def test_manifests_that_are_refused(published: Path, tmp_path: Path) -> None:
    """Of a newer format, and of a corpus that no disk has room for; their checksums fit."""
    sums = (published / "SHA256SUMS").read_text().splitlines()
    shards = [dict(shard) for shard in open_manifest(published)["shards"]]
    shards[0]["files"] = {name: {**file, "bytes": 1 << 60} for name, file in shards[0]["files"].items()}
    for changed, error, named in (
        ({"shards": shards}, InputError, r"needs 6,9\d\d,.* GB left"),
        ({"format": 99}, CorpusError, r"release/manifest.json.*99"),
    ):
        rewrite_manifest(published, **changed)
        sha256 = hashlib.sha256((published / MANIFEST).read_bytes()).hexdigest()
        kept = [line for line in sums if not line.endswith(MANIFEST)]
        (published / "SHA256SUMS").write_text("\n".join([*kept, f"{sha256}  {MANIFEST}"]) + "\n")
        with pytest.raises(error, match=named):
            pull_corpus(str(published), tmp_path / "pulled")
    assert not (tmp_path / "pulled").exists()


@settings(max_examples=80, deadline=None)
@given(st.text(st.sampled_from("/.\\:a \n\x00~"), max_size=12) | st.text(max_size=12))
def test_no_name_leads_out_of_the_folder(name: str) -> None:
    with suppress(InputError):
        for inside in read_checksums(f"{'0' * 64}  {name}\n", "x"):
            assert os.path.normpath(f"/a/{inside}") == f"/a/{inside}"
