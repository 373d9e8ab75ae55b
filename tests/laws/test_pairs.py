"""A forward and a backward that run together: what their time is, in the composition and played event by event."""

from __future__ import annotations

import functools
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from foretell.cost.price import PricedProgram, priced
from foretell.hardware.catalog import cluster
from foretell.model.graph import Graph
from foretell.plan.job import Job
from foretell.plan.schedule import SLOT_KINDS, Block, Slot, find, waits_for
from foretell.plan.setting import Setting
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.text import parse
from foretell.plan.trainer import Trainer, trainer
from foretell.program.partition import pipeline_partition
from foretell.timeline.pairs import hidden_seconds
from foretell.timeline.result import composed
from foretell.timeline.simulate import simulate
from program_cases import load

SMALL = (
    "deepseek:layers=8,hidden=1024,heads=8,query_rank=256,kv_rank=128,head_dim=64,rotary_dim=32,value_dim=64,"
    "vocab=2048,seq=1024,ffn=2048,experts=32,top_k=4,expert_ffn=512,groups=4,top_groups=2,first_dense=0,dtype=bf16"
)
ON = "64xh100"
BATCH = 1024

PLANS = (
    "pp2:dualpipe dp32:ep16 +m8 +bf16",
    "pp4:dualpipe dp16:zero1,ep16 +m16 +fp8:block",
    "pp4:dualpipe dp16:zero1,ep16,alltoall +m64 +bf16",
    "pp4:dualpipe-v dp16:zero1,ep16 +m16 +bf16",
    "pp4:zb-h1 dp16:zero1,ep16 +m16 +bf16",
)

OVERLAPPED = (
    "dp64:zero1,ep16 +m4 +bf16 +a2a-overlap",
    "dp64:zero1,ep32,hybridep +m16 +bf16 +a2a-overlap",
    "pp2:interleaved,v2 dp32:zero1,ep16,deepep +m8 +bf16 +a2a-overlap",
    "pp4:interleaved,v2 dp16:zero1,ep16 +m32 +recompute:mla_up_proj +bf16 +a2a-overlap",
)
"""Plans of Megatron-Core whose passes run in pairs."""


@functools.cache
def model(samples: int) -> Graph:
    return load(SMALL, samples)


@functools.cache
def hostless(beside: int) -> Trainer:
    """DeepSeek's trainer with launches that take no time, whose messages hold so many multiprocessors."""
    found = trainer("deepseek")
    host = msgspec.structs.replace(found.host, launch=0.0, tensor=0.0)
    return msgspec.structs.replace(found, host=host, experts=msgspec.structs.replace(found.experts, beside=beside))


