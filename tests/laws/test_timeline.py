"""Laws of the timeline: simulated steps stay within their bounds, and the composition agrees with them."""

from __future__ import annotations

import dataclasses
import functools
from itertools import pairwise
from math import fsum
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.cost.kernels import chains, kernel_seconds
from foretell.cost.price import PricedProgram, priced
from foretell.cost.prices import Prices
from foretell.hardware.catalog import cluster
from foretell.hardware.cluster import Cluster
from foretell.oracle.predict import predict
from foretell.plan.job import Job
from foretell.plan.policies.precision import Precision
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.program.action import Compute
from foretell.program.expand import expand
from foretell.program.expanded import ExpandedProgram, belongs
from foretell.program.lower import lower
from foretell.timeline.observation import PHASES
from foretell.timeline.simulate import Simulated, simulate
from foretell.timeline.works import COPIES
from law_examples import reached
from program_cases import load

SMALL = "llama:layers=4,hidden=64,heads=8,vocab=256,seq=32,kv_heads=4,head_dim=8,ffn=96"
"""So small that hosts and latencies decide."""

WIDE = "llama:layers=4,hidden=2048,heads=16,vocab=8192,seq=1024,kv_heads=4,head_dim=128,ffn=4096,dtype=bf16"
"""So wide that products and bytes do."""

DEEP = "gpt:layers=8,hidden=512,heads=8,vocab=1024,seq=256,dtype=bf16"

BATCH = 64
SCHEDULES = ("gpipe", "1f1b", "interleaved,v2", "zb-h1", "zb-v", "dualpipe", "dualpipe-v")
HOSTLESS = ("pytorch-compiled",)
"""Trainers whose host never shows."""

TRAINERS = (*HOSTLESS, "pytorch", "torchtitan", "nanotron", "megatron-core", "megatron-deepspeed", "deepspeed")


class Case(NamedTuple):
    """What is simulated."""

    model: str
    plan: str
    trained_by: str

    @property
    def setting(self) -> Setting:
        return _setting(*self)

    @property
    def program(self) -> ExpandedProgram:
        return _program(*self)

    def predicted(self, on: Cluster) -> float:
        return predict(self.setting, on).step_seconds

    def simulated(self, on: Cluster, ahead: bool = False) -> Simulated:
        return simulate(priced(self.setting, on), self.program, ahead)


