"""Each limit and bottleneck of the oracle paper's Table 6 fires where its numbers say so, and not elsewhere."""

from __future__ import annotations

import msgspec
import pytest

import foretell
from foretell.cost.memory import MemoryUse
from foretell.oracle.causes import NO_CAUSES, Causes, Exhausted
from foretell.oracle.explain import RULES, bottlenecks
from foretell.oracle.predict import Prediction
from foretell.oracle.training import Conditions
from foretell.plan.text import parse

LLAMA = "llama:layers=8,hidden=1024,heads=16,kv_heads=16,ffn=4096,vocab=32000,seq=512"
ROOM = MemoryUse(
    allocated=10.0, reserved=10.0, device=10.0, by_stage=(10.0,), by_kind={"activations": 10.0}, peak_moment="now"
)


def _names(found: Prediction) -> set[str]:
    return {one.name for one in found.bottlenecks}


def _fired(
    breakdown: dict[str, float], memory: MemoryUse = ROOM, capacity: float = 100.0, causes: Causes = NO_CAUSES
) -> set[str]:
    found = list(bottlenecks(breakdown, sum(breakdown.values()), memory, capacity, causes))
    assert all(one.why and one.relief and one.kind in ("limit", "bottleneck") for one in found)
    assert all(any(letter.isdigit() for letter in one.why) for one in found), "each has its number"
    return {one.name for one in found}


KEYS = {
    "gradient exchange": "exposed.dp",
    "layer-wise collectives": "exposed.tp",
    "messages between neighbours": "exposed.spatial",
    "pipeline bubble": "bubble",
    "host": "host",
    "recomputation": "recompute",
    "input": "input",
    "copies to the host": "other",
    "paging": "paging",
    "weight update": "optimizer",
}


