"""What is rehearsed where: which ranks, at which depth, how it is extended, and what a script's messages look like."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import torch

from foretell.cli.rehearse_pages import held_table
from foretell.cost.price import priced
from foretell.errors import BadInput
from foretell.hardware import catalog
from foretell.program.expand import expand
from foretell.runtime import alive, message_prices, rehearsal
from foretell.runtime.assignment import Assignment, Happening, Held, Rehearsal, Report
from foretell.runtime.clock import Clock
from foretell.runtime.exposed import tell_exposed
from foretell.runtime.script_report import GroupTraffic, ScriptReport, recognised
from foretell.runtime.sleeping import KEPT, CycleRate
from foretell.runtime.tracing import exposed_seconds, idle_share

DEEP = "gpt:layers=24,hidden=64,heads=4,vocab=128,seq=32"


def _asked(plan: str, cluster: str = "64xcpu", **more: object) -> Assignment:
    return Assignment(model=DEEP, plan=plan, batch=64, rehearsal=Rehearsal(0, cluster), **more)  # type: ignore[arg-type]


class Stub:
    """Takes as long as there are layers, and a second more."""

    def __init__(self) -> None:
        self.asked: list[Assignment] = []

    def __call__(self, one: Assignment) -> Report:
        assert one.rehearsal is not None
        self.asked.append(one)
        layers = rehearsal.layers_of(one.model)
        phases = {"forward": [layers * 1.0], "bubble": [1.0]}
        return Report(
            rank=one.rehearsal.rank, steps=[layers + 1.0], phases=phases, allocated=100 * layers, losses=[1.0]
        )


KINDS = [("dp64", (0,)), ("dp8 tp2 pp4 +m4", (0, 1, 3)), ("pp2 dp32 +m2", (0, 32)), ("tp2 pp8 dp4 +m8", (0, 12, 28))]


@pytest.mark.parametrize("plan, ranks", KINDS)
def test_a_rank_of_each_kind(plan: str, ranks: tuple[int, ...]) -> None:
    assert rehearsal.kinds(_asked(plan).setting) == ranks


def test_what_has_room_is_rehearsed_as_it_is() -> None:
    run = Stub()
    found = rehearsal.rehearsed(_asked("dp64"), (0, 5), 1e9, run)
    assert [one.rehearsal.rank for one in run.asked if one.rehearsal] == [0, 5] and not found.why
    assert {one.model for one in run.asked} == {DEEP} and found.reports[0].losses == []


def test_what_takes_too_long_is_extended_from_two_depths() -> None:
    run = Stub()
    found = rehearsal.rehearsed(_asked("dp8 tp2 pp4 +m4"), (0,), 1e-6, run)
    assert [rehearsal.layers_of(one.model) for one in run.asked] == [4, 8] and "--timeout" in found.why
    assert found.assignment.model == DEEP and found.assignment.rehearsal
    assert found.assignment.rehearsal.depths == (4, 8)
    (report,) = found.reports
    assert 20 < report.steps[0] < 30 and 20 < report.phases["forward"][0] < 30
    assert report.phases["bubble"] == [1.0]  # no deeper on either side
    assert report.collectives  # those of the whole model


def test_weights_in_shares_need_no_room_for_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    step = rehearsal.foreseen(_asked("dp64:zero3"), rehearsal.here(_asked("dp64:zero3"), Rehearsal(0, "64xcpu")))
    monkeypatch.setattr(rehearsal, "begins_with", lambda setting: 1e15)
    monkeypatch.setattr(rehearsal.this_machine, "free_bytes", lambda: int(2 * step.memory.allocated))
    run = Stub()
    found = rehearsal.rehearsed(_asked("dp64:zero3"), (0,), 1e9, run)
    assert [one.rehearsal.hollow for one in run.asked if one.rehearsal] == [True] and not found.why
    whole = rehearsal.rehearsed(_asked("dp64"), (0,), 1e9, Stub())
    assert "all weights" in whole.why and whole.assignment.rehearsal and whole.assignment.rehearsal.depths == (4, 6)


def test_ranks_and_depths_that_cannot_be() -> None:
    with pytest.raises(BadInput, match="not 64"):
        rehearsal.rehearsed(_asked("dp64"), (64,), 1e9, Stub())
    asked = msgspec.structs.replace(_asked("dp64"), rehearsal=Rehearsal(0, "64xcpu", depths=(8, 4)))
    with pytest.raises(BadInput, match="depths 8, 4"):
        rehearsal.rehearsed(asked, (0,), 1e9, Stub())


@pytest.mark.parametrize(
    "plan, instead",
    [
        ("local4:tau4", "dp4"),
        ("gossip4", "dp4"),
        ("ps4", "dp4"),
        ("ps4:async", "dp4"),
        ("pp4:stash +m4", "pp4:1f1b +m4"),
    ],
)
def test_ranks_that_need_what_others_have_are_refused_with_a_plan_that_is_rehearsed(plan: str, instead: str) -> None:
    run = Stub()
    with pytest.raises(BadInput, match=re.escape(f"--plan '{instead}'")):
        rehearsal.rehearsed(_asked(plan), (0,), 1e9, run)
    assert not run.asked
    assert rehearsal.rehearsed(_asked(instead), (0,), 1e9, run).reports


def test_a_precision_that_this_device_has_no_figures_for_is_refused_with_one_that_it_has() -> None:
    with pytest.raises(BadInput) as problem:
        rehearsal.rehearsed(_asked("dp64 +bf16"), (0,), 1e9, Stub())
    assert "--plan 'dp64 +fp32'" in str(problem.value)
    run = Stub()
    rehearsal.rehearsed(_asked("dp64 +fp32"), (0,), 1e9, run)
    assert len(run.asked) == 1


def test_a_world_that_has_no_room_is_refused_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal.this_machine, "free_bytes", lambda: 64 * rehearsal.A_RANK - 1)
    run = Stub()
    with pytest.raises(BadInput, match="the lists of 64 ranks"):
        rehearsal.rehearsed(_asked("dp64"), (0,), 1e9, run)
    assert not run.asked


def test_messages_take_what_the_prediction_says() -> None:
    setting, cluster = _asked("pp4 +m4 dp16").setting, catalog.cluster("64xcpu")
    found = message_prices.of_rank(setting, cluster, 16)
    assert sorted(found.arrivals) == [0, 32]  # the stages before and behind it
    assert all(len(moments) == 4 and moments == sorted(moments) for moments in found.arrivals.values())
    assert found.arrivals[0][0] < found.arrivals[32][0]  # forward comes before backward
    ranks = tuple(range(16, 32))
    assert 0 < found.seconds("all-reduce", ranks, 1000) < found.seconds("all-reduce", ranks, 10**6)
    assert message_prices.on_links(cluster).seconds("all-reduce", (3,), 10**6) == 0.0


@pytest.mark.parametrize(
    "ranks, alike",
    [
        ((*range(4), *range(8, 12)), range(0, 16, 2)),  # four on each of two nodes
        ((6, 7, 8, 9), (0, 3, 6, 9)),  # two on each
        ((0, 9), (0, 8)),  # one on each
        ((0, 1, 4, 7), range(4)),  # all on one
    ],
)
def test_ranks_at_any_distance_are_priced_on_the_links_that_they_cross(
    ranks: tuple[int, ...], alike: Sequence[int]
) -> None:
    price = message_prices.on_links(catalog.cluster("16xh100")).seconds
    assert price("all-reduce", ranks, 10**8) == price("all-reduce", tuple(alike), 10**8)
    inside = price("all-reduce", tuple(range(len(ranks))), 10**8)
    assert (price("all-reduce", ranks, 10**8) > inside) == (max(ranks) >= 8)


def test_weights_that_the_ends_of_a_pipeline_share_are_priced_as_predicted() -> None:
    cluster, setting = catalog.cluster("4xcpu"), _asked("pp4 +m4", "4xcpu").setting
    plan = priced(setting, cluster)
    program = expand(plan.program)
    (shared,) = [one for one, _ in program.communications(program.kinds[0]) if one.kind == "all-reduce"]
    found = message_prices.of_rank(setting, cluster, 0).seconds("all-reduce", (0, 3), round(shared.payload))
    assert found == plan.prices.message(shared)


def test_axes_with_equal_messages_have_their_own_prices() -> None:
    """Between two nodes as many bytes of gradients are summed as of activations inside each."""
    model = "llama:layers=2,hidden=64,heads=4,kv_heads=4,ffn=128,vocab=128,seq=322"
    asked = Assignment(model=model, plan="dp2:zero3 tp2:sp", batch=2, rehearsal=Rehearsal(0, "4xcpu"))
    found, cluster = message_prices.of_rank(asked.setting, catalog.cluster("4xcpu"), 0), catalog.cluster("4xcpu")
    plan = priced(asked.setting, cluster)
    program = expand(plan.program)
    sums = [one for one, _ in program.communications(program.kinds[0]) if one.kind == "reduce-scatter"]
    said = {one.axes: plan.prices.message(one) for one in sums if one.payload == 82_432}
    assert said[("dp",)] > said[("tp",)]
    assert found.seconds("reduce-scatter", (0, 2), 82_432) == said[("dp",)]
    assert found.seconds("reduce-scatter", (0, 1), 82_432) == said[("tp",)]


GRADIENTS = 10_000_000


@pytest.mark.parametrize(
    "collectives, plan",
    [
        ([("all-reduce", 64, 1, GRADIENTS, 1)], "dp64"),
        ([("all-gather", 64, 1, GRADIENTS, 2), ("reduce-scatter", 64, 1, 64 * GRADIENTS, 1)], "dp64:zero3"),
        ([("all-gather", 64, 1, GRADIENTS, 1), ("reduce-scatter", 64, 1, 32 * GRADIENTS, 1)], "dp64:zero2"),
        ([("all-gather", 64, 1, GRADIENTS // 32, 15), ("reduce-scatter", 64, 1, 8 * GRADIENTS, 8)], "dp64:zero3"),
        ([("all-gather", 64, 1, GRADIENTS // 16, 8), ("reduce-scatter", 64, 1, 8 * GRADIENTS, 8)], "dp64:zero2"),
        ([("all-reduce", 8, 8, GRADIENTS, 1), ("all-reduce", 8, 1, 77_777, 48)], "dp8 tp8"),
        ([("all-reduce", 64, 1, 64 * GRADIENTS, 1), ("all-gather", 64, 1, GRADIENTS, 1)], "dp64:zero1"),  # DeepSpeed
        ([("all-reduce", 8, 8, GRADIENTS, 1), ("all-reduce", 8, 1, 2 * GRADIENTS, 4)], "dp8 tp8"),  # by chance
        ([("all-reduce", 8, 8, GRADIENTS, 1), ("send", 8, 1, 5_000, 4), ("receive", 8, 1, 5_000, 4)], "dp8 pp8"),
        (
            [
                ("all-reduce", 8, 8, GRADIENTS, 1),
                ("all-gather", 8, 1, GRADIENTS, 2),
                ("reduce-scatter", 8, 1, 8 * GRADIENTS, 1),
            ],
            "dp8:zero3,shard8",
        ),
        ([("all-reduce", 8, 8, GRADIENTS, 1)], ""),  # of eight ranks; who are the others?
        ([("all-reduce", 64, 1, 4, 9)], ""),  # losses
    ],
)  # fmt: skip
def test_a_plan_is_recognised_from_messages(collectives: list[tuple[str, int, int, int, int]], plan: str) -> None:
    rows = [GroupTraffic(*one) for one in collectives]
    assert recognised(ScriptReport(collectives=rows, gradients=GRADIENTS), 64) == plan


def test_what_no_kernel_covers_is_waiting_for_the_host() -> None:
    kernels = [
        ("gemm", "device, stream 7", 0, 40),
        ("spin_kernel", "device, stream 9", 30, 30),
        ("add", "device, 7", 80, 20),
    ]
    trace = [Happening(*one) for one in kernels] + [Happening("aten::mm", "thread 0", 0, 1000)]
    assert idle_share(trace, 100e-9) == pytest.approx(0.2) and idle_share([], 1.0) == 0.0
    assert idle_share(trace, 80e-9) == 0.0  # the profiler made the host slow, no more
    assert exposed_seconds(trace) == pytest.approx(20e-9)  # of the message, what no product hides


class Talking:
    """A rank of 2 x 2 whose forward pass waits 3 s along `dp` and 1 s along `tp`, where both are not silent; its
    backward pass waits 2 s for either, beside each other."""

    def __init__(self) -> None:
        groups = {frozenset({0, 2}): ("dp",), frozenset({0, 1}): ("tp",), frozenset(range(4)): ("dp", "tp")}
        self.mesh = SimpleNamespace(groups=lambda: groups)
        self.device, self.clock = torch.device("cpu"), Clock(torch.device("cpu"))
        self.world = SimpleNamespace(spoken={(0, 2), (0, 1)}, silent=frozenset[tuple[int, ...]]())

    def step(self) -> None:
        dp, tp = ((ranks not in self.world.silent) for ranks in ((0, 2), (0, 1)))
        self.clock.phases.setdefault("forward", []).append(10.0 + 3 * dp + tp)
        self.clock.phases.setdefault("backward", []).append(20.0 + 2 * (dp or tp))
        self.clock.phases.setdefault("bubble", []).append(5.0 + dp)


def test_what_is_exposed_on_a_gpu_is_what_silence_saves() -> None:
    rank = Talking()
    for _ in range(2):
        rank.step()
    tell_exposed(cast(Any, rank), cast(Any, rank.world))
    found = {name: seconds[0] for name, seconds in rank.clock.phases.items()}
    assert found == pytest.approx(
        {"forward": 10.0, "backward": 20.0, "bubble": 6.0, "exposed.dp": 3.0 + 1.0, "exposed.tp": 1.0 + 1.0}
    )
    assert all(len(seconds) == 2 for seconds in rank.clock.phases.values()) and not rank.world.silent


def test_what_was_there_when_a_step_was_fullest() -> None:
    frames = [{"filename": "/torch/nn/modules/module.py", "line": 1, "name": "_call_impl"}]
    model = [*frames, {"filename": "/x/foretell/modules/llama.py", "line": 57, "name": "forward"}]
    history: list[dict[str, Any]] = [
        {"action": "alloc", "addr": 1, "size": 100, "frames": model},
        {"action": "alloc", "addr": 2, "size": 50, "frames": model},
        {"action": "free_requested", "addr": 2, "size": 50},
        {"action": "free_completed", "addr": 2, "size": 50},
        {"action": "alloc", "addr": 2, "size": 40, "frames": model},
        {"action": "alloc", "addr": 3, "size": 30, "frames": frames},
        {"action": "free_requested", "addr": 1, "size": 100},
        {"action": "alloc", "addr": 4, "size": 90, "frames": model},
    ]
    assert alive.fullest(history) == 5
    found = alive.by_source(history)
    assert found == [
        Held("modules/llama.py:57 forward", 140, 2),
        Held("the backward pass, where no Python is", 30, 1),
    ]
    many = [
        {"action": "alloc", "addr": at, "size": 1 + at, "frames": [{"filename": f"/a/{at}.py", "line": 1, "name": "f"}]}
        for at in range(alive.SHOWN + 3)
    ]
    assert alive.by_source(many)[-1] == Held("elsewhere", 1 + 2 + 3, 3)
    page = held_table(1 << 30, found)
    assert "1 GiB" in page and "modules/llama.py:57 forward" in page


class Moment:
    """An event of a device on which a cycle takes so long, in milliseconds; `passed` when the device is there."""

    def __init__(self, at: float, passed: bool = True) -> None:
        self.at, self.passed = at, passed

    def query(self) -> bool:
        return self.passed

    def elapsed_time(self, later: Moment) -> float:
        return later.at - self.at


def test_a_sleep_is_counted_in_cycles_as_long_as_the_last_ones_were() -> None:
    rate = CycleRate(2e9)
    assert rate.cycles(1e-3) == 2_000_000
    for _ in range(KEPT):  # 2 million cycles, which took 1.45 ms
        rate.note(2_000_000, Moment(0.0), Moment(1.45))
    assert rate.cycles(1e-3) == pytest.approx(2_000_000 / 1.45, abs=1)
    for number in range(KEPT):  # one of them sleeps yet
        rate.note(2_000_000, Moment(0.0), Moment(1.0, passed=number > 0))
    assert rate.cycles(1e-3) == pytest.approx(2_000_000 / 1.45, abs=1)
