"""Clusters of two kinds of devices: pipelines whose stages lie on unlike devices, each with layers as it is fast."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from foretell.cost.price import priced, priced_on_kinds
from foretell.errors import BadInput
from foretell.oracle.predict import Prediction
from foretell.oracle.predicted import predicted
from foretell.oracle.request import Request, read
from foretell.oracle.resolve import resolve
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.text import parse
from foretell.timeline.peak_breakdown import alive
from foretell.timeline.result import composed

KINDS = Path(__file__).parents[2] / "examples" / "clusters" / "our-two-kinds.toml"
ALIKE = KINDS.read_text().replace('"a100-80"', '"h100"')
PLAN = "pp2 dp8:zero1 +m8 +bf16"
MODEL = "llama3.2-1b:vocab=32000"


def question(on: str, plan: str, model: str = MODEL) -> Request:
    return read(model=model, on=on, batch=64, plan=plan)


def step(on: str, plan: str) -> Prediction:
    return predicted(question(on, plan))[1]


def of_one_kind(place: Path, device: str) -> str:
    """A file of the same cluster with one device."""
    text, file = KINDS.read_text(), place / f"{device}.toml"
    file.write_text(f'{text[: text.index("[[devices]]")]}device = "{device}"\n\n{text[text.index("[[levels]]") :]}')
    return str(file)


def split_of(found: Prediction) -> tuple[int, ...]:
    axis = parse(found.plan).axis(Pipeline)
    assert axis
    return axis.split


def test_two_kinds_that_are_one_are_the_cluster_of_one(tmp_path: Path) -> None:
    """Priced stage by stage, the step is what it is anyway, for any split."""
    file = tmp_path / "alike.toml"
    file.write_text(ALIKE)
    for split in ("8/8", "10/6"):
        plan = PLAN.replace("pp2", f"pp2:split={split}")
        whole = of_one_kind(tmp_path, "h100")
        assert step(str(file), plan).step_seconds == pytest.approx(step(whole, plan).step_seconds, rel=1e-9)


def test_the_faster_kind_has_more_layers_and_the_step_is_shorter_than_with_as_many() -> None:
    best = step(str(KINDS), PLAN)
    even = step(str(KINDS), PLAN.replace("pp2", "pp2:split=8/8"))
    first, second = split_of(best)
    assert first > second
    assert first + second == 16
    assert best.step_seconds < 0.9 * even.step_seconds
    fast, slow = (step(f"16x{device}", PLAN) for device in ("h100", "a100-80"))
    assert fast.step_seconds < best.step_seconds < slow.step_seconds
    assert any("with 8 layers on each stage" in note for note in best.notes)


def test_no_other_split_is_faster() -> None:
    found = {first: step(str(KINDS), PLAN.replace("pp2", f"pp2:split={first}/{16 - first}")) for first in range(9, 16)}
    least = min(found, key=lambda first: found[first].step_seconds)
    assert abs(least - split_of(step(str(KINDS), PLAN))[0]) <= 1


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "interleaved,v2", "zb-v", "dualpipe"])
def test_two_kinds_that_are_one_under_any_schedule(tmp_path: Path, schedule: str) -> None:
    """Stages told apart by where they lie are the engine's own, to the last digit of a sum."""
    split = "split=4/4/4/4" if schedule in ("interleaved,v2", "zb-v") else "split=8/8"
    plan = PLAN.replace("pp2", f"pp2:{schedule},{split}")
    whole, stages = step(of_one_kind(tmp_path, "h100"), plan), resolve(question(of_one_kind(tmp_path, "h100"), plan))
    place = stages.place
    known = priced_on_kinds(stages.setting, (place, place), (0, 1), 0)
    assert composed(known, place).step_seconds == pytest.approx(whole.step_seconds, rel=1e-9)


def test_a_slower_stage_costs_its_turns(tmp_path: Path) -> None:
    """gpipe of two equal stages, one of which takes twice as long for all it computes: fill, m turns, drain."""
    text = KINDS.read_text().replace('"a100-80"', '"h100@2x"')
    file = tmp_path / "throttled.toml"
    file.write_text(text)
    plan = PLAN.replace("pp2", "pp2:gpipe,split=8/8")
    fast, mixed, slow = (step(on, plan).step_seconds for on in ("16xh100", str(file), "16xh100@2x"))
    turns = 8
    share = (mixed - fast) / (slow - fast)
    assert turns / (turns + 1) - 0.08 < share < 1


