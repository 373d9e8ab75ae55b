"""What of a tensor axis's messages runs beside products."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

import foretell
from foretell.cost.prices import Prices
from foretell.hardware import catalog
from foretell.plan.job import Job
from foretell.plan.policies.precision import Precision
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import Trainer, trainer
from foretell.program.action import Communicate
from foretell.program.expand import expand
from foretell.program.lower import lower

MODEL = "llama:layers=4,hidden=2048,heads=16,kv_heads=16,ffn=8192,vocab=32000,seq=2048,dtype=bf16"


def with_shares(overlap: float, pieces: float) -> Trainer:
    base = trainer("nanotron")
    return msgspec.structs.replace(base, tensor=msgspec.structs.replace(base.tensor, overlap=overlap, pieces=pieces))


def waited(runs: Trainer, cluster: str = "8xh100", plan: str = "tp8:sp +bf16") -> Mapping[str, float]:
    """Seconds of a stage's tensor messages that are waited for, by pass."""
    setting = Setting(foretell.load(MODEL, batch=1), Job(batch=1), parse(plan), runs)
    program = expand(lower(setting))
    prices = Prices(program.axes, catalog.cluster(cluster), setting.plan.policy(Precision).format, runs)

    def waited(kind: str) -> float:
        passes = program.stages[0].passes(kind)
        return sum(sum(prices.body(body.actions).of(kind).waits.values()) * times for body, times in passes)

    return {kind: waited(kind) for kind in ("F", "B")}


def test_without_shares_everything_is_waited_for() -> None:
    runs = with_shares(0, 0)
    setting = Setting(foretell.load(MODEL, batch=1), Job(batch=1), parse("tp8:sp +bf16"), runs)
    program = expand(lower(setting))
    prices = Prices(program.axes, catalog.cluster("8xh100"), setting.plan.policy(Precision).format, runs)
    messages = [
        prices.message(action) * times
        for kind in ("F", "B")
        for body, times in program.stages[0].passes(kind)
        for action in body.actions
        if isinstance(action, Communicate)
    ]
    assert sum(waited(runs).values()) == pytest.approx(sum(messages))


@pytest.mark.parametrize("plan", ["tp8:sp +bf16", "tp8 +bf16"])
def test_overlap_is_of_the_backward_pass_only(plan: str) -> None:
    none, some, whole = (waited(with_shares(share, 0), plan=plan) for share in (0, 0.3, 1))
    assert none["F"] == some["F"] == whole["F"]
    assert none["B"] > some["B"] >= whole["B"] > 0


def test_pieces_are_of_both() -> None:
    none, pieces = waited(with_shares(0, 0)), waited(with_shares(0, 0.5))
    assert pieces["F"] < none["F"]
    assert pieces["B"] < none["B"]


def test_no_more_is_hidden_than_there_is_room_for() -> None:
    """On a network ten times as slow the same seconds are hidden: products are no longer."""
    hidden = {
        cluster: waited(with_shares(0, 0), cluster)["B"] - waited(with_shares(1, 0), cluster)["B"]
        for cluster in ("8x1xh100,1xib-hdr", "8x1xh100,1xib-fdr")
    }
    assert hidden["8x1xh100,1xib-hdr"] == pytest.approx(hidden["8x1xh100,1xib-fdr"])


def test_a_plan_without_overlap_waits() -> None:
    from foretell.cost.host import as_executed

    graph = foretell.load(MODEL, batch=1)
    plain = as_executed(Setting(graph, Job(batch=1), parse("tp8:sp +bf16"), trainer("megatron-core")))
    waits = as_executed(Setting(graph, Job(batch=1), parse("tp8:sp +bf16 +no-overlap"), trainer("megatron-core")))
    assert (plain.tensor.overlap, plain.tensor.pieces) == (0.9, 0)
    assert (waits.tensor.overlap, waits.tensor.pieces) == (0, 0)
