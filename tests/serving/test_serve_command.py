"""`recipe serve`: what it says where something is missing, what it serves as a process, and how it ends."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recipe.cli import app
from recipe.corpus.store import Corpus
from recipe.errors import ConfigError, InputError

httpx2 = pytest.importorskip("httpx2")
pytest.importorskip("fastapi")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "make demo"),
        (("--corpus", "corpus"), "--model"),
        (("--model", "m", "--verifier", "paper"), "--corpus"),
        (("--model", "m", "--phi-endpoint", "http://x"), "--phi"),
        # Without a token it stays on its machine; what follows is only read where that is settled.
        (("--model", "m", "--host", "0.0.0.0", "--prompt", "absent"), r"--host 0\.0\.0\.0: .*--insecure"),
        (("--model", "m", "--host", "0.0.0.0", "--prompt", "absent", "--insecure"), "absent"),
        (("--model", "m", "--host", "0.0.0.0", "--prompt", "absent", "--token-file", "token"), "absent"),
        (("--model", "m", "--host", "127.0.0.1", "--prompt", "absent"), "absent"),
    ],
)
def test_what_is_missing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("token").write_text("0123456789abcdef" * 4)
    with pytest.raises((InputError, ConfigError), match=said):
        CliRunner().invoke(app, ["serve", *options], catch_exceptions=False)


@pytest.mark.thorough
def test_it_serves_and_ends_calmly(tiny_model: Path, tea_corpus: Corpus, tmp_path: Path) -> None:
    options = ("--model", tiny_model, "--corpus", tea_corpus.folder, "--port", 0, "--max-tokens", 20)
    options = (*options, "--keep", tmp_path / "kept")
    command = [sys.executable, "-m", "recipe", "serve", *map(str, options)]
    log = tmp_path / "log"
    with log.open("w") as file, subprocess.Popen(command, cwd=tmp_path, stderr=file) as process:
        until = time.monotonic() + 300
        while " open http" not in log.read_text() or "startup complete" not in log.read_text():
            assert time.monotonic() < until
            time.sleep(0.1)
        url = log.read_text().split(" open ")[1].split()[0]
        info = httpx2.get(f"{url}/api/info").json()
        assert info["model"]["name"] == "/".join(tiny_model.parts[-2:])
        assert info["corpus"]["narrations"] == len(tea_corpus)
        assert info["verifier"]["name"] == "grounded"
        run = httpx2.post(f"{url}/api/runs", json={"goal": "make tea", "plans": 2}).json()["id"]
        events = httpx2.get(f"{url}/api/runs/{run}/events", timeout=300).text
        assert "event: done" in events
        second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert second.returncode == 1  # two servers would write over each other's feedback
        assert "kept" in second.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0
