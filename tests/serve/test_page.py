"""The page in a real browser: what a person does with it, what it asks for, and who can use it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foretell.report.page import Page, html
from serve_client import PATIENT, Server

playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed: apt-get install chromium"),
]

LONG = float(os.environ.get("FORETELL_PATIENCE", PATIENT))
SERIOUS = ("serious", "critical")
CONFIG = {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
          "intermediate_size": 1376, "vocab_size": 32000, "max_position_embeddings": 1024}  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=1000 * PATIENT)
        yield chromium
        chromium.close()


class Person:
    """Somebody with a browser, who sees what it asks for and what goes wrong."""

    def __init__(self, browser: Any, width: int = 1280, scheme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.context.set_default_timeout(1000 * LONG)
        self.page = self.context.new_page()
        self.asked: list[str] = []
        self.wrong: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda problem: self.wrong.append(str(problem)))
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)

    def opens(self, address: str) -> None:
        self.page.goto(address)
        self.page.wait_for_selector("body[data-changes]")

    def sees(self, what: str) -> str:
        return self.page.inner_text(what)

    def does(self, *keys: str, on: str) -> None:
        """Press keys on something, and wait until the page has answered."""
        before = self.changes()
        self.page.focus(on)
        for key in keys:
            self.page.keyboard.press(key)
        self.answered(before)

    def fills(self, field: str, text: str) -> None:
        """Write into a field and leave it; some fields ask while they are written into, others when they are left."""
        before = self.changes()
        self.page.fill(field, text)
        self.page.keyboard.press("Tab")
        self.answered(before)

    def changes(self) -> int:
        return int(self.page.get_attribute("body", "data-changes"))

    def answered(self, before: int) -> None:
        """Wait until there are more changes than before, and nothing is asked any more."""
        self.page.wait_for_selector(f'body:not([data-changes="{before}"])')
        self.settled()

    def settled(self) -> None:
        """Wait until nothing is asked any more."""
        self.page.wait_for_selector('#answers[aria-busy="false"]')

    def downloads(self, button: str) -> tuple[str, bytes]:
        with self.page.expect_download() as coming:
            self.page.click(button)
        file = coming.value
        return file.suggested_filename, Path(file.path()).read_bytes()


@pytest.fixture
def person(browser: Any, server: Server) -> Iterator[Person]:
    somebody = Person(browser)
    somebody.opens(server.page)
    yield somebody
    somebody.context.close()
    foreign = [url for url in somebody.asked if not url.startswith((server.url, "data:", "blob:"))]
    assert not foreign, "no request leaves the machine"


def test_a_slider_changes_everything(person: Person):
    before = person.sees("#result")
    assert "a step" in before and "Timeline" in before
    person.does("ArrowLeft", on="#tp")
    assert person.page.input_value("#plan") == "dp16:zero1 tp4:sp +m4 +bf16"  # data takes the GPUs that are left
    after = person.sees("#result")
    assert after != before
    person.does("ArrowLeft", on="#gpus")
    assert person.page.input_value("#cluster") == "32xh100"
    person.does("ArrowRight", on="#pp")
    assert person.page.input_value("#plan").startswith("pp2:1f1b dp4:zero1")
    person.page.select_option("#recompute", "block")
    person.settled()
    assert "+recompute:block" in person.page.input_value("#plan")
    step = person.sees("#result .cards div:first-child dd")
    person.does("ArrowRight", "ArrowRight", on="#hardware input >> nth=0")
    assert person.sees("#result .cards div:first-child dd") != step
    assert not person.wrong


def test_the_address_has_all_of_it(person: Person, browser: Any, server: Server):
    person.page.click("summary:has-text('A model of your own')")
    person.page.fill("#config", json.dumps(CONFIG))
    person.page.click("#paste")
    person.page.wait_for_selector("#about-model:has-text('parameters')")
    person.settled()
    person.does("ArrowLeft", on="#m")
    other = Person(browser)
    other.opens(person.page.url.replace(server.url, server.page))
    for field in ("#plan", "#cluster", "#batch"):
        assert other.page.input_value(field) == person.page.input_value(field)
    assert other.sees("#said") == person.sees("#said")
    other.context.close()
    assert not person.wrong


def test_the_token_leaves_the_address_and_is_asked_for(person: Person, browser: Any, server: Server):
    assert "token" not in person.page.url and server.token not in person.page.content()
    person.page.reload()
    person.page.wait_for_selector("body[data-changes]")  # the cookie is enough
    stranger = Person(browser)
    stranger.page.goto(person.page.url)
    stranger.page.wait_for_selector("#problem", state="visible")
    assert "token is missing" in stranger.sees("#problem") and "terminal" in stranger.sees("#problem")
    stranger.context.close()
    assert not person.wrong


def test_a_plan_that_is_refused_offers_one_that_works(person: Person):
    person.fills("#plan", "dp8 tp16:sp +m8 +bf16")
    assert "Heads divide" in person.sees("#problem")
    assert person.page.get_attribute("#plan", "aria-invalid") == "true"
    person.page.click("#problem button")
    person.page.wait_for_selector("#problem", state="hidden")
    assert person.sees("#said").startswith("A step takes")
    person.fills("#batch", "60")
    assert "--" not in person.sees("#problem")
    person.page.click("#problem button:has-text('Batch 64')")
    person.page.wait_for_selector("#problem", state="hidden")
    assert person.page.input_value("#batch") == "64"


def test_search_compare_and_use(person: Person):
    for field, text in (("#plan", "dp2 +bf16"), ("#cluster", "2xh100"), ("#model", "gpt2"), ("#batch", "4")):
        person.fills(field, text)
    person.page.click("#pin")
    person.page.wait_for_selector("#comparison svg")
    person.page.click("#search")
    person.page.wait_for_selector("#search-found td button")
    assert "plans were priced" in person.sees("#search-said")
    best = person.sees("#search-found tbody tr:first-child td:first-child >> nth=-1").strip()
    person.page.click("#search-found tbody tr:first-child td button")
    person.settled()
    assert person.page.input_value("#plan") == best
    compared = person.sees("#comparison")
    assert best in compared and "second over first" in compared
    person.page.click("#swap")
    person.settled()
    assert person.page.input_value("#plan") == "dp2 +bf16"
    person.page.click("#back")
    person.settled()
    assert person.page.input_value("#plan") == best and not person.page.is_visible("#comparison")
    person.page.click("#close")
    assert not person.page.is_visible("#searching")


def test_ways_to_fine_tune(person: Person):
    for field, text in (("#cluster", "1xrtx4090"), ("#model", "gpt2"), ("#batch", "16"), ("#plan", "dp1")):
        person.fills(field, text)
    person.page.click("#tune")
    person.page.wait_for_selector("#tuning-found td button")
    assert "take" in person.sees("#tuning-found")
    person.page.click("#tuning-found tbody tr:has-text('QLoRA') button")
    person.settled()
    assert "+nf4" in person.page.input_value("#plan") and person.sees("#said").startswith("A step takes")
    person.page.click("#tuning-close")
    assert not person.page.is_visible("#tuning")


def test_files_are_downloaded(person: Person):
    name, content = person.downloads("#report")
    assert name == "report.html" and content.startswith(b"<!doctype html>")
    name, content = person.downloads("#trace")
    assert name == "trace.json" and json.loads(content)["traceEvents"]
    person.page.select_option("#dialect", "megatron-lm")
    name, content = person.downloads("#export")
    assert b"--tensor-model-parallel-size" in content
    assert name in person.sees("#unsaid")


def test_a_measured_run_lies_beside_the_prediction(person: Person, tmp_path: Path):
    from test_measured_runs import ASKED, run_record

    file = tmp_path / "run.json"
    file.write_bytes(run_record())
    person.page.set_input_files("#file", file)
    person.page.wait_for_selector("#evidence-shown svg")
    person.settled()
    assert person.page.input_value("#plan") == ASKED["plan"]
    assert "20 steps" in person.sees("#evidence-said")
    _, content = person.downloads("#trace")
    names = {one["args"]["name"] for one in json.loads(content)["traceEvents"] if one["name"] == "process_name"}
    assert {name.partition(":")[0] for name in names} == {"predicted", "measured"}
    person.page.click("#forget")
    person.page.wait_for_selector("#evidence", state="hidden")
    assert not person.wrong


def findings(page: Any) -> list[tuple[str, str]]:
    """What axe finds that keeps people out."""
    from axe_playwright_python.base import AXE_FILE_PATH

    page.evaluate(Path(AXE_FILE_PATH).read_text())
    found = page.evaluate("axe.run()")
    return [(one["id"], one["nodes"][0]["html"]) for one in found["violations"] if one["impact"] in SERIOUS]


@pytest.mark.parametrize(("width", "scheme"), [(380, "dark"), (1600, "light")])
def test_everybody_can_use_it(browser: Any, server: Server, width: int, scheme: str):
    somebody = Person(browser, width, scheme)
    somebody.opens(server.page)
    somebody.page.click("#pin")
    somebody.page.wait_for_selector("#comparison svg")
    assert somebody.page.evaluate("document.documentElement.scrollWidth") <= width
    assert somebody.page.is_visible("#glance") == (width < 860)
    assert findings(somebody.page) == []
    somebody.fills("#plan", "please")
    if width < 1000:  # it is the same page
        assert findings(somebody.page) == []
    assert not [said for said in somebody.wrong if "422" not in said]
    somebody.context.close()


def test_charts_are_reached_by_keyboard(person: Person):
    person.page.focus("#result svg .mark[tabindex='0']")
    first = person.sees("#tip")
    person.page.keyboard.press("ArrowRight")
    assert first and person.sees("#tip") not in ("", first)
    assert re.match(r"\w", first)


@pytest.mark.parametrize(("width", "scheme"), [(380, "light"), (1600, "dark")])
def test_a_report_is_for_everybody_too(browser: Any, server: Server, tmp_path: Path, width: int, scheme: str):
    small = {"model": "mlp", "cluster": "2xh100", "batch": 4, "plan": "pp2:1f1b +m2"}  # axe looks at every mark
    file = tmp_path / "report.html"
    file.write_bytes(server.post("report", small).body)
    reader = Person(browser, width, scheme)
    reader.page.goto(file.as_uri())
    reader.page.wait_for_selector("svg.chart .mark[tabindex='0']")
    assert reader.page.evaluate("document.documentElement.scrollWidth") <= width
    assert findings(reader.page) == []
    with reader.page.expect_download() as coming:
        reader.page.click("button[data-save] >> nth=0")
    assert b"<style" in Path(coming.value.path()).read_bytes()
    reader.page.click("#theme")
    assert reader.page.evaluate("document.documentElement.dataset.theme") != scheme
    assert [url for url in reader.asked if not url.startswith(("file:", "blob:"))] == []
    assert not reader.wrong
    reader.context.close()


def test_what_gets_into_a_report_does_not_run(browser: Any, tmp_path: Path):
    """Were a text of somebody's ever written without being quoted, its script, its handler and its style do nothing."""
    evil = "<script>document.title = 'evil'</script><style>h1 { display: none }</style><h1 style='color: red'>x</h1>"
    evil += "<img src='data:,' onerror='document.title = 1'>"
    file = tmp_path / "report.html"
    file.write_text(html(Page(title="good", plan="", cards=(), sections=())).replace("<main>", f"<main>{evil}"))
    reader = Person(browser)
    reader.page.goto(file.as_uri())
    reader.page.wait_for_selector("#theme", state="visible")  # its own script runs
    assert reader.page.title() == "good" and reader.page.is_visible("main h1")
    assert reader.page.evaluate("getComputedStyle(document.querySelector('main h1')).color") != "rgb(255, 0, 0)"
    while len(reader.wrong) < 4:  # a picture that is none is found out later
        reader.page.wait_for_event("console")
    refused = [said for said in reader.wrong if "Content Security Policy" in said]
    assert len(refused) == 4, reader.wrong
    reader.context.close()


