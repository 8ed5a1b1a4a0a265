"""A stand-in for the hub, on this machine."""

import base64
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs


class Hub(http.server.BaseHTTPRequestHandler):
    """The endpoints of the hub that a repository is made, read and written by; all files are small ones to it."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        files = self.server.commits[-1]
        if (place := path.split("/resolve/")) != [path]:
            revision, _, name = place[1].partition("/")
            files = self.server.commits[int(revision, 16)] if len(revision) == 40 else files
            if name not in files:
                return self.answer({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
            first, last = 0, len(files[name]) - 1
            if span := self.headers.get("Range"):
                first, last = (int(end) for end in span.removeprefix("bytes=").split("-"))
            return self.answer(files[name][first : last + 1], 206 if span else 200)
        if "/tree/" in path:
            revision = path.split("/tree/")[1].partition("/")[0]
            files = self.server.commits[int(revision, 16)] if len(revision) == 40 else files
            return self.answer([self.entry(name, files[name]) for name in files])
        revision = path.partition("/revision/")[2]
        last = revision if len(revision) == 40 else f"{len(self.server.commits) - 1:040x}"
        return self.answer({"id": "me/mine", "sha": last, "siblings": []})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append(self.path.partition("?")[0])
        files = self.server.commits[-1]
        if "/preupload/" in self.path:
            names = [file["path"] for file in json.loads(body)["files"]]
            known = {name: self.entry(name, files[name])["oid"] for name in names if name in files}
            modes = [{"path": n, "uploadMode": "regular", "shouldIgnore": False, "oid": known.get(n)} for n in names]
            return self.answer({"files": modes})
        if "/commit/" in self.path:
            files = dict(files)
            for row in map(json.loads, body.splitlines()):
                if row["key"] == "file":
                    files[row["value"]["path"]] = base64.b64decode(row["value"]["content"])
                elif row["key"] == "deletedFile":
                    del files[row["value"]["path"]]
            self.server.commits.append(files)
            oid = f"{len(self.server.commits) - 1:040x}"
            return self.answer({"commitUrl": f"{self.address}/datasets/me/mine/commit/{oid}", "commitOid": oid})
        if "/paths-info/" in self.path:
            revision = self.path.split("/paths-info/")[1]
            files = self.server.commits[int(revision, 16)] if len(revision) == 40 else files
            names = json.loads(body)["paths"] if body.startswith(b"{") else parse_qs(body.decode())["paths"]
            return self.answer([self.entry(name, files[name]) for name in names if name in files])
        if self.path == "/api/repos/create":
            self.server.made.append(json.loads(body))
        return self.answer({"url": f"{self.address}/datasets/me/mine", "errors": [], "warnings": []})

    @staticmethod
    def entry(name: str, data: bytes) -> dict[str, Any]:
        oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        return {"type": "file", "path": name, "size": len(data), "oid": oid}

    def answer(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in ({"Content-Length": str(len(data))} | (headers or {})).items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        return None


@contextmanager
def hub_server() -> Iterator[Any]:
    """A running stand-in: its commits, each with all of its files, the paths that were asked and repositories made."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        server.commits, server.requests, server.made = [{".gitattributes": b""}], [], []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
