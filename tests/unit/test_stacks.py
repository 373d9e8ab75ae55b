"""A kept stack: measured steps correct every prediction there, whichever verb asks."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import foretell as package
from foretell.cost.collectives import collective_seconds
from foretell.cost.fabric import Group
from foretell.cost.price import priced
from foretell.cost.samples import CollectiveSample
from foretell.errors import BadInput
from foretell.hardware.catalog import cluster as cluster_of
from foretell.oracle.anchors import Anchor, Swept, measurements
from foretell.oracle.kept_stacks import as_kept, keep, kept_stack, names
from foretell.oracle.resolve import resolve
from foretell.oracle.stacks import paced, question_of, stack_of
from foretell.timeline.result import composed

MODEL = "llama:layers=8,hidden=2048,heads=16,kv_heads=16,ffn=5632,vocab=32000,seq=1024"
OTHER = MODEL.replace("layers=8", "layers=12")
PLANS = ("dp8 +bf16", "dp8:zero3 +bf16", "dp4 tp2 +bf16", "tp8 +bf16")
MIXED = """
title = "two kinds"
[[devices]]
device = "h100"
ranks = { value = 8, source = "us" }
[[devices]]
device = "a100-80"
ranks = { value = 8, source = "us" }
[[levels]]
name = "node"
size = { value = 8, source = "us" }
link = "nvlink4"
[[levels]]
name = "rack"
size = { value = 2, source = "us" }
link = "ib-ndr"
ports = { value = 8, source = "us" }
[sources]
us = "counted"
"""
TRUE = (1.25, 1.6, 1.4)
"""How much longer computing, messages and the host of a made-up cluster take than is predicted."""


def asked(plan: str, model: str = MODEL, batch: int = 64) -> dict[str, str | int]:
    return {"model": model, "plan": plan, "cluster": "8xh100", "batch": batch}


def took(words: dict[str, str | int], factors: tuple[float, float, float] = TRUE) -> float:
    """Seconds of a step on that cluster: predicted with other constants, and not summed from parts."""
    found = resolve(question_of(words, "none"))
    cluster, trainer = paced(found.place, found.setting.trainer, [math.log(one) for one in factors])
    setting = msgspec.structs.replace(found.setting, trainer=trainer)
    return composed(priced(setting, cluster), cluster).step_seconds


def anchors(*plans: str) -> list[Anchor]:
    return [Anchor(form="made", asked=asked(plan), step_seconds=took(asked(plan))) for plan in plans]


def swept(times: float) -> Anchor:
    """All-reduces of a node, which take so many times as long as they are priced."""
    place = cluster_of("8xh100")
    sweeps = tuple(
        Swept(CollectiveSample(kind=kind, ranks=ranks, payload=payload), 1, times * float(seconds))
        for kind in ("all-reduce", "all-gather", "reduce-scatter")
        for ranks in (2, 4, 8)
        for payload in (2**16, 2**20, 2**24, 2**28)
        for seconds in [collective_seconds(kind, payload, Group(ranks), place).seconds]
    )
    return Anchor(form="made", sweeps=sweeps)


def predicted(plan: str, stack: str = "", model: str = MODEL) -> Any:
    return package.predict(model, "8xh100", plan, 64, stack=stack, calibration="none")


@pytest.fixture(autouse=True)
def _own_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETELL_RECORDS", str(tmp_path / "records"))


@pytest.fixture
def mine() -> str:
    keep(stack_of("mine", anchors(*PLANS[:2]), {}))
    return "mine"


def test_other_plans_come_nearer_with_each_measured_step() -> None:
    left: list[list[float]] = []
    for count in range(4):
        if count:
            keep(stack_of("mine", anchors(*PLANS[:count]), {}))
        others = [("dp2 tp4 +bf16", MODEL), ("dp8:zero1 +bf16", OTHER)]
        left.append(
            [
                abs(math.log(predicted(plan, "mine" if count else "", model).step_seconds / took(asked(plan, model))))
                for plan, model in others
            ]
        )
    means = [sum(one) / len(one) for one in left]
    assert means[0] > 0.15  # nothing measured: a fifth and more too fast
    assert means[1] < 0.7 * means[0]
    assert means[3] < 0.5 * means[0]


def test_a_sweep_tells_computing_from_messages_and_the_host() -> None:
    from foretell.oracle.carried import RunTraits
    from foretell.oracle.stacks import says

    stack = stack_of("mine", anchors(*PLANS), {})
    told = says(stack, RunTraits("pytorch", "h100", MODEL, 8, ()))
    for found, true in zip(told.factors, TRUE, strict=True):
        assert abs(math.log(found / true)) < 0.5 * math.log(true)
    elsewhere = says(stack, RunTraits("megatron-core", "a100-80", "gpt2", 512, ()))
    for found, near in zip(elsewhere.factors, told.factors, strict=True):
        assert 0 <= math.log(found) < math.log(near)


def test_every_verb_has_the_same_answer(foretell: Callable[..., Any], mine: str) -> None:
    plan = "dp8:zero1 +bf16"
    step = predicted(plan, mine).step_seconds
    assert step > 1.1 * predicted(plan).step_seconds
    words = ("--on", "8xh100", "--batch", "64", "--stack", mine, "--json", "--calibration", "none")
    found = json.loads(foretell("plan", MODEL, *words, "--fix", "dp8:zero1", "--only", "dp").out)
    assert found["best"]["plan"] == plan
    assert found["best"]["step_seconds"] == step
    fits = json.loads(foretell("fit", MODEL, *words, "--plan", plan).out)
    assert fits["prediction"]["step_seconds"] == step
    swept = foretell("sweep", "--model", MODEL, *words, "--plan", plan, "--jobs", "1").out
    assert json.loads(swept)["rows"][0]["step_seconds"] == step
    whatif = json.loads(foretell("whatif", MODEL, *words, "--plan", plan).out)
    assert whatif["prediction"]["step_seconds"] == step
    assert foretell("predict", MODEL, *words[:-3], "--plan", plan).err.count("stack mine, measured steps: 2") == 1


def test_the_interval_says_what_it_rests_on(mine: str) -> None:
    plain, found = predicted("dp8:zero1 +bf16"), predicted("dp8:zero1 +bf16", mine)
    before, after = (math.sqrt(one.interval[1] / one.interval[0]) for one in (plain, found))
    assert after <= before
    assert found.provenance["interval"].count("%") >= 3  # after, and before
    assert "measured steps of stack mine: 2" in found.provenance["interval"]
    assert math.prod(found.band.values()) == pytest.approx(after)


def test_no_kernel_is_faster_than_its_device(tmp_path: Path) -> None:
    quick = {plan: 0.5 * took(asked(plan), (1.0, 1.0, 1.0)) for plan in PLANS[:2]}
    told = [Anchor(form="made", asked=asked(plan), step_seconds=seconds) for plan, seconds in quick.items()]
    keep(stack_of("quick", told, {}))
    found = predicted("dp8 +bf16", "quick")
    assert found.step_seconds < predicted("dp8 +bf16").step_seconds
    assert found.utilisation < 1


def test_a_stack_is_kept_listed_shown_added_to_and_forgotten(foretell: Callable[..., Any], tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    lines = [f"{MODEL!r},{plan},8xh100,64,{took(asked(plan))}".replace("'", '"') for plan in PLANS[:2]]
    table.write_text("\n".join(["model,plan,cluster,batch,step_seconds", *lines]))
    first = foretell("stack", "ours", "--anchor", str(table))
    assert first.code == 0, first.err
    assert "dp8:zero3" in first.out
    log = tmp_path / "train.log"
    log.write_text("elapsed time per iteration (ms): 400.0\n" * 4)
    assert foretell("stack", "ours", "--anchor", str(log)).code == 2  # which plan was it?
    more = foretell("stack", "ours", MODEL, "--on", "8xh100", "--plan", PLANS[2], "--batch", "64", "--anchor", str(log))
    assert more.code == 0, more.err
    assert len(kept_stack("ours").runs) == 3
    listed = json.loads(foretell("stack", "--json").out)
    assert [(one["name"], len(one["runs"])) for one in listed["stacks"]] == [("ours", 3)]
    assert foretell("stack", "ours", "--forget").code == 0
    assert names() == ()
    refused = foretell("predict", MODEL, "--on", "8xh100", "--plan", "dp8", "--batch", "64", "--stack", "ours")
    assert refused.code == 2
    assert "no stack ours is kept" in refused.err


@pytest.mark.parametrize("name", ["../secrets", "a/b", "", ".hidden"])
def test_a_stack_is_no_path(name: str) -> None:
    with pytest.raises(BadInput, match="no name of a stack"):
        keep(stack_of(name, anchors(PLANS[0]), {}))


def test_a_stack_of_another_version_is_read_again(mine: str) -> None:
    now = kept_stack(mine)
    keep(msgspec.structs.replace(now, foretell="0.0.1", readings=()))
    assert kept_stack(mine).readings == now.readings


def test_tables_lines_and_folders_are_sweeps(tmp_path: Path) -> None:
    line = {"model": "gpt2", "plan": "dp8", "cluster": "8xh100", "batch": 64, "step_ms": 310.0}
    (tmp_path / "runs.jsonl").write_text("\n".join(json.dumps({**line, "batch": batch}) for batch in (8, 16)))
    (tmp_path / "rows.csv").write_text(
        "id,model,plan,cluster,batch,outcome,seconds\n"
        "1,gpt2,dp8 +bf16,8xh100,64,ok,0.25\n2,gpt2,dp8,8xh100,64,oom,\n3,gpt2,dp4,8xh100,64,ok,\n"
    )
    (tmp_path / "notes.txt").write_text("nothing was measured here")
    found = measurements(tmp_path)
    assert [one.step_seconds for one in found] == [0.25, 0.31, 0.31]
    assert found[0].asked == {"model": "gpt2", "plan": "dp8 +bf16", "cluster": "8xh100", "batch": 64}
    assert [one.asked["batch"] for one in found[1:]] == [8, 16]
    assert "notes.txt" in found[0].notes[0]
    with pytest.raises(BadInput, match="2 measurements"):
        from foretell.oracle.anchors import read

        read(tmp_path / "runs.jsonl")


@pytest.mark.parametrize("digits", [400, 4000])
def test_a_number_that_is_no_time_is_refused(digits: int, tmp_path: Path) -> None:
    line = '{"model": "gpt2", "plan": "dp8", "cluster": "8xh100", "batch": 8, "step_ms": %s}'
    (tmp_path / "runs.jsonl").write_text("\n".join([line % 310, line % ("9" * digits)]))
    with pytest.raises(BadInput, match="not a number from 0"):
        measurements(tmp_path / "runs.jsonl")


def test_a_whole_sweep_as_one_anchor(foretell: Callable[..., Any], tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    lines = [f'"{MODEL}",{plan},8xh100,64,{took(asked(plan))}' for plan in PLANS]
    table.write_text("\n".join(["model,plan,on,batch,step_seconds", *lines]))
    words = ("predict", MODEL, "--on", "8xh100", "--plan", "dp2 tp4 +bf16", "--batch", "64", "--json")
    plain, found = (json.loads(foretell(*words, *more).out) for more in ((), ("--anchor", str(table))))
    true = took(asked("dp2 tp4 +bf16"))
    assert [one["part"] for one in found["findings"]] == ["step"] * len(PLANS)
    assert abs(math.log(found["step_seconds"] / true)) < 0.4 * abs(math.log(plain["step_seconds"] / true))


def test_a_stack_and_an_anchor_are_one_too_many(mine: str, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text('{"step_seconds": 0.5}')
    with pytest.raises(BadInput, match="a kept stack, and measurements"):
        package.predict(MODEL, "8xh100", "dp8", 64, stack=mine, anchor=[file])


def test_timed_collectives_and_timed_steps_do_not_correct_messages_twice() -> None:
    """Messages twice as long, told by both: steps that the timed collectives explain leave no factor to them."""
    plan, true = "dp2 tp4 +bf16", (1.0, 2.0, 1.0)
    steps = [Anchor(form="made", asked=asked(one), step_seconds=took(asked(one), true)) for one in PLANS]
    keep(stack_of("both", [*steps, swept(2.0)], {}))
    keep(stack_of("collectives", [swept(2.0)], {}))
    found, of_collectives = (predicted(plan, name).step_seconds for name in ("both", "collectives"))
    assert of_collectives == pytest.approx(took(asked(plan), true), rel=0.03)
    assert found == pytest.approx(of_collectives, rel=0.03)


def test_the_same_measurement_is_no_second_observation(foretell: Callable[..., Any], tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_text(f'model,plan,cluster,batch,step_seconds\n"{MODEL}",{PLANS[0]},8xh100,64,0.5\n')
    (tmp_path / "sweep.txt").write_text(
        "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 1048576\n# Collective test starting: all_reduce_perf\n"
        + "".join(f"#  Rank  {at} Group  0 Pid 1 on node device  {at}\n" for at in range(8))
        + "#  size count type redop root time algbw busbw\n"
        + "1048576 262144 float sum -1 63.77 16.44 28.78 0 63.60 16.49 28.85 0\n"
    )
    words = ("stack", "ours", "--anchor", str(table), "--anchor", str(tmp_path / "sweep.txt"))
    pages = [foretell(*words, "--json") for _ in range(2)]
    assert pages[0].code == 0, pages[0].err
    assert pages[0].out == pages[1].out
    kept = as_kept("ours")
    assert (len(kept.runs), len(kept.sweeps)) == (1, 1)


def test_steps_are_read_again_against_another_calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings are over a prediction: once the device is calibrated they are others, and so for whoever names none."""
    from foretell.oracle import kept_stacks

    words = {**asked(PLANS[0]), "cluster": "8xh200"}
    told = [Anchor(form="made", asked=words, step_seconds=took(words))]
    keep(stack_of("mine", told, {}))
    plain = kept_stack("mine")
    calibration = Path(__file__).parents[2] / "studies" / "h200_calibration" / "h200.json"
    (tmp_path / "records" / "calibration-h200.json").write_bytes(calibration.read_bytes())
    with_one = stack_of("other", told, {})
    assert with_one.readings != plain.readings
    assert kept_stack("mine").readings == with_one.readings
    assert kept_stack("mine", "none").readings == plain.readings
    assert kept_stack("mine", str(calibration)).readings == with_one.readings
    step = package.predict(MODEL, "8xh200", PLANS[0], 64, stack="mine").step_seconds
    keep(with_one)
    monkeypatch.setattr(kept_stacks, "read_again", None)  # what was read against this calibration is not read again
    assert package.predict(MODEL, "8xh200", PLANS[0], 64, stack="other").step_seconds == step