def test_experts_adapters_and_a_whole_run(person: Person):
    assert not person.page.is_visible("#ep")
    person.fills("#model", "mixtral-8x7b")
    person.page.wait_for_selector("#ep", state="visible")
    person.does("ArrowRight", "ArrowRight", on="#ep")
    assert person.page.input_value("#plan") == "dp8:zero1,ep4 tp8:sp +m8 +bf16"
    person.does("ArrowLeft", "ArrowLeft", on="#ep")
    assert person.page.input_value("#plan") == "dp8:zero1 tp8:sp +m8 +bf16"
    person.fills("#model", "llama3-8b")
    person.page.select_option("#lora", "16")
    person.settled()
    assert "+lora16" in person.page.input_value("#plan")
    person.fills("#tokens", "300B")
    person.fills("#price", "2.5")
    cards = person.sees("#result .cards")
    assert "whole run" in cards and "days" in cards and "at 2.5 a GPU-hour" in cards
    assert "tokens=300000000000" in person.page.url and "price=2.5" in person.page.url
    person.page.fill("#tokens", "many")
    person.page.keyboard.press("Tab")
    assert '"many" is no number of tokens' in person.sees("#problem")
    assert person.page.get_attribute("#tokens", "aria-invalid") == "true"
    assert not person.wrong


def test_trainers_of_other_years_are_behind_a_switch(person: Person, browser: Any, server: Server):
    def offered(somebody: Person) -> list[str]:
        return somebody.page.eval_on_selector_all("#trainer option", "all => all.map(one => one.textContent)")

    today = offered(person)
    assert "torchtitan" in today and not any("chainer" in name for name in today)
    person.page.check("#past")
    assert offered(person)[: len(today)] == today and "chainer (2019)" in offered(person)
    person.page.select_option("#trainer", "megatron-lm-2021")
    person.settled()
    person.page.uncheck("#past")
    person.settled()
    assert offered(person) == today and person.page.input_value("#trainer") == ""
    other = Person(browser)
    other.opens(f"{server.page}#trainer=megatron-lm-2023")
    assert other.page.is_checked("#past") and other.page.input_value("#trainer") == "megatron-lm-2023"
    other.context.close()
