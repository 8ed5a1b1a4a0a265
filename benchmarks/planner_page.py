"""Drive the planner page in a real Chromium: how soon the first step is on the screen, and what is wrong with the page.

    recipe serve &
    python benchmarks/planner_page.py --url http://127.0.0.1:8000/ --output pictures [--axe axe.min.js]

The page is used on a desktop, on a phone, in dark and by keyboard only: goal and history are typed, plans written, the
evidence and the other plans opened, a step ticked off, the deviation asked for. Pictures of each go into `--output`.
Seconds are counted by the page's own clock, from the press of "Plan" to the frame after the first step is there.

Exits with 1 where the console shows an error, the security policy is violated, the page is wider than a phone, or a
control has no accessible name; with `--axe`, the file of axe-core, also where it finds a serious fault. Needs
`pip install 'recipe-planner[browser]'` and the system's Chromium; nothing is downloaded.
"""

import argparse
import json
import re
import shutil
import statistics
import sys
import urllib.request
from pathlib import Path
from typing import Any

from common import add_json, table, write_result
from playwright.sync_api import Browser, BrowserContext, Error, HttpCredentials, Page, expect, sync_playwright

CONTROLS = {"button", "link", "textbox", "checkbox", "radio", "combobox", "slider", "spinbutton", "tab", "switch"}
SERIOUS = ("serious", "critical")
WIDTH = 390
WATCH = """
  window.measured = { violations: [] };
  addEventListener("securitypolicyviolation", (event) => measured.violations.push(event.violatedDirective));
  const press = () => { measured.pressed = performance.now(); };
  addEventListener("click", (event) => event.target.id === "plan" && press(), true);
  addEventListener("keydown", (event) => event.ctrlKey && event.key === "Enter" && press(), true);
  const seen = (name, selector) => {
    if (name in measured || !("pressed" in measured) || !document.querySelector(selector)) return;
    measured[name] = null;
    const shown = () => { measured[name] = performance.now() - measured.pressed; };
    requestAnimationFrame(() => requestAnimationFrame(shown));
  };
  new MutationObserver(() => {
    seen("first_step", ".steps > li .words:not(:empty)");
    seen("first_evidence", ".evidence .sign");
  }).observe(document, { subtree: true, childList: true, characterData: true });
"""
"""Runs in the page before its own script."""
VIEWS: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1280, "height": 900}},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {
        "viewport": {"width": WIDTH, "height": 844}, "has_touch": True, "is_mobile": True, "device_scale_factor": 2,
    },
    "keyboard": {"viewport": {"width": 1280, "height": 900}},
}  # fmt: skip


