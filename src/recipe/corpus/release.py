"""Releases of a corpus: a corpus folder with a card and checksums, in a folder, in a store of objects or on the hub.

    README.md        the card, with the fields that the hub reads at its head
    manifest.json    that of the corpus, without paths of the machine that built it
    shards/          that of the corpus
    SHA256SUMS       written last: the checksums of all these files, as `sha256sum --check` reads them
    SHA256SUMS.part  while a release is sent: the checksums of the files that have arrived

The checksums of the shards are those of the manifest. Every file is read once, when it is sent or received, and hashed
meanwhile. A release that was pulled is a corpus folder: it can be copied by any other tool, too.
"""

import hashlib
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import quote

import fsspec
import httpx2
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from huggingface_hub import CommitOperationAdd, DatasetCardData, HfApi, HfFileSystem
from huggingface_hub.hf_api import RepoFile

from recipe.artifacts import file_sha256, locked, remove, write_text
from recipe.corpus.encoder_identity import licence_note
from recipe.corpus.integrity import record_build
from recipe.corpus.layout import (
    MANIFEST,
    PLAN,
    SHARDS,
    FileRecord,
    Manifest,
    corpus_id,
    damaged,
    open_manifest,
    require_files,
)
from recipe.corpus.leaks import Checked
from recipe.errors import CorpusError, InputError
from recipe.hub import README, licence_fields, reached, without_paths
from recipe.progress import SILENT, Advance, Progress

SUMS, SENT = "SHA256SUMS", "SHA256SUMS.part"
# Bytes that are read, hashed and written at once; stores of objects take at most 10,000 parts a file.
_BYTES_AT_ONCE = 16 << 20
# Most bytes of the files whose size no manifest names: a server could send without end.
_LARGEST_TEXT = 1 << 28
# Files under way at once: stores answer one request slowly and many at once fast.
_PARALLEL = 4
_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")
_HUB = re.compile(r"hf://datasets/([\w.-]+/[\w.-]+)(?:@(\S+))?/?")
_CITATION = """@article{seminara2026recipe,
  title   = {RECIPE: Procedural Planning via Grounding in Instructional Video},
  author  = {Seminara, Luigi and Furnari, Antonino and Torresani, Lorenzo},
  journal = {arXiv preprint arXiv:2605.19976},
  year    = {2026}
}"""


class Release(NamedTuple):
    """A release that was published or pulled."""

    id: str
    """The corpus id in its manifest."""
    files: int
    bytes: int
    """Of the shards, together."""
    transferred: int
    """Bytes of the shards that this run sent or received; the hub's library does not tell which, so that all count."""
    sizes: Mapping[str, int] | None = None
    """Bytes of each file that would be published, of a dry run."""


