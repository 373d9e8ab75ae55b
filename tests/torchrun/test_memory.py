"""Memory as the allocator counts it: alike on all ranks, and between steps what the program says."""

from __future__ import annotations

import pytest
import torch

from foretell.hardware.catalog import cluster
from foretell.hardware.disturbance import Disturbance, SlowRank
from foretell.oracle.predict import predict
from foretell.program.expand import expand
from foretell.program.lower import lower
from foretell.runtime.assignment import Assignment
from foretell.runtime.launch import Ranks

LLAMA = "llama:layers=2,hidden=128,heads=4,kv_heads=2,ffn=256,vocab=512,seq=32"


def fullest(ranks: Ranks, assignment: Assignment) -> tuple[int, ...]:
    """The fullest moment of each rank."""
    return tuple(report.allocated for report in ranks.run(assignment))


@pytest.mark.parametrize("plan", ["dp1", "dp2", "dp2:zero3", "tp2", "dp2 tp2:sp"])
def test_weights_states_and_buckets_rest_between_steps(ranks: Ranks, plan: str) -> None:
    assignment = Assignment(model=LLAMA, plan=plan, batch=4, steps=1)
    reports = ranks.run(assignment)
    setting = assignment.setting
    said = expand(lower(setting)).stages[0].memory
    data = setting.plan.axis("dp")
    buckets = said.gradients if data is not None and data.world > 1 and ":zero3" not in plan else 0
    for report in reports:
        # beside these: the angles of positions, and the optimizer's count of steps for each weight
        assert report.resting == pytest.approx(said.weights + said.states + buckets, rel=0.01)
        assert report.allocated > report.resting


def test_a_step_rises_as_far_on_every_rank(ranks: Ranks) -> None:
    first, second = fullest(ranks, Assignment(model=LLAMA, plan="dp2:zero3", batch=4, steps=1))
    assert first == pytest.approx(second, rel=0.02)


def test_a_slow_rank_takes_as_much_as_the_others(ranks: Ranks) -> None:
    """What slows it shows buckets to Python, which are not to be counted twice."""
    disturbance = Disturbance(ranks=(SlowRank(1, 1.5),))
    reports = ranks.run(Assignment(model=LLAMA, plan="dp2", batch=4, steps=1, disturbance=disturbance))
    assert reports[0].resting == pytest.approx(reports[1].resting, rel=0.01)


@pytest.mark.skipif("AVX512" not in torch.backends.cpu.get_cpu_capability(), reason="blocks of other processors")
@pytest.mark.parametrize("plan", ["dp1", "dp2"])
def test_images_are_copied_into_blocks(ranks: Ranks, plan: str) -> None:
    assignment = Assignment(model="lenet", plan=plan, batch=64, steps=1)
    measured = max(fullest(ranks, assignment))
    setting = assignment.setting
    said = predict(setting, cluster(f"{setting.plan.ranks}xcpu-core")).memory.allocated
    assert said == pytest.approx(measured, rel=0.05)


AGAIN = [f"dp2{shares} +recompute:{word}" for shares in ("", ":zero3") for word in ("mlp", "operators", "block")]


PLANS = ("dp1", "dp2", "dp2:zero1", "dp2:zero2", "dp2:zero3", "tp2", "tp2:sp", "pp2:1f1b +m2", *AGAIN)


@pytest.mark.parametrize("plan", PLANS)
def test_the_fullest_moment_is_the_predicted_one(ranks: Ranks, plan: str) -> None:
    assignment = Assignment(model=LLAMA, plan=plan, batch=4, steps=1)
    measured = max(fullest(ranks, assignment))
    setting = assignment.setting
    said = predict(setting, cluster(f"{setting.plan.ranks}xcpu-core")).memory.allocated
    assert said == pytest.approx(measured, rel=0.05)


def test_weights_in_few_bits_are_widened_to_what_products_read(ranks: Ranks) -> None:
    """The copy of the largest weight is most of a step: 4 bytes an element in fp32, 2 in 16 bits and under autocast."""
    model = "llama:layers=1,hidden=1024,heads=8,kv_heads=8,ffn=4096,head_dim=128,vocab=64,seq=8"
    words = ("", " +bf16", " +bf16:pure")
    asked = [Assignment(model=model, plan=f"dp1 +lora8 +nf4{word}", batch=1, steps=1) for word in words]
    measured = [max(fullest(ranks, one)) for one in asked]
    assert predict(asked[0].setting, cluster("1xcpu-core")).memory.allocated == pytest.approx(measured[0], rel=0.05)
    # catalog processors have no units for 16 bits; what a GPU's libraries take besides is the same for all three
    besides = [
        predict(one.setting, cluster("1xh100")).memory.allocated - own for one, own in zip(asked, measured, strict=True)
    ]
    assert besides == pytest.approx(besides[:1] * 3, abs=0.04 * measured[0])


def test_more_micro_batches_are_not_more_memory(ranks: Ranks) -> None:
    """What was sent is let go when the other rank has read it, not at the end of a step."""
    model = "llama:layers=4,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=64,seq=64"
    few, many = (
        max(fullest(ranks, Assignment(model=model, plan=f"pp2:zb-v +m{count}", batch=2 * count, steps=1)))
        for count in (4, 32)
    )
    assert many == pytest.approx(few, rel=0.1)
