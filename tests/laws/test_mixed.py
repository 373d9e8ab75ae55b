"""Data parallelism on two kinds of devices: laws of shares, and against plain clusters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from foretell.errors import BadInput
from foretell.hardware import catalog
from foretell.oracle.capacity import place
from foretell.oracle.predict import Prediction
from foretell.oracle.predicted import predicted
from foretell.oracle.request import read
from foretell.oracle.why import why

MODEL = "llama:layers=4,hidden=512,heads=8,ffn=1408,vocab=4096,seq=512"
LEVELS = """
[[levels]]
name = "node"
size = 8
link = "nvlink3-switch"

[[levels]]
name = "fabric"
size = 2
link = "ib-hdr"
ports = 8
"""


def cluster(folder: Path, *devices: str) -> str:
    """Two nodes of eight, of these devices."""
    file = folder / f"{'-'.join(devices)}.toml"
    groups = "".join(f'[[devices]]\ndevice = "{name}"\nranks = 8\n' for name in devices)
    one = f'device = "{devices[0]}"\n' if len(devices) == 1 else groups
    file.write_text(f'title = "two nodes"\n{one}{LEVELS}')
    return str(file)


def step(on: str, plan: str, batch: int = 256, *, model: str = MODEL, forward: bool = False) -> Prediction:
    return predicted(read(model=model, on=on, plan=plan, batch=batch, forward=forward))[1]


PLANS = ("dp16 +bf16", "dp16:zero1 +bf16 +m8", "dp16:zero3 +bf16 +m4 +recompute:block")


@pytest.mark.parametrize("plan", PLANS)
def test_equal_devices_are_a_plain_cluster(tmp_path: Path, plan: str) -> None:
    mixed, plain = (step(cluster(tmp_path, *devices), plan) for devices in (("h100", "h100"), ("h100",)))
    for key in ("step_seconds", "memory_bytes", "samples_per_second", "tokens_per_second", "utilisation", "fits"):
        assert getattr(mixed, key) == pytest.approx(getattr(plain, key)), key


@pytest.mark.parametrize("plan", PLANS)
def test_a_mixture_lies_between_its_kinds(tmp_path: Path, plan: str) -> None:
    """A slower kind never makes it faster, and faster devices in half of the places never slower."""
    fast, slow = (step(cluster(tmp_path, name), plan).step_seconds for name in ("h100", "a100-80"))
    mixed = step(cluster(tmp_path, "h100", "a100-80"), plan)
    assert fast <= mixed.step_seconds <= slow
    assert mixed.batch == 256
    assert mixed.samples_per_second == pytest.approx(256 / mixed.step_seconds)


@pytest.mark.parametrize("plan", PLANS)
def test_the_order_of_kinds_does_not_matter(tmp_path: Path, plan: str) -> None:
    one, other = (step(cluster(tmp_path, *both), plan) for both in (("h100", "a30"), ("a30", "h100")))
    assert one.step_seconds == other.step_seconds
    assert one.memory_bytes == other.memory_bytes


@pytest.mark.parametrize("plan", PLANS)
def test_shares_are_no_worse_than_even_ones(tmp_path: Path, plan: str) -> None:
    """The slower kind alone with an even share is what an even split would take."""
    uneven = step(cluster(tmp_path, "h100", "a30"), plan)
    even = max(step(cluster(tmp_path, name), plan).step_seconds for name in ("h100", "a30"))
    assert uneven.step_seconds <= even
    assert "on each a30" in uneven.notes[0] and "16 samples on each rank" in uneven.notes[1]


def test_where_work_decides_the_faster_kind_takes_more(tmp_path: Path) -> None:
    """312 and 989 Tflop/s: of 32 samples of a pair of ranks an H100 takes more than 20."""
    large = "llama:layers=8,hidden=4096,heads=32,ffn=11008,vocab=4096,seq=2048"
    told = step(cluster(tmp_path, "h100", "a100-80"), "dp16:zero1 +bf16 +m16", model=large)
    even = step(cluster(tmp_path, "a100-80"), "dp16:zero1 +bf16 +m16", model=large)
    assert told.step_seconds < 0.7 * even.step_seconds
    samples = [int(number) for number in re.findall(r"(\d+) on each", told.notes[0])]
    assert samples[0] > 20 and sum(samples) == 32


def test_shares_take_the_whole_batch(tmp_path: Path) -> None:
    for batch in (240, 248, 256):
        told = step(cluster(tmp_path, "h100", "a100-80"), "dp16 +bf16", batch).notes[0]
        samples = [int(number) for number in re.findall(r"(\d+) on each", told)]
        assert 8 * sum(samples) == batch and min(samples) > 0


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ({"plan": "dp8 +bf16"}, "predicted as a whole"),
        ({"plan": "dp16:shares=2/3 +bf16"}, "do not go into shares of 2/3"),
        ({"plan": "tp2 dp8:shares=3/1 +bf16"}, "lie on both kinds"),
        ({"plan": "dp16 +bf16", "batch": 12}, "do not go into"),
        ({"plan": "dp16 +bf16 +m4", "batch": 72}, "no 4 equal micro-batches"),
        ({"plan": "dp16 +bf16", "forward": True}, "a training step"),
    ],
)
def test_what_is_not_modelled_is_refused_with_a_way_out(tmp_path: Path, words: dict[str, Any], what: str) -> None:
    on = cluster(tmp_path, "h100", "a100-80")
    with pytest.raises(BadInput, match=what) as problem:
        step(on, **words)
    assert problem.value.fix
    assert catalog.cluster(on).mixed


def test_a_batch_that_shares_do_not_divide_is_told_the_nearest_that_they_do(tmp_path: Path) -> None:
    on = cluster(tmp_path, "h100", "a100-80")
    with pytest.raises(BadInput) as problem:
        step(on, plan="dp16:zero1,shares=3/1 +bf16", batch=65)
    assert problem.value.fix == "--batch 64"
    assert step(on, plan="dp16:zero1,shares=3/1 +bf16", batch=64).step_seconds > 0


def test_why_is_refused_before_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.oracle.why.refined_answer", lambda *_: pytest.fail("it searched"))
    on = cluster(tmp_path, "h100", "a100-80")
    with pytest.raises(BadInput, match="mixes devices"):
        why(read(model="llama3.2-1b", on=on, batch=64, plan="dp16 +bf16"))


def test_memory_alone_of_a_mixture_is_sent_where_it_is_answered(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as problem:
        place(cluster(tmp_path, "h100", "a100-80"))
    assert problem.value.fix.startswith("foretell predict MODEL --on ")


@pytest.mark.parametrize(("plan", "batch"), [("dp16:shares=3/1 +bf16", 256), ("dp16:zero1,shares=3/1 +bf16 +m4", 256)])
def test_a_split_that_is_said_is_the_step_of_the_slowest(tmp_path: Path, plan: str, batch: int) -> None:
    """24 samples on an H100 and 8 on an A100: what each takes with so many, all ranks alike."""
    both = cluster(tmp_path, "h100", "a100-80")
    even = plan.replace(",shares=3/1", "").replace(":shares=3/1", "")
    counts = (6, 2) if "+m4" in plan else (1, 1)
    alone = []
    for name, samples, count in zip(("h100", "a100-80"), (24, 8), counts, strict=True):
        own = even.replace("+m4", f"+m{count}")
        alone.append(step(cluster(tmp_path, name), own, 16 * samples).step_seconds)
    assert step(both, plan, batch).step_seconds == pytest.approx(max(alone), rel=1e-6)


def test_the_best_shares_are_said_in_the_plan_and_give_the_same_step(tmp_path: Path) -> None:
    large = "llama:layers=4,hidden=4096,heads=32,ffn=11008,vocab=4096,seq=2048"
    both = cluster(tmp_path, "h100", "a100-80")
    found = step(both, "dp16:zero1 +bf16 +m16", model=large)
    assert "shares=" in found.plan
    again = step(both, found.plan, model=large)
    assert again.step_seconds == found.step_seconds and again.plan == found.plan


def test_unequal_shares_of_equal_devices_wait_for_the_largest(tmp_path: Path) -> None:
    one = cluster(tmp_path, "h100")
    assert step(one, "dp16:shares=3/1 +bf16").step_seconds == step(one, "dp16 +bf16", 16 * 24).step_seconds
