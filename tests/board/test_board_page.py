"""The board's pages in a real Chromium: submitting, watching, and the owner's page, with hostile texts."""

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="pip install 'recipe-planner[browser]'")

import uvicorn  # noqa: E402
from board_helpers import lines, show  # noqa: E402
from playwright.sync_api import Browser, Page, expect  # noqa: E402

from recipe.types import Example  # noqa: E402
from recipe_apps.board.app import create_app  # noqa: E402
from recipe_apps.board.models import Track  # noqa: E402
from recipe_apps.board.settings import ScorerSettings  # noqa: E402
from recipe_apps.board.setup import add_track  # noqa: E402
from recipe_apps.board.store import Board, References  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; install the system's package"),
]
NASTY = "<script>fired=1</script><img src=x onerror=fired=1>"


class Running:
    """A board with its server in a thread."""

    def __init__(self, folder: Path, examples: list[Example]) -> None:
        self.board = Board.create(f"sqlite:///{folder / 'board.db'}", f"A board {NASTY}")
        settings = ScorerSettings(measure="validity", label=f"scorer {NASTY}")
        track = Track(
            name="world", title=f"The world {NASTY}", about=NASTY, shown_examples=[examples[0].example_id]
        )  # fmt: skip
        add_track(self.board, track, References.of(examples), [settings])
        self.owner = self.board.add_account("olga", "owner", "Olga")
        self.ann = self.board.add_account("ann", display=f"Ann {NASTY}")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._server = uvicorn.Server(uvicorn.Config(create_app(self.board), port=port, log_level="error"))
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.02)

    def score(self) -> None:
        show(self.board)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self.board.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, examples: list[Example]) -> Iterator[Running]:
    started = Running(tmp_path_factory.mktemp("board"), examples)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser, running: Running) -> Iterator[Page]:
    context = browser.new_context(base_url=running.url)
    opened = context.new_page()
    opened.set_default_timeout(15_000)
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    yield opened
    assert faults == []
    assert opened.evaluate("typeof fired") == "undefined"
    context.close()


def use(page: Page, token: str) -> None:
    page.wait_for_function("document.querySelector('#who').textContent || !document.querySelector('#failure').hidden")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Use", exact=True).click()


def test_check_submit_and_watch(page: Page, running: Running, examples: list[Example], tmp_path: Path) -> None:
    bad, good = tmp_path / "bad.jsonl", tmp_path / "good.jsonl"
    bad.write_bytes(lines(examples)[:-30] + b"\n" + NASTY.encode())
    good.write_bytes(lines(examples, 0.7))
    page.goto("/submit")
    use(page, running.ann)
    expect(page.locator("#who")).to_contain_text("You are Ann <script>")
    page.get_by_label("System").fill(f"mine {NASTY}")
    page.locator("#file").set_input_files(bad)
    expect(page.get_by_role("button", name="Submit")).to_be_disabled()
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#problems li")).to_have_count(3)  # a line cut short, one that is no JSON, one plan missing
    expect(page.get_by_role("button", name="Submit")).to_be_disabled()
    page.locator("#file").set_input_files(good)
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#outcome")).to_have_text("40 plans, no problem.")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("#sent .state")).to_have_text("queued")
    running.score()
    expect(page.locator("#sent .state")).to_have_text("scored")  # without a further press
    page.locator("#sent a").first.click()
    expect(page.locator("h1")).to_contain_text("mine <script>")
    expect(page.locator(".plan")).to_have_count(1)
    page.goto("/")
    page.locator("table a").first.click()
    expect(page.locator(".standings tbody tr")).to_have_count(10)
    expect(page.locator(".standings tr.control")).to_have_count(9)
    page.get_by_label("Find").fill("mine")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".standings tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Place").click()
    expect(page.locator("th[aria-sort]")).to_have_count(1)


def test_my_submissions_and_a_withdrawal(page: Page, running: Running, examples: list[Example]) -> None:
    token = running.board.add_account("ben")
    from recipe_apps.board.client import BoardClient

    with BoardClient(running.url, token) as client:
        client.submit("world", "ben's", lines(examples, 0.3))
    page.goto("/mine")
    use(page, "rb_wrong_token")
    expect(page.locator("#failure")).to_contain_text("wrong or revoked")
    use(page, token)
    expect(page.locator("#list article")).to_have_count(1)
    page.get_by_role("button", name="Make private").click()
    expect(page.locator("#list .meta")).to_contain_text("private")
    page.get_by_role("button", name="Withdraw").click()
    page.get_by_role("button", name="Sure?").click()  # once is not enough
    expect(page.locator("#list .meta")).to_contain_text("withdrawn")
    page.reload()  # the token is kept in the tab
    expect(page.locator("#list .state")).to_have_text("cancelled")
    page.get_by_role("button", name="Forget").click()
    expect(page.locator("#list article")).to_have_count(0)


def test_the_owners_page(page: Page, running: Running) -> None:
    page.goto("/owner")
    use(page, running.ann)
    expect(page.locator("#failure")).to_contain_text("Only an owner")
    expect(page.locator("#owner")).to_be_hidden()
    use(page, running.owner)
    expect(page.locator("#owner")).to_be_visible()
    page.get_by_label("New account").fill("carl")
    page.get_by_role("button", name="Make", exact=True).click()
    expect(page.locator("#new-token code")).to_contain_text("rb_")
    token = page.locator("#new-token code").text_content()
    assert token is not None
    assert running.board.account_of(token) is not None
    page.get_by_role("button", name="Revoke carl").click()
    page.get_by_role("button", name="Sure? Revoke carl").click()
    expect(page.locator("#accounts")).to_contain_text("revoked")
    assert running.board.account_of(token) is None
    page.get_by_role("button", name="Hide the results").click()
    page.get_by_role("button", name="Sure? Hide the results").click()
    expect(page.locator("#tracks")).to_contain_text("hidden")
    running.board.change_track("world", published=True)


def test_a_phone_without_a_script(browser: Browser, running: Running) -> None:
    running.score()
    context = browser.new_context(
        base_url=running.url, java_script_enabled=False, viewport={"width": 390, "height": 844}, is_mobile=True
    )
    page = context.new_page()
    page.goto("/")
    page.locator("table a").first.click()
    expect(page.locator(".standings tr.control")).to_have_count(9)
    assert page.locator("body").bounding_box()["width"] <= 390  # type: ignore[index]
    page.locator(".standings tbody a").first.click()
    expect(page.locator("h1")).to_be_visible()
    context.close()
