"""Laws of the bubble's parts: that of the schedule, and stage imbalance."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import foretell
from foretell.cost.price import PricedProgram, priced
from foretell.hardware.catalog import cluster
from foretell.model.source import load
from foretell.oracle.predict import predict
from foretell.oracle.rates import bubble_parts, split_breakdown, step_rates
from foretell.plan.fitness import fits
from foretell.plan.job import Job
from foretell.plan.schedule import find
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.timeline.result import composed
from law_examples import reached

ON = cluster("16xh100")
SMALL = "gpt:layers=12,hidden=256,heads=8,vocab=1000,seq=128"
WIDE = "llama:layers=16,hidden=4096,heads=32,kv_heads=8,ffn=14336,vocab=32000,seq=2048"
PIPELINES = (
    "pp4:gpipe",
    "pp4:1f1b",
    "pp2:interleaved,v2",
    "pp4:zb-h1",
    "pp2:zb-v",
    "pp3:1f1b,split=2/5/5",
    "pp2:dualpipe",
)


def drawn(count: int, pipeline: str, data: str, trained_by: str) -> Setting:
    plan = parse(f"{pipeline} {data} +m{count} +bf16")
    return Setting(load(SMALL, 8), Job(batch=8 * count), plan, trainer(trained_by))


SETTINGS = st.builds(
    drawn,
    st.sampled_from((4, 8, 16, 64)),
    st.sampled_from(PIPELINES),
    st.sampled_from(("", "dp2", "dp2:zero1", "tp2:sp", "dp2:zero3")),
    st.sampled_from(("pytorch", "pytorch-compiled", "nanotron", "megatron-core")),
).filter(lambda setting: fits(setting, ON))


@pytest.mark.reaches(imbalanced=5)
@given(SETTINGS)
def test_both_parts_together_are_the_bubble(setting: Setting) -> None:
    found = predict(setting, ON)
    bubble, parts = found.breakdown.get("bubble", 0.0), bubble_parts(found)
    assert min(parts.values()) >= 0
    assert parts["schedule"] + parts["imbalance"] == pytest.approx(bubble, rel=1e-12, abs=0)
    assert sum(split_breakdown(found).values()) == pytest.approx(found.step_seconds)
    assert step_rates(found).bubble_parts == parts
    if parts["imbalance"] > 1e-3 * found.step_seconds:
        reached("imbalanced")


def _equal(text: str) -> tuple[PricedProgram, int]:
    """A plan whose stages are all as one in the middle, and whose messages between stages take no time; its slots'
    micro-batches."""
    plan = parse(text)
    setting = Setting(load(WIDE, 1), Job(batch=plan.microbatches), plan, trainer("megatron-core"))
    known = priced(setting, ON)
    middle = known.stages[len(known.stages) // 2]
    sends = tuple(type(one)(*(0.0 for _ in one)) for one in known.sends)
    return known._replace(stages=(middle,) * len(known.stages), sends=sends), plan.microbatches


@pytest.mark.parametrize("microbatches", [8, 16, 64])
@pytest.mark.parametrize(
    ("ranks", "schedule", "chunks"), [(4, "1f1b", 1), (8, "1f1b", 1), (4, "gpipe", 1), (4, "interleaved", 2)]
)
def test_equal_stages_have_the_bubble_of_the_schedule_alone(
    ranks: int, schedule: str, chunks: int, microbatches: int
) -> None:
    more = f",v{chunks}" if chunks > 1 else ""
    plan, count = _equal(f"pp{ranks}:{schedule}{more} +m{microbatches} +bf16")
    made = composed(plan, ON)
    assert made.imbalance == pytest.approx(0.0, abs=1e-9 * made.step_seconds)
    forward, backward = (made.breakdown[name] / count for name in ("forward", "backward"))
    formula = find(schedule).bubble(ranks, count, chunks, forward, backward / 2, backward / 2)
    if schedule == "1f1b":
        assert formula == pytest.approx((ranks - 1) * (forward + backward))
    assert made.breakdown["bubble"] - made.imbalance == pytest.approx(formula, rel=1e-6)


def test_short_end_stages_are_imbalance() -> None:
    """Three layers at both ends, five between: the rank at an end idles two layers of five in each micro-batch; the
    schedule fills and drains three other stages of 3 + 5 + 3 layers."""
    uneven = foretell.predict(WIDE, ON, "pp4:1f1b,split=3/5/5/3 +m64 +bf16", batch=256, trainer="megatron-core")
    parts, slots = bubble_parts(uneven), 64 + 11 / 5
    assert parts["schedule"] / uneven.step_seconds == pytest.approx(11 / 5 / slots, rel=0.1)
    assert parts["imbalance"] / uneven.step_seconds == pytest.approx(64 * 2 / 5 / slots, rel=0.1)