class Walk:
    """One use of the page in one kind of window, with the faults that it met."""

    def __init__(self, name: str, context: BrowserContext, asked: argparse.Namespace) -> None:
        self.name, self.asked, self.faults = name, asked, list[str]()
        self.figures: dict[str, float] = {}
        self.page = context.new_page()
        self.page.set_default_timeout(asked.wait * 1000)
        self.page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        self.page.on(
            "console", lambda line: self.faults.append(f"console: {line.text}") if line.type == "error" else None
        )
        self.page.add_init_script(WATCH)
        self.page.goto(asked.url)
        expect(self.page.locator("#about")).not_to_be_empty(timeout=asked.wait * 1000)

    def run(self) -> None:
        if self.name == "keyboard":
            self._type_by_keyboard()
        else:
            self._type()
        self._wait_for_plans()
        self._open()
        self._check()

    def picture(self, stage: str, whole: bool = True) -> None:
        self.page.screenshot(path=self.asked.output / f"{self.name}-{stage}.png", full_page=whole)

    def _type(self) -> None:
        page = self.page
        self.picture("1-empty")
        page.get_by_label("Goal", exact=True).fill(self.asked.goal)
        page.locator("#history textarea").first.click()
        for index, text in enumerate(self.asked.history):
            if index:
                page.keyboard.press("Enter")
            page.keyboard.insert_text(text)
        if self.asked.clip:
            self._show_clip()
        page.get_by_role("button", name="Plan", exact=True).click()

    def _show_clip(self) -> None:
        page, wait = self.page, self.asked.wait * 1000
        page.locator("#clip-file").set_input_files(self.asked.clip)
        expect(page.locator("#cut")).to_be_visible(timeout=wait)
        page.get_by_label("Seconds").fill(f"{float(page.locator('#cut-slider').input_value()) / 2:.1f}")
        if page.locator("#clip-read").is_visible():
            page.locator("#clip-read").click()
            expect(page.locator("#status")).to_contain_text(re.compile("clip (is|before)|Failed"), timeout=wait)
        self.picture("1-clip")

    def _type_by_keyboard(self) -> None:
        self._tab_to("id", "goal")
        self.page.keyboard.type(self.asked.goal)
        self.page.keyboard.press("Enter")
        for index, text in enumerate(self.asked.history):
            if index:
                self.page.keyboard.press("Enter")
            self.page.keyboard.type(text)
        self.picture("1-typed")
        self.page.keyboard.press("Control+Enter")

    def _tab_to(self, attribute: str, value: str) -> None:
        """Press Tab until what has this attribute is focused; each step must be visible as focused."""
        for _ in range(300):
            self.page.keyboard.press("Tab")
            if self.page.evaluate("name => document.activeElement.getAttribute(name)", attribute) == value:
                return
        self.faults.append(f"keyboard: Tab does not lead to {attribute}={value}")

    def _wait_for_plans(self) -> None:
        page, wait = self.page, self.asked.wait * 1000
        # Not wait_for_function, which evaluates text in the page: its security policy refuses that.
        expect(page.locator(".steps > li .words:not(:empty)").first).to_be_attached(timeout=wait)
        self.picture("2-writing", whole=False)
        # A reader of the first plan would stay there; the script reads nothing until the end.
        expect(page.locator("#results")).to_have_attribute("aria-busy", "false", timeout=wait)
        status = page.locator("#status").inner_text()
        if not status.startswith("Done"):
            self.faults.append(f"run: {status}")
        measured = page.evaluate("measured")
        for name in ("first_step", "first_evidence"):
            if measured.get(name):
                self.figures[f"{name}_s"] = round(measured[name] / 1000, 3)
        self.picture("3-plans")

    def _open(self) -> None:
        """Evidence, the other plans, a tick, the deviation."""
        page, shown = self.page, self.page.locator("[role=tabpanel]:not([hidden])")
        keyboard = self.name == "keyboard"
        tabs = page.get_by_role("tab")
        for number in range(2, min(9, tabs.count()) + 1):
            if keyboard:
                page.locator("#stop").evaluate("() => document.activeElement.blur()")
                page.keyboard.press(str(number))
            else:
                tabs.nth(number - 1).click()
            expect(tabs.nth(number - 1)).to_have_attribute("aria-selected", "true")
        if tabs.count() > 1:
            self.picture("4-other-plan")
            if keyboard:
                page.keyboard.press("1")
            else:
                tabs.first.click()
        if not shown.locator(".steps > li").count():
            self.faults.append("run: the best plan holds no step")
            return
        if keyboard:
            self._tab_to("aria-label", "Done: step 1")
            page.keyboard.press("Space")
            self.picture("5-ticked", whole=False)
        else:
            for summary in shown.locator(".evidence summary").all()[:2]:
                summary.click()
            shown.get_by_role("checkbox", name="Done: step 1").check()
            self.picture("5-evidence")
        happened = shown.locator(".deviation > summary")
        if keyboard:
            happened.focus()
            page.keyboard.press("Enter")
        else:
            happened.click()
        boxes = shown.locator("[data-compare] textarea")
        boxes.last.focus()
        page.keyboard.press("End")
        skipped = shown.locator(".steps > li .words").nth(2)
        if skipped.count():
            page.keyboard.press("Enter")
            page.keyboard.type(skipped.inner_text())
        page.keyboard.press("Control+Enter")
        expect(shown.locator(".states")).to_be_visible()
        for summary in shown.locator(".result summary").all()[:1]:
            summary.click()
        self.picture("6-deviation")
        if shown.locator(".rate").is_visible():
            shown.locator(".rate > summary").click()
            self.picture("7-rating")

    def _check(self) -> None:
        page = self.page
        self.faults += [f"security policy: {directive}" for directive in page.evaluate("measured.violations")]
        if self.name == "phone" and (width := page.evaluate("document.documentElement.scrollWidth")) > WIDTH:
            self.faults.append(f"the page is {width} pixels wide on a phone of {WIDTH}")
        self.faults += nameless(page)
        if self.asked.axe:
            self.faults += axe_faults(page, self.asked.axe)