@functools.cache
def _setting(model: str, plan: str, trained_by: str) -> Setting:
    parsed = parse(plan + (" +bf16" if "bf16" in model else ""))
    graph = load(model, BATCH // parsed.microbatches)
    return Setting(graph, Job(batch=BATCH), parsed, trainer(trained_by))


@functools.cache
def _program(model: str, plan: str, trained_by: str) -> ExpandedProgram:
    return expand(lower(_setting(model, plan, trained_by)))


ON = cluster("16xh100")
"""Two nodes."""


def of(*words: str) -> st.SearchStrategy[str]:
    return st.sampled_from(words)


DATA = of("", "dp2", "dp4", "dp2:zero1", "dp4:zero2", "dp4:zero3", "dp2:zero3,shard2")
INSIDE = of("", "tp2", "tp2:sp", "cp2:ring", "cp2:alltoall")


@st.composite
def cases(draw: st.DrawFn, overlap: str = "", trainers: tuple[str, ...] = TRAINERS) -> Case:
    """Any plan of up to sixteen ranks, with or without a pipeline."""
    # Where weights change with each micro-batch, the simulation lets new ones travel before they are made.
    schedule = draw(of("", *SCHEDULES, *(("stash",) if overlap == "+no-overlap" else ())))
    pipeline = f"pp2:{schedule}" if schedule else ""
    count = draw(st.sampled_from((4, 8))) if schedule else draw(st.sampled_from((1, 2, 4)))
    recompute = draw(of("", "", "+recompute:attention", "+recompute:block", "+recompute:first1", "+recompute:nth2"))
    parts = (pipeline, draw(DATA), draw(INSIDE), f"+m{count}", recompute, overlap)
    return Case(draw(of(SMALL, WIDE, DEEP)), " ".join(part for part in parts if part), draw(of(*trainers)))


def seconds(found: Simulated, place: int, *categories: str) -> float:
    return fsum(event.seconds for event in found.events if event.kind == place and event.category in categories)


WORK = ("forward", "backward", "recompute", "optimizer", "activations", "copy")
"""What a rank does one after the other."""


# Bounds. ---------------------------------------------------------------------------------------------


@given(cases())
def test_a_step_is_between_its_longest_chain_and_everything_in_a_row(case: Case) -> None:
    found = case.simulated(ON)
    rounding = 1 + 1e-9
    everything = fsum(event.seconds for event in found.events)
    assert found.step_seconds <= everything * rounding
    for place in range(len(case.program.kinds)):
        assert seconds(found, place, *WORK) <= found.step_seconds * rounding
        assert seconds(found, place, "weights") <= found.step_seconds * rounding
        assert seconds(found, place, "host") <= found.step_seconds * rounding
    assert _one_microbatch(case) <= found.step_seconds * rounding


def _one_microbatch(case: Case) -> float:
    """One micro-batch down the pipeline and back."""
    prices = Prices(case.program.axes, ON, case.setting.plan.policy(Precision).format, case.setting.trainer)
    first = case.program.kinds[0].slots[0].stage
    total, at = 0.0, first
    while at >= 0:
        stage = case.program.stages[at]
        for kind in ("F", "B" if len(case.program.kinds) == 1 else "I"):  # nobody waits for gradients of weights
            for body, times in stage.passes(kind):
                cost = prices.body(body.actions).of(kind)
                total += (cost.device + sum(cost.transfers.values())) * times
        at = stage.after
    return total


@given(cases(trainers=HOSTLESS))
def test_all_work_of_the_program_is_done_once(case: Case) -> None:
    found = case.simulated(ON)
    form, fusion = case.setting.plan.policy(Precision).format, case.setting.trainer.fusion
    for kind in case.program.kinds:
        computed = fsum(
            kernel_seconds(action, ON.device, form, case.setting.trainer).seconds * times
            for body, times, slot in case.program.walk(kind)
            for action in chains(
                body.actions, case.setting.trainer.execution, fusion.norms_take_in, fusion.complex_rotary
            )
            if isinstance(action, Compute) and belongs(action, slot)
        )
        copies = fsum(event.seconds for event in found.events if event.kind == kind.place and event.name == COPIES)
        shown = seconds(found, kind.place, "forward", "backward", "recompute") - copies
        assert shown == pytest.approx(computed)
        sent = fsum(
            message.payload * times
            for message, times in case.program.communications(kind)
            if message.kind not in ("send", "receive")
        )
        moved = fsum(e.bytes for e in found.events if e.kind == kind.place and e.category in ("activations", "weights"))
        assert moved == pytest.approx(sent)


@pytest.mark.parametrize("trained_by", ["pytorch-compiled", "pytorch", "nanotron"])
@pytest.mark.parametrize("plan", ["dp1", "dp1 +m4", "dp1 +m2 +recompute:block"])
@pytest.mark.parametrize("model", [SMALL, WIDE])
def test_one_rank_alone_is_the_sum_of_its_parts(model: str, plan: str, trained_by: str) -> None:
    """Of those of the device, or of those of the host where these are longer everywhere."""
    found = Case(model, plan, trained_by).simulated(ON)
    device = seconds(found, 0, *WORK)
    if model == WIDE:
        assert found.step_seconds == pytest.approx(device, rel=1e-3)
    else:
        update = seconds(found, 0, "optimizer")
        assert found.step_seconds == pytest.approx(seconds(found, 0, "host") + update, rel=0.02)


@pytest.mark.reaches(waits=3)
@given(cases())
def test_streams_are_in_order_and_the_last_stage_waits_for_the_first(case: Case) -> None:
    found = case.simulated(ON)
    assert all(event.seconds > 0 for event in found.events)
    for place in range(len(case.program.kinds)):
        own = [event for event in found.events if event.kind == place]
        for stream in {event.stream for event in own}:
            row = [event for event in own if event.stream == stream]
            assert all(one.start + one.seconds <= other.start + 1e-12 for one, other in pairwise(row)), stream
    arrivals = [e.start + e.seconds for e in found.events if (e.kind, e.stream) == (0, "sends forward")]
    if arrivals and "pp2:dualpipe " not in case.plan:  # which begins at both ends
        reached("waits")
        assert min(e.start for e in found.events if (e.kind, e.stream) == (1, "compute")) >= min(arrivals)


# Agreement. ------------------------------------------------------------------------------------------


@given(cases(overlap="+no-overlap"))
def test_composition_and_simulation_agree_without_overlap(case: Case) -> None:
    assert case.predicted(ON) == pytest.approx(case.simulated(ON).step_seconds, rel=0.01)


@given(cases())
def test_composition_and_simulation_agree_with_overlap(case: Case) -> None:
    assert case.predicted(ON) == pytest.approx(case.simulated(ON).step_seconds, rel=0.03)


@pytest.mark.parametrize(
    "plan", ["dp1 +m2 +recompute:block", "dp1 +m2", "pp2:1f1b +m4 +recompute:block", "pp2:zb-h1 +m4"]
)
def test_activations_go_to_the_host_beside_kernels(plan: str) -> None:
    """With torchtune: never longer than where kernels wait for copies, and never shorter than without any."""
    offloaded = f"{plan} +offload:activations"
    stays, beside, waits = (
        Case(WIDE, text, runs).predicted(ON)
        for text, runs in ((plan, "torchtune"), (offloaded, "torchtune"), (offloaded, "pytorch"))
    )
    assert stays <= beside * (1 + 1e-9)
    assert beside < waits
    assert beside == pytest.approx(Case(WIDE, offloaded, "torchtune").simulated(ON).step_seconds, rel=0.01)


MET = (
    (SMALL, "dp1", "pytorch"),  # launches of the optimizer
    (DEEP, "pp2:zb-h1 +m4 +no-overlap", "pytorch"),  # the host in W
    (WIDE, "dp16:zero3", "pytorch-compiled"),  # both ends of a pass
    (WIDE, "dp2:zero3,shard8", "pytorch-compiled"),
    (WIDE, "dp16", "pytorch-compiled"),  # the last bucket
    (WIDE, "dp16", "fsdp"),  # one bucket for all
    (WIDE, "dp8:zero1 tp2 +m2", "nanotron"),  # a late host
    (WIDE, "pp2:interleaved,v2 dp8 +m4", "pytorch-compiled"),  # several stages on a rank
    (SMALL, "pp2:dualpipe +m4", "pytorch-compiled"),  # weights on two stages
)


@pytest.mark.parametrize(("model", "plan", "trained_by"), MET)
def test_composition_and_simulation_agree_where_they_once_did_not(model: str, plan: str, trained_by: str) -> None:
    case = Case(model, plan, trained_by)
    assert case.predicted(ON) == pytest.approx(case.simulated(ON).step_seconds, rel=0.01)


def test_composition_and_simulation_agree_on_slow_links() -> None:
    """A link carries one transfer at a time."""
    case, slow = Case(WIDE, "pp2:gpipe +m8 +no-overlap", "pytorch-compiled"), slower(ON, rate=1 / 50)
    assert case.predicted(slow) == pytest.approx(case.simulated(slow).step_seconds, rel=0.01)


@given(cases())
def test_a_breakdown_has_closed_keys_and_adds_up(case: Case) -> None:
    found = predict(case.setting, ON)
    assert fsum(found.breakdown.values()) == pytest.approx(found.step_seconds, rel=1e-9)
    assert all(seconds > 0 for seconds in found.breakdown.values())
    assert {name for name in found.breakdown if not name.startswith("exposed.")} <= set(PHASES)


# What changes how. -----------------------------------------------------------------------------------


def slower(on: Cluster, rate: float = 1.0, latency: float = 1.0) -> Cluster:
    """A cluster whose links have a part of the rate, or more latency."""
    levels = tuple(
        msgspec.structs.replace(
            level,
            link=msgspec.structs.replace(
                level.link,
                bandwidth=level.link.bandwidth * rate,
                ceiling=level.link.ceiling * rate,
                latency_seconds=level.link.latency_seconds * latency,
            ),
        )
        for level in on.levels
    )
    return msgspec.structs.replace(on, levels=levels)


def faster(on: Cluster, times: float) -> Cluster:
    """A cluster whose devices are so many times as fast."""
    (group,) = on.groups
    device = group.device
    quick: dict[str, Any] = {
        "peak": {name: rate * times for name, rate in device.peak.items()},
        "vector": {name: rate * times for name, rate in device.vector.items()},
        "memory_bandwidth": device.memory_bandwidth * times,
        "clock_hz": device.clock_hz * times,
        "launch_seconds": device.launch_seconds / times,
    }
    better = msgspec.structs.replace(device, **quick)
    return msgspec.structs.replace(on, groups=(msgspec.structs.replace(group, device=better),))


def heavier(plan: PricedProgram, times: float) -> PricedProgram:
    """The same program with longer messages between stages, and layers that compute longer."""
    kinds = {
        kind: dataclasses.replace(own, device=tuple(seconds * times for seconds in own.device))
        for kind, own in plan.kinds.items()
    }
    sends = tuple(type(own)(*(seconds * times for seconds in own)) for own in plan.sends)
    return plan._replace(kinds=kinds, sends=sends)


@given(cases(), st.floats(1.1, 8))
def test_slower_links_more_latency_and_more_bytes_are_never_faster(case: Case, times: float) -> None:
    """But for what Graham 1969 found: ranks that wait for each other may meet better when one is later."""
    least = case.simulated(ON).step_seconds * (1 - 0.01)
    assert case.simulated(slower(ON, rate=1 / times)).step_seconds >= least
    assert case.simulated(slower(ON, latency=times)).step_seconds >= least
    assert simulate(heavier(priced(case.setting, ON), times), case.program).step_seconds >= least


@given(cases(), st.floats(1.1, 4))
def test_a_faster_device_is_never_slower(case: Case, times: float) -> None:
    assert case.simulated(faster(ON, times)).step_seconds <= case.simulated(ON).step_seconds * (1 + 1e-9)


@pytest.mark.parametrize("plan", ["dp1", "dp4 +m2", "dp4:zero3", "dp2 tp2", "pp2:1f1b +m4"])
def test_a_host_bound_eager_step_does_not_change_with_the_device(plan: str) -> None:
    """All of it where the host goes on into the next step; else all but what comes after it has waited."""
    case = Case(SMALL, plan, "pytorch")
    quick = faster(ON, 2)
    if "pp" not in plan:  # stages wait for each other's device
        assert case.simulated(quick, ahead=True).step_seconds == pytest.approx(
            case.simulated(ON, ahead=True).step_seconds, rel=1e-9
        )
    usual, new = case.simulated(ON), case.simulated(quick)
    assert new.step_seconds == pytest.approx(usual.step_seconds, rel=0.02)
    assert seconds(new, 0, "forward", "backward") < 0.6 * seconds(usual, 0, "forward", "backward")


def test_without_overlap_is_never_faster() -> None:
    for plan in ("dp4", "dp4:zero3 +m2", "dp4:zero2 tp2", "pp2:1f1b dp4 +m4", "pp2:zb-v dp4:zero1 +m4"):
        beside = Case(WIDE, f"{plan} +overlap", "pytorch-compiled").simulated(ON)
        after = Case(WIDE, f"{plan} +no-overlap", "pytorch-compiled").simulated(ON)
        assert beside.step_seconds < after.step_seconds


def test_the_first_gather_of_a_pass_and_the_last_bucket_cannot_hide() -> None:
    """By hand: four equal layers, each gathered while the one before works."""
    case = Case(WIDE, "dp16:zero3 +overlap", "pytorch-compiled")
    events = case.simulated(ON).events
    first = next(event for event in events if event.category == "forward")
    gathers = [event for event in events if event.name.startswith("all-gather root")]
    assert first.start >= gathers[0].start + gathers[0].seconds
    buckets = [
        e for e in Case(WIDE, "dp16 +overlap", "pytorch-compiled").simulated(ON).events if e.category == "weights"
    ]
    plain = Case(WIDE, "dp16 +overlap", "pytorch-compiled").simulated(ON).events
    last = max(event.start + event.seconds for event in plain if event.category == "backward")
    assert buckets[0].start < last
    assert buckets[-1].start + buckets[-1].seconds > last