def publish_corpus(
    folder: Path,
    target: str,
    *,
    name: str = "",
    licence: str = "",
    public: bool = False,
    dry_run: bool = False,
    progress: Progress = SILENT,
) -> Release:
    """Write the finished corpus in `folder` to `target`, a folder, an address of fsspec or `hf://datasets/OWNER/NAME`.

    `name` is the title of its card, `licence` the terms of its texts; a new repository on the hub is private unless
    `public`. What an earlier run has sent is not sent again. `dry_run` sends nothing. Where the manifest holds paths of
    this machine, only their last names are published, which changes the corpus id.

    Raises CorpusError for a corpus that is not finished or damaged, InputError for a target that holds something else
    or cannot be written to.
    """
    hub = _HUB.fullmatch(target)
    if public and not hub:
        raise InputError(f"{target}: only a repository on the hub is private or public; leave --public out.")
    manifest = open_manifest(folder)
    with locked(folder):
        if (folder / PLAN).exists():
            raise CorpusError(f"{folder}: the build is not finished; run the same `recipe corpus build` again.")
        for shard in manifest["shards"]:
            require_files(folder / SHARDS / shard["name"], shard)
        released: Manifest = without_paths(manifest)
        if released != manifest:
            released["id"] = corpus_id(released)
        files = _files(released)
        texts = {
            README: _card(released, manifest["id"], name or folder.resolve().name, licence, target if hub else ""),
            MANIFEST: json.dumps(released, indent=2, sort_keys=True, ensure_ascii=False) + "\n",
        }
        sums = {name: record["sha256"] for name, record in files.items()}
        sums |= {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
        texts[SUMS] = _lines(sums)
        sent = 0
        if hub and not dry_run:
            sent = _send_to_hub(folder, target, hub, files, texts, public)
        elif not dry_run:
            sent = _send(folder, target, released, texts, progress)
    sizes = {name: file["bytes"] for name, file in files.items()} | {x: len(y.encode()) for x, y in texts.items()}
    total = sum(file["bytes"] for file in files.values())
    return Release(released["id"], len(sizes), total, sent, sizes if dry_run else None)


def pull_corpus(source: str, folder: Path, revision: str | None = None, progress: Progress = SILENT) -> Release:
    """Copy the release at `source` to the new corpus folder `folder`; an address may also begin with http or https.

    `revision` is a branch, tag or commit of the hub. A run that was stopped is continued. The folder appears when all
    checksums agree, and its corpus then counts as verified.

    Raises InputError where `source` holds no release or cannot be read, where `folder` exists, or where its disk is
    full; CorpusError for a release that is damaged or of a newer format.
    """
    _require_new(folder)
    # Beside the new folder, so that a rename puts it in place in one step.
    work = folder.with_name(f".{folder.name}.pull")
    store = _open(source, revision)
    text = _text(store, source, SUMS)
    if text is None:
        begun = _text(store, source, SENT) is not None
        remedy = "publish it again, which sends only what is missing" if begun else "check the address"
        problem = "the release is not finished" if begun else f"no release of a corpus is here ({SUMS} is missing)"
        raise InputError.at(source, problem, remedy)
    sums = read_checksums(text, f"{source}/{SUMS}")
    if lacking := [name for name in (README, MANIFEST) if name not in sums]:
        raise InputError.at(f"{source}/{SUMS}", f"{lacking[0]} is not listed", "publish the corpus again")
    with locked(work):
        _require_new(folder)  # another run may have made it meanwhile
        if not (work / SUMS).is_file() or (work / SUMS).read_text(encoding="utf-8") != text:
            for entry in work.iterdir():  # of another release
                remove(entry)
            write_text(work / SUMS, text)
        for name in (README, MANIFEST):
            _receive(store, source, work, name, FileRecord(bytes=-1, sha256=sums[name]), lambda _n: None)
        try:
            manifest = open_manifest(work)
        except CorpusError as error:
            remove(work / MANIFEST)
            raise CorpusError(str(error).replace(str(work), source)) from None
        files = _files(manifest)
        # Before anything is fetched: the checksums and the manifest must be of one release.
        if {name: file["sha256"] for name, file in files.items()} | {x: sums[x] for x in (README, MANIFEST)} != sums:
            problem = f"its lines are not the files that {MANIFEST} names"
            raise InputError.at(f"{source}/{SUMS}", problem, "publish the corpus again")
        missing = {name: record for name, record in files.items() if not (work / name).is_file()}
        size = sum(record["bytes"] for record in missing.values())
        # What an earlier run has received in part is on the disk already.
        needed = size - sum(path.stat().st_size for path in work.rglob("*.part"))
        if (free := shutil.disk_usage(work).free) < needed:
            problem = f"the release needs {needed / 1e9:,.3f} GB more, and its disk has {free / 1e9:,.3f} GB left"
            raise InputError.at(folder, problem, "free some space or choose a folder on another disk")
        with _transfers(progress, "pulling", size) as run:
            run(partial(_receive, store, source, work), missing.items())
        work.rename(folder)
        record_build(folder, manifest["shards"])
    return Release(manifest["id"], len(files) + 3, sum(file["bytes"] for file in files.values()), size)


def read_checksums(text: str, origin: str) -> dict[str, str]:
    """SHA-256 by file name from the lines of `sha256sum`; `origin` names the file in errors.

    Raises InputError for a line of another form, a name that is listed twice, or one that is not plainly inside the
    folder.
    """
    sums: dict[str, str] = {}
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        match = _LINE.fullmatch(line)
        if match is None:
            problem, remedy = "the line is no checksum and name of a file", "publish the corpus again"
            raise InputError.at(origin, problem, remedy, line=number)
        name = match[2]
        # No name may lead out of the folder; on Windows a colon or a backslash could.
        inside = all(part and not part.startswith(".") for part in name.split("/"))
        if not inside or not name.isprintable() or "\\" in name or ":" in name:
            problem = f"{name!r} is no file inside the release"
            raise InputError.at(origin, problem, "do not use this release", line=number)
        if name in sums:
            raise InputError.at(origin, f"{name!r} is listed twice", "publish the corpus again", line=number)
        sums[name] = match[1]
    return sums


def _lines(sums: Mapping[str, str]) -> str:
    return "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))


def _files(manifest: Manifest) -> dict[str, FileRecord]:
    """Size and checksum of every file of the shards, by its name in the corpus folder."""
    return {
        f"{SHARDS}/{shard['name']}/{name}": record
        for shard in manifest["shards"]
        for name, record in shard["files"].items()
    }


def _open(address: str, revision: str | None = None) -> Any:
    """What reads and writes files by their names under an address: a file system of fsspec, or a client of the web."""
    hub = _HUB.fullmatch(address)
    if hub is None:
        if address.startswith("hf://"):
            raise InputError.at(address, "this is no dataset of the hub", "write hf://datasets/OWNER/NAME")
        if revision is not None:
            raise InputError(f"{address}: only the hub has revisions; leave --revision out.")
    with reached(address):
        if re.match("https?://", address):
            return httpx2.Client(base_url=address.rstrip("/") + "/", follow_redirects=True, timeout=60)
        if hub is None:
            options = {} if "://" in address else {"auto_mkdir": True}
            system, root = fsspec.url_to_fs(address, **options)
            return DirFileSystem(root or "/", system)
        # The files are those of one commit, whatever is committed meanwhile.
        commit = HfApi().dataset_info(hub[1], revision=revision or hub[2]).sha
        return DirFileSystem(f"datasets/{hub[1]}@{commit}", HfFileSystem(skip_instance_cache=True))


def _blocks(store: Any, name: str, start: int = 0) -> Generator[bytes, None, None]:
    """The bytes of a file from `start` on. Raises FileNotFoundError."""
    if not isinstance(store, httpx2.Client):
        with store.open(name, "rb", block_size=_BYTES_AT_ONCE, cache_type="none") as stream:
            stream.seek(start)
            while block := stream.read(_BYTES_AT_ONCE):
                yield block
        return
    # Ranges count the bytes of the file itself: an answer that is compressed on the way has others.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    with store.stream("GET", quote(name), headers=headers) as answer:
        if answer.status_code == 404:
            raise FileNotFoundError(f"{answer.url} is missing")
        if start and answer.status_code == 416:  # all of it is there
            return
        answer.raise_for_status()
        known = start if answer.status_code == 200 else 0  # a server without ranges sends the whole file
        for block in answer.iter_bytes(_BYTES_AT_ONCE):
            yield block[known:]
            known = max(0, known - len(block))


def _text(store: Any, address: str, name: str) -> str | None:
    """A small text file; None where it is missing."""
    data = bytearray()
    with reached(address):
        try:
            for block in _blocks(store, name):
                data += block
                if len(data) > _LARGEST_TEXT:
                    raise InputError.at(f"{address}/{name}", f"it has over {_LARGEST_TEXT} bytes", "check the address")
        except (FileNotFoundError, NotADirectoryError):
            return None
        return data.decode()


def _receive(store: Any, source: str, work: Path, name: str, record: FileRecord, advance: Advance) -> None:
    """One file into the folder `work`, whole or as a part that the next run continues. Raises CorpusError."""
    if (work / name).is_file():
        return
    (work / name).parent.mkdir(parents=True, exist_ok=True)
    part = work / f"{name}.part"
    most = record["bytes"] if record["bytes"] >= 0 else _LARGEST_TEXT
    digest, size = hashlib.sha256(), 0
    with part.open("a+b", buffering=0) as stream:
        stream.seek(0)
        while block := stream.read(_BYTES_AT_ONCE):
            digest.update(block)
            size += len(block)
        advance(min(size, most))
        with closing(_blocks(store, name, size)) as blocks:
            # At most one block beyond the size on record: a server that sends without end is left.
            while size <= most:
                with reached(source):
                    block = next(blocks, b"")
                if not block:
                    break
                stream.write(block)
                digest.update(block)
                size += len(block)
                advance(len(block))
        os.fsync(stream.fileno())
    if size == most or record["bytes"] < 0:
        problem = "" if digest.hexdigest() == record["sha256"] else "differs from its checksum"
    else:
        problem = f"has {'more' if size > most else 'fewer'} than {most} bytes"
    if problem:
        # Deleted, because the next run would go on from a part that is wrong.
        part.unlink()
        raise CorpusError(f"{source}/{name}: the file {problem}; pull again, which repeats only this file.")
    part.rename(work / name)


def _require_new(folder: Path) -> None:
    if folder.exists():
        raise InputError.at(folder, "this exists already", "choose another folder, or delete this one")


@contextmanager
def _transfers(progress: Progress, description: str, size: int) -> Iterator[Callable[..., None]]:
    """Yields a function that calls another with each of some arguments and an `Advance` of bytes, several at once.

    The first error, or Ctrl-C, ends all of them at their next block.
    """
    ended, lock, done = threading.Event(), threading.Lock(), 0
    with progress.task(f"{description}, MB", size // 1_000_000) as ahead, ThreadPoolExecutor(_PARALLEL) as pool:

        def advance(count: int) -> None:
            nonlocal done
            if ended.is_set():
                raise InterruptedError
            with lock:
                before, done = done, done + count
                ahead(done // 1_000_000 - before // 1_000_000)

        def run(function: Callable[..., None], items: Iterable[tuple[Any, ...]]) -> None:
            futures = [pool.submit(function, *item, advance) for item in items]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                ended.set()
                pool.shutdown(cancel_futures=True)
                raise

        yield run


def _send(folder: Path, target: str, manifest: Manifest, texts: Mapping[str, str], progress: Progress) -> int:
    """Send a release to a file system; returns the bytes of the shards that were sent. Raises InputError."""
    if re.match("https?://", target):
        raise InputError.at(target, "nothing can be sent to a web server", "give a folder or an address of a store")
    store = _open(target)
    local = Path(store.path) if isinstance(store.fs, LocalFileSystem) else None
    if local is not None and local.resolve().is_relative_to(folder.resolve()):
        raise InputError.at(target, "this is in the folder of the corpus itself", "choose another folder")

    def put(name: str, text: str) -> None:
        with reached(target):
            if local is None:
                store.pipe_file(name, text.encode())
            else:
                write_text(local / name, text)

    with reached(target):
        store.invalidate_cache()
        sizes = {name: entry["size"] for name, entry in store.find("", detail=True).items()}
    held = _text(store, target, MANIFEST)
    if held is None:
        if any(not name.rpartition("/")[2].startswith(".") for name in sizes):  # a killed run leaves hidden files
            raise InputError.at(target, "something else is here", "choose another target")
    elif f'"id": "{manifest["id"]}"' not in held:
        raise InputError.at(target, f"another corpus is here ({MANIFEST})", "choose another target")
    finished, begun = _text(store, target, SUMS), _text(store, target, SENT)
    arrived: dict[str, str] = {}
    for known in filter(None, (finished, begun)):
        arrived |= read_checksums(known, target)
    missing = {
        name: record
        for name, record in _files(manifest).items()
        if arrived.get(name) != record["sha256"] or sizes.get(name) != record["bytes"]
    }
    arrived = {name: sha256 for name, sha256 in arrived.items() if name not in missing}
    if missing or finished != texts[SUMS]:
        put(MANIFEST, texts[MANIFEST])  # first, so that a release under way tells of which corpus it is
        # In this order, so that at every moment some list says what has arrived.
        if finished is not None:
            put(SENT, _lines(arrived))
            with reached(target):
                store.rm_file(SUMS)
        with _transfers(progress, "publishing", sum(record["bytes"] for record in missing.values())) as run:
            for shard in manifest["shards"]:
                files = _files({**manifest, "shards": [shard]})
                if parts := {name: record for name, record in files.items() if name in missing}:
                    run(partial(_send_file, store, target, folder), parts.items())
                    arrived |= {name: record["sha256"] for name, record in parts.items()}
                    put(SENT, _lines(arrived))
        put(README, texts[README])
        # Last: a release without it is not finished.
        put(SUMS, texts[SUMS])
    with reached(target):
        if store.exists(SENT):
            store.rm_file(SENT)
    return sum(record["bytes"] for record in missing.values())


def _send_file(store: Any, target: str, folder: Path, name: str, record: FileRecord, advance: Advance) -> None:
    """One file to its place in the release. Raises CorpusError where it differs from its checksum."""
    digest = hashlib.sha256()
    with reached(target), (folder / name).open("rb", buffering=0) as stream:
        if isinstance(store.fs, LocalFileSystem) and store.exists(name):
            store.rm_file(name)  # it may be a link to the corpus's own file
        with store.open(name, "wb", block_size=_BYTES_AT_ONCE) as out:
            while block := stream.read(_BYTES_AT_ONCE):
                out.write(block)
                digest.update(block)
                advance(len(block))
    if digest.hexdigest() != record["sha256"]:
        raise damaged((folder / name).parent, f"{(folder / name).name} differs from its checksum")


def _send_to_hub(
    folder: Path,
    target: str,
    hub: re.Match[str],
    files: Mapping[str, FileRecord],
    texts: Mapping[str, str],
    public: bool,
) -> int:
    """Send a release to a repository of the hub, made where it is missing; its library resumes by itself.

    Returns the bytes of the shards, 0 where the release was there already. Raises InputError, CorpusError.
    """
    api, repository, kind = HfApi(), hub[1], "dataset"
    with reached(target):
        api.create_repo(repository, repo_type=kind, private=not public, exist_ok=True)
        if hub[2]:
            api.create_branch(repository, repo_type=kind, branch=hub[2], exist_ok=True)
        where: dict[str, Any] = {"repo_id": repository, "repo_type": kind, "revision": hub[2]}
        if (finished := _text(_open(target), target, SUMS)) == texts[SUMS]:
            return 0
        if finished is not None:  # until the new one is whole, no commit is a release of half of each
            api.delete_file(SUMS, commit_message="Replace the release", **where)
        api.upload_folder(
            folder_path=folder,
            allow_patterns=list(files),
            delete_patterns=f"{SHARDS}/*",  # of shards that the corpus does not have
            commit_message="Send the shards",
            **where,
        )
        entries = {entry.path: entry for entry in api.list_repo_tree(recursive=True, **where)}
        for name, record in files.items():
            entry = entries.get(name)
            if not isinstance(entry, RepoFile) or entry.size != record["bytes"]:
                raise InputError.at(f"{target}/{name}", "the file did not arrive whole", "run the same command again")
            # The hub tells the checksums of large files; the others were read from here just now.
            if (entry.lfs.sha256 if entry.lfs else file_sha256(folder / name)) != record["sha256"]:
                raise damaged((folder / name).parent, f"{(folder / name).name} differs from its checksum")
        operations = [CommitOperationAdd(name, text.encode()) for name, text in texts.items()]
        api.create_commit(operations=operations, commit_message="Finish the release", **where)
    return sum(record["bytes"] for record in files.values())


def _card(manifest: Manifest, built: str, name: str, licence: str, source: str) -> str:
    """The card of a release, with the fields that the hub reads at its head; the same release has the same card."""
    encoder, read = manifest["encoder"], manifest["read"] or {}
    language = (manifest["reading"] or {}).get("language")
    tables = {kind: f"{SHARDS}/*/{kind}.parquet" for kind in ("narrations", "segments")}
    front = DatasetCardData(
        pretty_name=name,
        language=language and [language.partition("-")[0].lower()],
        tags=["procedural-planning", "instructional-video", "recipe"],
        size_categories=_size_category(manifest["segments"]),
        configs=[{"config_name": kind, "data_files": files} for kind, files in tables.items()],
        **licence_fields(licence),
    ).to_yaml()
    rows = {
        "Videos": f"{manifest['narrations']:,}, of which {manifest['timed']:,} with times",
        "Segments": f"{manifest['segments']:,}",
        "Language": language or "not recorded",
        "Encoder": f"{encoder['name']}, {encoder['dimension']} dimensions, computed in {encoder['dtype']}",
        "Revision of the encoder": encoder["revision"],
        "Task of the encoder": encoder["task"],
        "SHA-256 of the encoder's files": encoder["weights"],
        "Bytes": f"{sum(file['bytes'] for file in _files(manifest).values()):,} in {len(manifest['shards']):,} shards",
        "Corpus id": manifest["id"],
        "Id before paths of its machine were removed": built if built != manifest["id"] else None,
    }
    excluded = manifest["exclusions"]
    reading = [
        f"- Kept out: {excluded['video_ids']:,} video ids and near-copies of {excluded['texts']:,} texts (SHA-256 of "
        f"both lists: `{excluded['sha256']}`)."
        if excluded
        else "- No videos were kept out: this corpus may hold videos that planners are tested on.",
        *(f"- Left out: {line}" for line in read.get("left_out", ())),
        *(f"- {line}" for line in read.get("notes", ())),
        *(f"- {line}" for row in read.get("checked") or () if (line := Checked(**row).line)),
    ]
    terms = (
        f"The texts are published under: {licence}."
        if licence
        else "The publisher states no terms for the texts. Those of the videos and captions that they come from apply."
    )
    parts = [
        f"---\n{front.strip()}\n---",
        f"# {name}",
        "A corpus of narrated how-to videos for RECIPE: the segments of every narration, their vectors, and the codes "
        "that exact search reads.",
        "\n".join(["| | |", "| --- | --- |", *(f"| {key} | {value} |" for key, value in rows.items() if value)]),
        "## Use",
        f"```\nrecipe corpus pull {source or 'SOURCE'} corpora/{PurePosixPath(name).name.replace(' ', '-')}\n```",
        f"The corpus is this folder itself: `sha256sum --check {SUMS}` verifies a copy that was made otherwise. "
        f"`{MANIFEST}` names its settings, `narrations.parquet` and `segments.parquet` of each shard hold the texts.",
        "## Terms",
        terms,
        *filter(None, [licence_note(encoder)]),
        "Vectors are derived from the texts, and texts can partly be recovered from them.",
        "## How it was read",
        "\n".join(reading),
        "## Citation",
        f"```bibtex\n{_CITATION}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _size_category(rows: int) -> str:
    """The class of a number of rows, in the hub's words.

    >>> _size_category(999), _size_category(25_000_000)
    ('n<1K', '10M<n<100M')
    """
    bounds = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")
    step = next((step for step in range(len(bounds)) if rows < 1000 * 10**step), len(bounds))
    if step in (0, len(bounds)):
        return "n>1T" if step else "n<1K"
    return f"{bounds[step - 1]}<n<{bounds[step]}"