def test_every_rule_of_shares_is_tried() -> None:
    assert {rule.name for rule in RULES} == set(KEYS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_share_fires_at_its_threshold(rule: object) -> None:
    name, least = getattr(rule, "name", ""), getattr(rule, "least", 0.0)
    key = KEYS[name]
    assert _fired({"forward": 1 - least * 1.01, key: least * 1.01}) == {name}
    assert _fired({"forward": 1 - least * 0.99, key: least * 0.99}) == set()


def test_groups_over_several_axes_count_once() -> None:
    assert _fired({"forward": 1.0, "exposed.dp+cp": 1.0}) == {"gradient exchange"}


def test_grids_of_spatial_axes_are_neighbours() -> None:
    assert _fired({"forward": 1.0, "exposed.spatial.0": 1.0}) == {"messages between neighbours"}


def test_causes_behind_the_step() -> None:
    step = {"forward": 1.0}
    assert _fired(step, causes=Causes(congestion=0.06, slowdown=2.0)) == {"network congestion"}
    assert _fired(step, causes=Causes(imbalance=0.06, unevenness=1.2)) == {"workload balancing"}
    assert _fired(step, causes=Causes(redundant=0.06)) == {"computation redundancy"}
    assert _fired(step, causes=Causes(0.04, 2.0, 0.04, 1.2, 0.04)) == set()
    assert _fired(step, causes=Causes(exhausted=(Exhausted("tp", 8, 8, "heads"),))) == {"number of ranks"}


def test_a_bubble_says_what_of_it_is_stage_imbalance() -> None:
    parts = {"forward": 0.7, "bubble": 0.3}
    (even,) = bottlenecks(parts, 1.0, ROOM, 100.0, Causes())
    assert even.why == "pipeline stages idle: 30 % of the step (threshold 10 %)"
    (uneven,) = bottlenecks(parts, 1.0, ROOM, 100.0, Causes(uneven=2 / 3))
    assert uneven.why == f"{even.why}, 10 % by the schedule and 20 % by stage imbalance"
    assert "split" in uneven.relief and "split" not in even.relief


def test_memory() -> None:
    full = msgspec.structs.replace(ROOM, device=95.0, reserved=95.0, allocated=95.0)
    assert _fired({"forward": 1.0}, full) == {"memory"}
    gaps = msgspec.structs.replace(ROOM, device=95.0, reserved=95.0, allocated=80.0)
    assert _fired({"forward": 1.0}, gaps) == {"memory", "memory stalling"}
    copies = msgspec.structs.replace(ROOM, device=60.0, by_kind={"weights": 40.0, "activations": 20.0})
    assert _fired({"forward": 1.0}, copies) == {"memory redundancy"}


# from predictions


def test_layers_that_do_not_divide_are_out_of_balance() -> None:
    uneven = foretell.predict(LLAMA, "8xh100", "pp2:1f1b,split=1/7 +m8 +bf16", batch=8)
    even = foretell.predict(
        LLAMA.replace("vocab=32000", "vocab=512"), "8xh100", "pp2:1f1b,split=4/4 +m8 +bf16", batch=8
    )
    assert "workload balancing" in _names(uneven)
    assert "workload balancing" not in _names(even)


def test_what_lies_between_layers_is_done_twice_without_sequence_parallelism() -> None:
    wide = "llama:layers=4,hidden=4096,heads=32,kv_heads=32,ffn=11008,vocab=32000,seq=2048"
    whole = foretell.predict(wide, "8xh100", "tp8 +bf16", batch=8, trainer="megatron-core")
    shared = foretell.predict(wide, "8xh100", "tp8:sp +bf16", batch=8, trainer="megatron-core")
    gathered = foretell.predict(wide, "8xh100", "tp8:sp +bf16", batch=8)  # every rank has all logits
    assert "computation redundancy" in _names(whole)
    assert "computation redundancy" not in _names(shared)
    assert "computation redundancy" in _names(gathered)


def test_filters_leave_batch_normalisation_to_everybody() -> None:
    """Kahira et al. 2021, section 4.5: every rank normalises all activations."""
    assert "computation redundancy" in _names(foretell.predict("resnet50", "4xv100-16", "filter4", batch=32))
    assert "computation redundancy" not in _names(foretell.predict("resnet50", "4xv100-16", "dp4", batch=128))


def test_eight_groups_share_the_ports_of_a_node() -> None:
    inside = foretell.predict(LLAMA, "8xh100", "dp8 +bf16", batch=8)
    across = foretell.predict(LLAMA, "2x8xv100-16,eth-25", "dp2 tp8 +fp16", batch=2)
    assert "network congestion" in _names(across)
    assert "network congestion" not in _names(inside)


def test_ranks_run_out() -> None:
    assert "number of ranks" in _names(foretell.predict(LLAMA, "8xh100", "dp8 +bf16", batch=8))
    assert "number of ranks" not in _names(foretell.predict(LLAMA, "8xh100", "dp8 +bf16", batch=64))


def test_a_run_has_limits_of_its_own() -> None:
    slow = Conditions(storage=1e8, dataset=1e11)
    found = foretell.predict(LLAMA, "8xh100", "dp8 +bf16", batch=64, samples=1e5, conditions=slow)
    assert "staging" in _names(found)
    often = Conditions(storage=1e9, interval=30.0, device_mtbf=1e5)
    found = foretell.predict(LLAMA, "8xh100", "dp8 +bf16", batch=64, samples=1e7, conditions=often)
    assert "goodput" in _names(found)
    assert not {"staging", "goodput"} & _names(foretell.predict(LLAMA, "8xh100", "dp8 +bf16", batch=64, samples=1e5))


def test_ranks_that_split_micro_batches_have_room_with_fewer_of_them() -> None:
    step = foretell.predict("gpt2", "8xh100", "dp8 +m8 +bf16", batch=64)
    (limit,) = [one for one in step.bottlenecks if one.name == "number of ranks"]
    assert limit.why == "data parallelism cannot grow: the micro-batch size is already 1"
    assert limit.relief == "fewer micro-batches, or a larger batch"
    fewer = foretell.predict("gpt2", "8xh100", "dp8 +m4 +bf16", batch=64)
    assert "number of ranks" not in {one.name for one in fewer.bottlenecks}
    whole = foretell.predict("gpt2", "8xh100", "dp8 +bf16", batch=8)
    (limit,) = [one for one in whole.bottlenecks if one.name == "number of ranks"]
    assert "micro-batch size is already 1" in limit.why and limit.relief == "a larger batch"
    odd = foretell.predict("gpt2", "8xh100", "dp4 tp2 +m2 +bf16", batch=8)
    assert "number of ranks" in {one.name for one in odd.bottlenecks}
    three = foretell.predict("gpt2", "8xh100", "dp8 +m3 +bf16", batch=48)
    assert "number of ranks" not in {one.name for one in three.bottlenecks}
    heads = foretell.predict("gpt2", "8xh100", "tp6 +bf16", batch=8)
    assert "number of ranks" not in {one.name for one in heads.bottlenecks}
    split = foretell.predict("gpt2", "16xh100", "tp12 +bf16", batch=8)
    (limit,) = [one for one in split.bottlenecks if one.name == "number of ranks"]
    assert limit.why == "tensor parallelism cannot double: tp12, and at most 12 (heads)"


SMALL = 100.0


@pytest.mark.parametrize("largest", ["activations", "working", "states", "weights", "gradients"])
def test_no_way_is_told_that_the_plan_takes(largest: str) -> None:
    """Each word of a way out is missing from the plan that it is told to."""
    words = {
        "zero1": "zero1",
        "zero2": "zero2",
        "zero3": "zero3",
        "+recompute:block": "recompute",
        "+offload:": "offload",
    }
    told = 0
    for text in ("dp8", "dp8:zero1", "dp8:zero3 +recompute:block", "dp2:zero3 tp2 pp2:1f1b +offload:optimizer +m4"):
        use = MemoryUse(99.0, 99.0, 99.0, (99.0,), {largest: 99.0}, "now")
        found = {one.name: one for one in bottlenecks({"forward": 1.0}, 1.0, use, SMALL, plan=parse(text))}
        ways = found["memory"].relief
        for word, had in words.items():
            assert not (word in ways and had in text), (text, ways)
            told += word in ways
        if "zero3" in text and largest in ("states", "weights", "gradients"):
            assert "zero" not in found["memory redundancy"].relief
    assert told or largest == "working"