WIDE = "llama3.2-1b:vocab=32000,hidden=4096,heads=32,ffn=14336,kv_heads=8,seq=4096"


@pytest.mark.parametrize(("split", "fullest"), [("14/2", 0), ("10/6", 1), ("2/14", 1)])
def test_a_stage_has_the_memory_of_the_kind_it_lies_on(tmp_path: Path, split: str, fullest: int) -> None:
    """14 layers fill more than an A100 of 40 GB, but lie on an H100 of 80. Of 10 and 6 those have more bytes and these
    less room."""
    file = tmp_path / "unlike.toml"
    file.write_text(KINDS.read_text().replace('"a100-80"', '"a100-40"'))
    plan = f"pp2:split={split} dp8:zero1 +m8 +bf16"
    found = predicted(question(str(file), plan, WIDE))[1]
    alone = [predicted(question(of_one_kind(tmp_path, device), plan, WIDE))[1] for device in ("h100", "a100-40")]
    assert found.memory.by_stage == tuple(one.memory.by_stage[at] for at, one in enumerate(alone))
    assert found.memory_bytes == found.memory.device == found.memory.by_stage[fullest]
    assert sum(found.memory.by_kind.values()) == pytest.approx(found.memory_bytes)
    own = alone[fullest]
    assert (found.capacity, found.usable, found.most) == (own.capacity, own.usable, own.most)
    assert found.fits
    assert f"on pipeline rank {fullest}" in found.memory.peak_moment
    assert alone[1].fits == (split != "14/2")


def test_the_fullest_for_its_device_is_told_though_another_stage_is_larger(tmp_path: Path) -> None:
    """Of 10 layers on 80 GB and 6 on 24 GB the 6 have least room; if all were of that kind, the 10 would be fullest."""
    file = tmp_path / "small.toml"
    file.write_text(KINDS.read_text().replace('"a100-80"', '"a10"'))
    found = predicted(question(str(file), "pp2:split=10/6 dp8:zero1 +m8 +bf16", WIDE))[1]
    large, small = found.memory.by_stage
    assert large > small == found.memory_bytes
    assert sum(found.memory.by_kind.values()) == pytest.approx(small)
    assert found.memory.peak_moment.endswith("on pipeline rank 1")
    assert found.fits == (small <= found.usable)


def test_replicas_of_a_pipeline_share_samples(tmp_path: Path) -> None:
    """With data parallelism outermost whole pipelines lie on either kind: their samples differ, not their layers."""
    found = step(str(KINDS), "dp2 pp2 tp4 +m8 +bf16")
    assert found.plan.startswith("dp2:shares=")
    assert any("on each h100" in note for note in found.notes)


def test_groups_on_unlike_devices_wait_for_the_slowest(tmp_path: Path) -> None:
    """Tensor ranks on both kinds: every layer waits for the slower one."""
    found, slow = (step(on, "tp2 dp8 +bf16") for on in (str(KINDS), of_one_kind(tmp_path, "a100-80")))
    assert found.step_seconds == pytest.approx(slow.step_seconds)
    assert any("wait for the slowest" in note for note in found.notes)


def test_the_layers_of_the_stage_that_is_fullest_for_its_device_are_named(tmp_path: Path) -> None:
    file = tmp_path / "unlike.toml"
    file.write_text(KINDS.read_text().replace('"a100-80"', '"a100-40"'))
    asked, found = predicted(question(str(file), "pp2:split=10/6 dp8:zero1 +m8 +bf16", WIDE))
    named = [one.name for one in alive(priced(asked.setting, asked.place), asked.place, found.memory)]
    assert found.memory.peak_moment.endswith("on pipeline rank 1")
    layers = {int(number) for name in named for number in re.findall(r"layers\.(\d+)", name)}
    assert layers and min(layers) >= 10


def test_layers_at_both_ends_lie_on_one_kind() -> None:
    with pytest.raises(BadInput, match="the same layers lie on both kinds") as problem:
        step(str(KINDS), "pp2:dualpipe dp8 +m8 +bf16")
    assert problem.value.fix
