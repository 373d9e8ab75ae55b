"""Timelines that are drawn: what is too short to be seen is drawn as shares, and no second is lost or repainted."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.cost.price import priced
from foretell.hardware.catalog import cluster
from foretell.plan.job import Job
from foretell.plan.schedule import Slot
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.report.charts import pipeline, timeline
from foretell.report.mixes import CATEGORIES, Mix, mixes, spent
from foretell.timeline.simulate import Event, Simulated, simulate
from program_cases import load

MODEL = "llama:layers=4,hidden=64,heads=8,vocab=256,seq=32,kv_heads=4,head_dim=8,ffn=96"


def played(plan: str, batch: int = 256, trained_by: str = "megatron-core") -> Simulated:
    parsed = parse(plan)
    setting = Setting(load(MODEL, batch // parsed.microbatches), Job(batch=batch), parsed, trainer(trained_by))
    return simulate(priced(setting, cluster("16xh100")), joined=True)


def in_a_row(parts: Iterable[tuple[float, float, str, int]]) -> list[Event]:
    """Events of one stream: each after a gap, so long, of a category, in a slot."""
    found: list[Event] = []
    now = 0.0
    for gap, length, category, slot in parts:
        now += gap
        found.append(Event(0, "compute", "x", now, length, category, slot=Slot("F", 0, slot) if slot >= 0 else None))
        now += length
    return found


rows = st.lists(
    st.tuples(
        st.sampled_from((0.0, 1e-4, 0.5)),
        st.sampled_from((1e-5, 2e-3, 0.7)),
        st.sampled_from(("forward", "backward", "recompute")),
        st.integers(-1, 3),
    ),
    min_size=1,
    max_size=40,
)


@given(rows, st.sampled_from((1e-9, 1e-3, 1.0, 100.0)))
def test_what_is_joined_keeps_the_seconds_of_every_category(
    parts: list[tuple[float, float, str, int]], finest: float
) -> None:
    events, kept, lost = in_a_row(parts), defaultdict[str, float](float), defaultdict[str, float](float)
    found = mixes(events, finest)
    for one in found:
        for name, seconds in one.seconds.items():
            kept[name] += seconds
        assert one.busy <= one.end - one.start + 1e-9
    for event in events:
        lost[event.category] += event.seconds
    assert kept == pytest.approx(lost, abs=1e-9)
    assert spent(events) == pytest.approx(lost, abs=1e-9)
    assert all(before.end <= after.start + 1e-12 for before, after in pairwise(found))


def test_what_runs_behind_computation_is_hidden_and_what_does_not_is_exposed() -> None:
    slot = Slot("F", 0, 0)
    events = [
        Event(0, "compute", "a", 0.0, 1.0, "forward", slot=slot),
        Event(0, "activations tp", "b", 0.75, 0.5, "activations", slot=slot),
        Event(0, "weights dp", "c", 0.0, 2.0, "weights"),
    ]
    first, second = mixes(events, 0.1)
    assert first == Mix(0.0, 1.25, {"forward": 1.0, "activations": 0.25}, (slot,))
    assert second == Mix(1.25, 2.0, {"weights": 0.75}, ())
    assert first.told() == "forward 80%, TP, CP, EP communication 20%"


def rectangles(body: str) -> list[tuple[float, float, float, str]]:
    """Left, width, height and colour of what is drawn."""
    form = r'<rect x="([\d.-]+)" y="[\d.-]+" width="([\d.]+)" height="([\d.]+)" class="(c\d|row)"/>'
    return [(float(x), float(w), float(h), kind) for x, w, h, kind in re.findall(form, body)]


@pytest.mark.parametrize(
    "plan", ["pp2:1f1b dp4 tp2 +m128", "pp4:1f1b dp4:zero1 +m64 +recompute:block", "dp16:zero3 +m8"]
)
def test_the_area_of_a_colour_is_its_share_of_the_step(plan: str) -> None:
    """Of every stream of a step with more slots than pixels; what is widened to be seen is left out."""
    simulated = played(plan, 1024)
    drawn = rectangles(timeline.draw(simulated, finest=100).body)
    area, wide = defaultdict[str, float](float), 0.0
    for _, width, height, kind in drawn:
        if kind == "row":
            wide = width
        elif width > timeline.THINNEST:
            area[kind] += width * height / (timeline.ROW - 2) / wide
    whole = max(e.start + e.seconds for e in simulated.events) - min(e.start for e in simulated.events)
    share = defaultdict[str, float](float)
    for event in simulated.events:
        if event.kind in timeline.shown(len(simulated.kinds)):
            share[f"c{CATEGORIES[event.category]}"] += event.seconds / whole
    for kind in ("c0", "c1"):  # forward and backward fill the row, and are never one bar's colour alone
        assert area[kind] == pytest.approx(share[kind], rel=0.03)


def test_a_step_is_folded_only_where_micro_batches_are_left_out() -> None:
    """Long messages at the end of a step make its micro-batches a small part of it."""
    parsed = parse("dp64:zero1 +m8 +bf16")
    setting = Setting(load("llama3-8b:layers=2", 64), Job(batch=512), parsed, trainer("pytorch"))
    simulated = simulate(priced(setting, cluster("64xh100")), joined=True)
    assert len(pipeline.parts_of(simulated)) == 1
    assert "are drawn" not in pipeline.draw(simulated).told


def test_a_long_pipeline_is_folded_and_says_so() -> None:
    simulated = played("pp4:1f1b dp4 +m256", 1024)
    chart, parts = pipeline.draw(simulated), pipeline.parts_of(simulated)
    assert len(parts) == 3
    assert parts[0].end < parts[1].start < parts[1].end < parts[2].start
    (told,) = re.findall(r"Of 256 micro-batches (\d+) are drawn.* the other (\d+) go on", chart.told)
    drawn, left = map(int, told)
    assert drawn + left == 256
    assert 8 < drawn < 40


def test_a_short_step_is_drawn_whole() -> None:
    simulated = played("pp2:1f1b dp4 tp2 +m4")
    chart = pipeline.draw(simulated)
    assert len(pipeline.parts_of(simulated)) == 1
    assert "are drawn" not in chart.told
    marks = re.findall(r'aria-label="([^"]*)"', chart.body)
    for rank in range(2):
        for pass_ in ("forward", "backward"):
            for at in range(4):
                assert any(f"pipeline rank {rank}, 8 ranks: {pass_} of micro-batch {at}," in one for one in marks)


@pytest.mark.parametrize(
    "plan", ["pp4:gpipe dp4 +m64", "pp2:zb-v dp8 +m32", "pp2:dualpipe dp8 +m32", "pp2:interleaved,v2 dp8 +m64"]
)
def test_every_schedule_is_drawn(plan: str) -> None:
    simulated = played(plan, 1024, "pytorch")
    chart = pipeline.draw(simulated)
    colours: dict[str, float] = defaultdict(float)
    for _, width, height, kind in rectangles(chart.body):
        colours[kind] += width * height
    assert colours["c0"] > 0 and colours["c1"] > 0