def plan_of(text: str, by: Trainer) -> PricedProgram:
    plan = parse(text)
    return priced(Setting(model(BATCH // plan.microbatches), Job(batch=BATCH), plan, by), cluster(ON))


@pytest.mark.parametrize("by", [trainer("deepseek"), hostless(20)], ids=["deepseek", "hostless"])
@pytest.mark.parametrize("text", PLANS)
def test_the_composition_takes_as_long_as_the_simulation(text: str, by: Trainer) -> None:
    plan = plan_of(text, by)
    whole = composed(plan, cluster(ON), whole=True)
    played = simulate(plan).step_seconds
    assert whole.step_seconds == pytest.approx(played, rel=1e-4 if "dualpipe-v" in text else 1e-9)
    assert composed(plan, cluster(ON)).step_seconds == pytest.approx(whole.step_seconds, rel=1e-3)
    assert sum(whole.breakdown.values()) == pytest.approx(whole.step_seconds, rel=1e-9)
    assert min(whole.breakdown.values()) >= 0


def without_launches(by: Trainer) -> Trainer:
    return msgspec.structs.replace(by, host=hostless(0).host)


@pytest.mark.parametrize("text", OVERLAPPED)
def test_overlapped_rows_take_as_long_as_the_simulation_and_less_than_waited_for_ones(text: str) -> None:
    """Where launches are waited for, shares of new weights come 1e-5 of a step earlier in the one, in pairs or not."""
    by = trainer("megatron-core")
    launched = plan_of(text, by)
    assert composed(launched, cluster(ON), whole=True).step_seconds == pytest.approx(
        simulate(launched).step_seconds, rel=1e-5
    )
    plan, alone = (plan_of(own, without_launches(by)) for own in (text, text.removesuffix(" +a2a-overlap")))
    whole = composed(plan, cluster(ON), whole=True)
    assert whole.step_seconds == pytest.approx(simulate(plan).step_seconds, rel=1e-9)
    assert composed(plan, cluster(ON)).step_seconds == pytest.approx(whole.step_seconds, rel=1e-3)
    assert sum(whole.breakdown.values()) == pytest.approx(whole.step_seconds, rel=1e-9)
    assert min(whole.breakdown.values()) >= 0
    assert whole.step_seconds < composed(alone, cluster(ON), whole=True).step_seconds


def test_without_a_pipeline_each_pair_hides_what_one_pair_hides() -> None:
    """m micro-batches are a forward, m - 1 pairs and a backward (Megatron-Core's combined_1f1b.py)."""
    by = without_launches(trainer("megatron-core"))
    plan, alone = (plan_of(f"dp64:zero1,ep16 +m16 +bf16{more}", by) for more in (" +a2a-overlap", ""))
    gained = simulate(alone).step_seconds - simulate(plan).step_seconds
    assert gained == pytest.approx(15 * hidden_seconds(plan, (Slot("B", 0, 0), Slot("F", 0, 1))), rel=1e-9)


@pytest.mark.parametrize(("ranks", "microbatches", "chunks"), [(1, 5, 1), (2, 4, 2), (4, 8, 2), (4, 16, 3), (8, 32, 2)])
def test_pairs_are_of_two_micro_batches_after_one_forward_more(ranks: int, microbatches: int, chunks: int) -> None:
    """Megatron-Core 0.15, schedules.py, get_pp_rank_microbatches: warm-up is one forward longer; then pairs alone."""
    plain = find("interleaved" if chunks > 1 else "1f1b")
    for rank, blocks in enumerate(plain.in_pairs().blocks(ranks, microbatches, chunks)):
        ahead = next(n for n, block in enumerate(blocks) if len(block) > 1 or block[0].kind == "B")
        warm = (chunks - 1) * ranks + 2 * (ranks - 1 - rank) + 1
        total = microbatches * chunks
        assert ahead == min(warm, total)
        pairs = [block for block in blocks if len(block) == 2]
        assert len(pairs) == total - ahead
        assert all({slot.kind for slot in pair} == {"F", "B"} for pair in pairs)
        assert all(pair[0][1:] != pair[1][1:] for pair in pairs)
        slots = [slot for block in blocks for slot in block]
        assert sorted(slots) == sorted(plain.order(ranks, microbatches, chunks)[rank])


@pytest.mark.parametrize("schedule", ["dualpipe", "1f1b"])
def test_the_layer_of_the_second_token_is_on_the_last_stage(schedule: str) -> None:
    """With both heads, and composition and simulation agree on it."""
    graph, by = load(f"{SMALL},mtp=1", BATCH // 16), trainer("deepseek")
    plan = priced(
        Setting(graph, Job(batch=BATCH), parse(f"pp4:{schedule} dp16:zero1,ep16 +m16 +bf16"), by), cluster(ON)
    )
    composition, played = composed(plan, cluster(ON), whole=True).step_seconds, simulate(plan).step_seconds
    assert composition == pytest.approx(played, rel=1e-9)
    parts = pipeline_partition(graph, Pipeline(ranks=4, schedule=schedule), by.pipeline.split).row.parts
    assert [len({piece.layer for piece in part if piece.layer}) for part in parts] == [3, 2, 2, 2]
    paths = [
        [node.path for piece in part for node in graph.blocks[piece.block].nodes[piece.start : piece.stop]]
        for part in parts
    ]
    assert [any(path.startswith("mtp.0") for path in own) for own in paths] == [False, False, False, True]
    assert [own.count("head") for own in paths] == [0, 0, 0, 2]
    without = priced(
        Setting(model(BATCH // 16), Job(batch=BATCH), parse(f"pp4:{schedule} dp16:zero1,ep16 +m16 +bf16"), by),
        cluster(ON),
    )
    assert composition > composed(without, cluster(ON), whole=True).step_seconds


def sums(plan: PricedProgram, stage: int, kind: str, what: str) -> float:
    number = SLOT_KINDS.index(kind)
    layers = plan.signatures[plan.stages[stage]].layers
    return sum(float(getattr(plan.kinds[own], what)[number]) * times for own, times, *_ in layers)


@pytest.mark.parametrize("beside", [1, 20, 100, 132])
def test_a_pair_takes_the_longer_of_its_kernels_and_its_messages(beside: int) -> None:
    """T = max(C + s M, M), as long as messages are no longer than both together hide."""
    plan = plan_of(PLANS[1], hostless(beside))
    pair = Slot("F", 1, 0), Slot("B", 2, 0)
    busy = sum(sums(plan, slot.stage, slot.kind, "device") for slot in pair)
    rows = sum(sums(plan, slot.stage, slot.kind, "rows") for slot in pair)
    assert 0 < rows < busy
    together = max(busy - rows + beside / 132 * rows, rows)
    assert busy - hidden_seconds(plan, pair) == pytest.approx(together, rel=1e-12)


def together(plan: PricedProgram, block: Block, beside: int) -> float:
    """Seconds of a rank's block of slots, from the sums of its layers alone: a pair takes max(C + s M, M)."""
    busy = sum(sums(plan, slot.stage, slot.kind, "device") for slot in block)
    if len(block) == 1:
        return busy
    rows = sum(sums(plan, slot.stage, slot.kind, "rows") for slot in block)
    return max(busy - rows + beside / 132 * rows, rows)


def listed(plan: PricedProgram, beside: int, ranks: int, microbatches: int) -> float:
    """When the last slot of DualPipe's list is over, each block as long as its own stages make it; sending is free."""
    schedule = find("dualpipe")
    todo = [list(reversed(blocks)) for blocks in schedule.blocks(ranks, microbatches, 2)]
    free, over = [0.0] * ranks, dict[Slot, float]()
    while any(todo):
        for rank, own in enumerate(todo):
            while own:
                needs = [waits_for(slot, schedule.path(slot.microbatch, ranks, microbatches, 2)) for slot in own[-1]]
                if not all(need is None or need in over for need in needs):
                    break
                start = max(free[rank], *(over[need] for need in needs if need), 0.0)
                block = own.pop()
                free[rank] = start + together(plan, block, beside)
                for slot in block:
                    over[slot._replace(kind="I") if slot.kind == "B" else slot] = free[rank]
    return max(free)


@pytest.mark.parametrize("beside", [20, 60, 100])
def test_dualpipe_gains_what_its_list_of_slots_gains(beside: int) -> None:
    """Played, against the list of slots with each stage's own seconds: stages with the ends of the model too.

    Sends come on top, by as much whatever messages hold; where they hold few (10 and less), another row of slots with
    fewer sends is the longest, and the gain is up to 1 % larger.
    """
    plan, alone = (plan_of(PLANS[1], hostless(held)) for held in (beside, 132))
    gained = simulate(alone).step_seconds - simulate(plan).step_seconds
    assert 0 < gained == pytest.approx(listed(alone, 132, 4, 16) - listed(plan, beside, 4, 16), rel=1e-9)


def test_messages_beside_other_passes_are_seen_once() -> None:
    """The events of a rank's kernels do not overlap one another, though messages run beside them."""
    played = simulate(plan_of(PLANS[1], hostless(20)))
    kernels: Any = sorted(
        (event.start, event.start + event.seconds)
        for event in played.events
        if event.kind == 0 and event.stream == "compute"
    )
    assert len(kernels) > 100
    assert all(after[0] >= before[1] - 1e-9 for before, after in pairwise(kernels))
    assert kernels[-1][1] <= played.step_seconds + 1e-9