def test_a_stack_corrects_each_kind_of_a_mixed_cluster(mine: str, tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_text(MIXED)
    ours = str(tmp_path / "ours.toml")
    plain, found = (
        package.predict(MODEL, ours, "dp16 +bf16", 64, stack=stack, calibration="none") for stack in ("", mine)
    )
    assert found.step_seconds > 1.1 * plain.step_seconds
    assert "measured steps of stack mine: 2" in found.provenance["interval"]


def test_factors_that_do_not_settle_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from foretell.oracle import stacks

    assert stack_of("mine", anchors(*PLANS[:2]), {}).doubts == ()
    monkeypatch.setattr(stacks, "ROUNDS", 1)
    (doubt,) = stack_of("mine", anchors(*PLANS[:2]), {}).doubts
    assert "after 1 rounds its factors still moved" in doubt


def test_hours_and_cost_of_a_rung_are_on_the_stack(foretell: Callable[..., Any]) -> None:
    one = {"model": "llama3.2-1b", "plan": "dp1 +bf16:pure", "cluster": "1xrtx4090", "batch": 16, "seq": 2048}
    keep(stack_of("mine", [Anchor(form="made", asked=one, step_seconds=2 * took(one, (1.0, 1.0, 1.0)))], {}))
    words = ("fit", "llama3.2-1b", "--on", "1xrtx4090", "--batch", "16", "--seq", "2048", "--samples", "16000")
    found = json.loads(foretell(*words, "--price", "0.4", "--tuning", "--stack", "mine", "--json").out)
    rung = found["rungs"][found["taken"]]
    assert rung["seconds"] == pytest.approx(1000 * rung["step_seconds"])
    assert rung["cost"] == pytest.approx(rung["seconds"] / 3600 * 0.4)
    assert sum("stack mine" in note for note in found["notes"]) == 1


def test_a_step_faster_than_its_devices_is_refused() -> None:
    words = asked("dp8:zero3 +bf16")
    with pytest.raises(BadInput, match=r"h100 take .* at their peak .* times that"):
        stack_of("mine", [Anchor(form="made", asked=words, step_seconds=1e-6)], {})
    assert stack_of("mine", [Anchor(form="made", asked=words, step_seconds=took(words))], {}).runs