def nameless(page: Page) -> list[str]:
    """Controls of the accessibility tree without a name."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    controls = [node for node in nodes if not node["ignored"] and node.get("role", {}).get("value") in CONTROLS]
    assert controls, "the page shows no control"
    return [
        f"no name: {node['role']['value']}" for node in controls if not node.get("name", {}).get("value", "").strip()
    ]


def axe_faults(page: Page, script: Path) -> list[str]:
    """What axe-core calls serious or critical, by the rules of WCAG 2 A and AA and its best practices."""
    page.evaluate(script.read_text(encoding="utf-8"))
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    found = page.evaluate("tags => axe.run(document, { runOnly: tags })", tags)
    for violation in found["violations"]:
        first = violation["nodes"][0]
        print(f"    axe, {violation['impact']}: {violation['help']}, {len(violation['nodes'])} x {first['html'][:120]}")
    return [f"axe: {one['id']} ({one['impact']})" for one in found["violations"] if one["impact"] in SERIOUS]


def drive(browser: Browser, asked: argparse.Namespace) -> tuple[dict[str, dict[str, float]], list[str]]:
    """All views one after the other: figures by view, and faults."""
    figures, faults = {}, []
    for name, window in VIEWS.items():
        login: HttpCredentials | None = {"username": "planner", "password": asked.token} if asked.token else None
        context = browser.new_context(http_credentials=login, **window)
        walk = Walk(name, context, asked)
        try:
            walk.run()
        except (Error, AssertionError) as error:
            walk.faults.append(f"the walk ended early: {str(error).splitlines()[0]}")
        walk.picture("8-end")
        figures[name] = walk.figures
        faults += [f"{name}: {fault}" for fault in walk.faults]
        shown = ", ".join(f"{figure} {value:.2f}" for figure, value in walk.figures.items())
        print(f"{name:>9}  {shown}  {len(walk.faults)} faults")
        context.close()
    return figures, faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--output", type=Path, required=True, help="Folder of the pictures.")
    parser.add_argument("--goal", help="The first example of the server where left out.")
    parser.add_argument("--history", nargs="*", default=[], help="What is done, with --goal.")
    parser.add_argument("--clip", type=Path, help="A video to show as well, half of which is read.")
    parser.add_argument("--token", help="The server's token.")
    parser.add_argument("--axe", type=Path, help="axe.min.js of axe-core.")
    parser.add_argument("--wait", type=float, default=120.0, help="Seconds for a run.")
    add_json(parser, "serving-page")
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    if asked.goal is None:
        headers = {"Authorization": f"Bearer {asked.token}"} if asked.token else {}
        with urllib.request.urlopen(
            urllib.request.Request(f"{asked.url.rstrip('/')}/api/info", headers=headers)
        ) as reply:
            examples = json.load(reply)["examples"]
        if not examples:
            sys.exit("the server has no example; give --goal and --history")
        asked.goal, asked.history = examples[0]["goal"], examples[0]["history"]
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("there is no Chromium; install the system's package")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        figures, faults = drive(browser, asked)
        browser.close()
    if firsts := [view["first_step_s"] for view in figures.values() if "first_step_s" in view]:
        print(
            f"first step after {statistics.median(firsts):.2f} s (median of {len(firsts)}), at most {max(firsts):.2f} s"
        )
    for fault in faults:
        print(f"FAULT  {fault}")
    write_result(
        asked.json,
        {"views": figures, "faults": faults},
        title="The planner page in a browser",
        guide="serving.md",
        body=[
            "Seconds by the page's own clock, from the press of *Plan* to the frame after what is named is there; "
            f"{len(faults)} faults.",
            table(figures, "window"),
        ],
        partial=bool(faults),
    )
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
