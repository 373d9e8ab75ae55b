"""Reports: well-formed, self-contained, told to those who hear them, and true to the numbers."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.errors import MissingExtra
from foretell.report.charts import agreement, breakdown, curves, errors, memory, memory_time, pareto
from foretell.report.charts.memory_time import MemorySlot
from foretell.report.charts.pareto import Dot
from foretell.report.comparison import comparison_page
from foretell.report.files import LARGEST, save_drawing
from foretell.report.mixes import CATEGORIES
from foretell.report.page import Card, Page, Section, figure_style, html
from foretell.report.png import png
from foretell.report.svg import WIDTH, Chart, Scale, alone
from foretell.runtime.assignment import Collective
from foretell.runtime.comparison import Comparison, Difference, TrafficMismatch
from foretell.runtime.measure import Measurement, Samples
from foretell.runtime.outside import Outside

SVG = "{http://www.w3.org/2000/svg}"
TINY = "gpt:layers=4,hidden=64,heads=4,vocab=256,seq=32"


def parsed(chart: Chart) -> ET.Element:
    return ET.fromstring(chart.svg())


class _Reader(HTMLParser):
    """Which tags are open, and what a page would fetch."""

    VOID = ("meta", "br", "img", "link", "input")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "action") or (name == "style" and "url(" in (value or "")):
                self.fetched.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def read(page: str) -> _Reader:
    reader = _Reader()
    reader.feed(page)
    assert reader.open == []
    return reader


seconds = st.floats(1e-6, 1e4)


@given(st.dictionaries(st.text(min_size=1, max_size=12), seconds, min_size=1, max_size=9))
def test_a_bar_is_as_long_as_its_parts(parts: dict[str, float]) -> None:
    chart = breakdown.draw({"a step": parts})
    root = parsed(chart)
    drawn = [float(one.attrib["width"]) for one in root.iter(f"{SVG}rect")]
    kept = breakdown.phases([parts])
    assert len(drawn) == len(kept) == len(chart.rows)
    whole = sum(parts[name] for name in kept)
    longest = max(parts[name] for name in kept)
    assert max(drawn) / sum(drawn) == pytest.approx(longest / whole, abs=0.02)
    assert all(one.attrib["aria-label"] for one in root.iter(f"{SVG}g"))


@given(st.lists(st.floats(1, 1e12), min_size=1, max_size=8), st.floats(1e6, 1e12))
def test_memory_is_told_in_full(sizes: list[float], usable: float) -> None:
    chart = memory.draw({f"kind {at}": size for at, size in enumerate(sizes)}, usable, 1.1 * usable, "some moment")
    assert len(chart.rows) == len(sizes)
    assert len(list(parsed(chart).iter(f"{SVG}g"))) == len(sizes) + 1


@given(st.lists(st.tuples(seconds, st.floats(1e6, 1e12)), min_size=1, max_size=20))
def test_every_plan_of_a_front_is_a_mark(dots: list[tuple[float, float]]) -> None:
    front = [Dot(f"dp{at + 1}", *one) for at, one in enumerate(dots)]
    assert len(list(parsed(pareto.draw(front, front, 8e10)).iter(f"{SVG}circle"))) == len(front)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.booleans())
def test_ticks_lie_between_the_ends(low: float, span: float, logarithmic: bool) -> None:
    low = abs(low) + 1e-3 if logarithmic else low
    scale = Scale(low, low + span, 0.0, 100.0, logarithmic=logarithmic)
    for tick in scale.ticks():
        assert -1 <= scale(tick) <= 101
    assert len(scale.ticks()) <= 40


def test_long_steps_keep_their_fullest_moment() -> None:
    moments = [MemorySlot(f"F{at}", 1e9 + (at == 777) * 1e9) for at in range(5000)]
    chart = memory_time.draw(moments, 5e8, 8e9, "every rank")
    assert "F777" in chart.told
    assert len(chart.svg()) < 200_000


def test_names_that_would_break_a_page() -> None:
    hostile = "<script>alert(1)</script>\"'&\x00"
    chart = errors.draw({hostile: [0.1, 0.2]})
    page = html(Page(hostile, hostile, (Card(hostile, hostile),), (Section(hostile, hostile, (chart,)),), (hostile,)))
    assert "<script>alert" not in page
    read(page)


def test_figures_alone_need_no_variables() -> None:
    assert "var(" not in figure_style()
    assert "#0072b2" in figure_style()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report")


def test_a_report_of_the_best_plan(foretell: Any, folder: Path) -> None:
    file, figures = folder / "r.html", folder / "figures"
    asked = ("report", TINY, "--on", "4xh100", "--batch", "8", "--gpus", "1..4", "--html", str(file))
    answer = json.loads(foretell(*asked, "--svg", str(figures), "--json").out)
    page = file.read_text()
    reader = read(page)
    assert reader.fetched == []
    assert len(reader.ids) == len(set(reader.ids))
    assert len(page.encode()) == answer["bytes"] < LARGEST
    assert not re.findall(r"https?://(?!www\.w3\.org)", page)
    assert answer["plan"] in page
    for title in ("Where the time goes", "Memory", "Timeline", "Plans", "Scaling", "How it is known", "Literature"):
        assert f"<h2>{title}</h2>" in page
    assert {path.name for path in figures.iterdir()} == set(answer["figures"]) >= {"step.svg", "timeline.svg"}
    for path in figures.iterdir():
        ET.fromstring(path.read_bytes())


def test_pages_of_other_verbs(foretell: Any, folder: Path) -> None:
    predicted, plans, scaled = (str(folder / f"{name}.html") for name in ("predict", "plan", "scale"))
    plan = "pp2:1f1b dp2 +m4 +bf16"
    assert foretell("predict", TINY, "--on", "4xh100", "--plan", plan, "--batch", "8", "--html", predicted).code == 0
    page = Path(predicted).read_text()
    assert plan in page
    assert "pipeline rank 1" in page
    assert "Narayanan" in page
    read(page)
    assert foretell("plan", TINY, "--on", "2xh100", "--batch", "8", "--only", "dp", "--html", plans).code == 0
    assert "Plans by time and memory" in Path(plans).read_text()
    assert foretell("scale", TINY, "--on", "2xh100", "--batch", "8", "--gpus", "1..2", "--html", scaled).code == 0
    assert "Throughput over GPUs" in Path(scaled).read_text()
    assert foretell("predict", TINY, "--on", "2xh100", "--plan", "dp2", "--batch", "2", "--html", "/no/where").code == 2


def compared(times: float) -> Comparison:
    """A run that took so many times as long as was foretold."""
    import foretell as package

    predicted = package.predict(TINY, "2xh100", "dp2 +bf16", 8)
    measured = Measurement(
        step_seconds=times * predicted.step_seconds,
        memory_bytes=predicted.memory_bytes,
        memory=predicted.memory,
        breakdown={name: times * part for name, part in predicted.breakdown.items()},
        model=TINY, plan=predicted.plan, trainer="pytorch", batch=8, ranks=2,
        samples=Samples(p10=predicted.step_seconds, p90=times * predicted.step_seconds, n=3),
        losses=[1.0], collectives=(Collective("all-reduce", ("dp",), 2, 1 << 20, 3),), by_rank={},
    )  # fmt: skip
    apart = Difference(0.0, 0.0, {}, {})
    late = Outside(kind="phase", name="backward", seconds=2.0, low=0.5, high=1.5, why="longer than foretold")
    return Comparison(
        predicted, measured, apart, TrafficMismatch(measured.collectives, ()), (late,), predicted.bottlenecks
    )


def test_a_run_against_its_prediction() -> None:
    page = comparison_page(compared(2.0))
    assert "-50.0%" in [card.value for card in page.cards]
    bars = [float(one.attrib["width"]) for one in parsed(page.charts[0]).iter(f"{SVG}rect")]
    half = len(bars) // 2
    assert sum(bars[half:]) == pytest.approx(2 * sum(bars[:half]), rel=0.02)
    text = html(page)
    read(text)
    for word in ("longer than foretold", "ran, and was not predicted", "all-reduce", "1 MiB", "resting"):
        assert word in text


@given(st.lists(st.tuples(seconds, seconds, st.sampled_from("ab")), min_size=1, max_size=200))
def test_every_run_is_a_dot_that_lies_where_it_was_measured(runs: list[tuple[float, float, str]]) -> None:
    met = [agreement.Met(f"run {at}", group, one, other) for at, (one, other, group) in enumerate(runs)]
    chart = agreement.draw(met, "a step", str)
    dots = list(parsed(chart).iter(f"{SVG}circle"))
    assert len(dots) == len(runs)
    order = sorted(range(len(runs)), key=lambda at: float(dots[at].attrib["cx"]))
    values = [runs[at][0] for at in order]
    assert all(one <= other * 1.001 for one, other in itertools.pairwise(values))


def test_the_scoreboard_is_a_page(foretell: Any, folder: Path) -> None:
    published = Path(__file__).parents[2] / "studies" / "published" / "vtrain_single.csv"
    some = folder / "some.csv"
    some.write_text("\n".join(published.read_text().splitlines()[:6]) + "\n")
    file = folder / "scoreboard.html"
    ran = foretell("validate", str(some), "--html", str(file))
    assert ran.code == 0, ran.err
    page = file.read_text()
    assert read(page).fetched == []
    assert "Predicted and measured: a step" in page and "<h2>The scoreboard</h2>" in page


def test_a_report_names_its_own_script_and_styles_and_allows_no_others(foretell: Any, tmp_path: Path) -> None:
    import base64
    import hashlib

    file = tmp_path / "r.html"
    assert foretell("report", TINY, "--on", "2xh100", "--plan", "dp2", "--batch", "8", "--html", str(file)).code == 0
    text = file.read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy and "unsafe" not in policy[1] and "default-src 'none'" in policy[1]
    inside = re.findall(r"<(style|script)((?: [^>]*)?)>(.*?)</\1>", text, re.DOTALL)
    live = [(kind, own) for kind, attributes, own in inside if "text/plain" not in attributes]
    assert [kind for kind, _ in live] == ["style", "style", "script"]
    for kind, own in live:
        known = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
        assert re.search(rf"{kind}-src [^;]*'sha256-{re.escape(known)}'", policy[1])
    assert not re.search(r"<[^>]*\s(style|on[a-z]+)=", re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL))


@pytest.mark.slow
def test_a_browser_shows_it(foretell: Any, tmp_path: Path) -> None:
    """The script runs, marks can be reached by keyboard, nothing is complained of and nothing is asked for."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no chromium: apt install chromium")
    file = tmp_path / "r.html"
    assert foretell("report", TINY, "--on", "2xh100", "--plan", "dp2", "--batch", "8", "--html", str(file)).code == 0
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    options += [f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--dump-dom"]
    ran = subprocess.run([browser, *options, file.as_uri()], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0
    assert "CONSOLE" not in ran.stderr
    assert re.search(r'<button id="theme"[^>]*aria-pressed="false">', ran.stdout)  # the script showed it
    assert re.search(r'class="mark" tabindex="0"', ran.stdout)


# --- figures alone


CURVES = st.lists(
    st.tuples(st.text(min_size=1, max_size=20), st.lists(st.tuples(seconds, seconds), max_size=12), st.booleans()),
    min_size=1,
    max_size=12,
    unique_by=lambda one: one[0],
)


@given(CURVES)
def test_every_curve_is_drawn_and_named(given_curves: list[tuple[str, list[tuple[float, float]], bool]]) -> None:
    panel = curves.Panel("one", "One", "across", "up", [curves.Curve(*one) for one in given_curves])
    chart = curves.draw(panel, curves.colours_of([panel]))
    known = [name for name, points, _ in given_curves if points]
    assert len(list(parsed(chart).iter(f"{SVG}path"))) == len(known)
    assert [name for _, name in chart.legend] == known
    both = ET.fromstring(alone([chart, chart], figure_style()))
    assert len(list(both.iter(f"{SVG}path"))) == 2 * len(known)
    titles = [one.text for one in both.iter(f"{SVG}text") if one.attrib.get("class") == "strong"]
    assert titles == ["One", "One"]


def test_a_name_has_one_colour_in_all_panels() -> None:
    panels = [
        curves.Panel("a", "A", "x", "y", [curves.Curve("sync", [(1, 1)]), curves.Curve("async", [(1, 2)])]),
        curves.Panel("b", "B", "x", "y", [curves.Curve("async", [(1, 1)])]),
    ]
    colours = curves.colours_of(panels)
    first, second = ({name: at for at, name in curves.draw(one, colours).legend} for one in panels)
    assert first["async"] == second["async"] != first["sync"]


@given(
    st.lists(st.sampled_from(("forward", "backward", "host", "input", "exposed.dp", "bubble")), unique=True, min_size=1)
)
def test_a_part_of_a_step_has_one_colour_and_no_two_have_the_same(names: list[str]) -> None:
    found = breakdown.colours(names)
    assert set(found) == set(names) and len(set(found.values())) == len(names)
    assert all(found[name] == breakdown.OWN.get(name, found[name]) for name in names)
    assert all(CATEGORIES[name] == breakdown.OWN[name] for name in ("forward", "backward", "optimizer"))


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_figures_have_their_legend_with_them(kind: str, tmp_path: Path) -> None:
    chart = errors.draw({"mil": [0.1, 0.2, 0.3]})
    save_drawing([chart], tmp_path / f"one.{kind}", "--plot")
    content = (tmp_path / f"one.{kind}").read_bytes()
    if kind == "svg":
        told = {one.text for one in ET.fromstring(content).iter(f"{SVG}text")}
        assert told >= {name for _, name in chart.legend}
        return
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")
    assert width == 3 * WIDTH
    assert height > 3 * chart.height


def test_pixels_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(MissingExtra, match="resvg") as problem:
        png("<svg/>")
    assert "foretell[png]" in problem.value.fix


def test_pages_of_virtual_time(foretell: Any, tmp_path: Path) -> None:
    file, plot = tmp_path / "s.html", tmp_path / "s.png"
    asked = ("lenet", "--on", "4xv100-16", "--learn", "squares", "--workers", "2,4", "--algorithms", "sync,async")
    assert foretell("simulate", *asked, "--html", str(file), "--plot", str(plot)).code == 0
    page = file.read_text()
    reader = read(page)
    assert reader.fetched == []
    assert len(reader.ids) == len(set(reader.ids))
    assert "<h2>4 workers</h2>" in page
    assert page.count("<figure>") == 6  # of 2 and of 4 workers: over time, over samples, staleness
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert foretell("simulate", "--fig14", "--html", str(file)).code == 0
    assert "figure 14" in file.read_text()
    assert foretell("simulate", *asked, "--plot", "drawing.pdf").code == 2


def test_one_picture_has_the_figures_and_a_ground_of_its_own(foretell: Any, tmp_path: Path) -> None:
    asked = ("report", TINY, "--on", "4xh100", "--plan", "pp2:1f1b dp2 +m4 +bf16", "--batch", "8")
    page, picture = str(tmp_path / "r.html"), tmp_path / "one.svg"
    told = json.loads(foretell(*asked, "--html", page, "--picture", str(picture), "--json").out)
    assert told["picture"] == str(picture)
    drawn = ET.fromstring(picture.read_bytes())
    said = {one.text for one in drawn.iter(f"{SVG}text")}
    assert {"MFU", "tokens/s/GPU", "pp2:1f1b dp2 +m4 +bf16", "pp rank 1"} <= said
    assert next(one.get("class") for one in drawn.iter(f"{SVG}rect")) == "paper"
    bad = foretell(*asked, "--html", page, "--picture", str(tmp_path / "one.txt"))
    assert bad.code == 2 and "--picture" in bad.err and "one.svg" in bad.err
