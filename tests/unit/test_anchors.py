"""Measurements as evidence: what each form says, and what a prediction makes of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foretell import predict
from foretell.errors import BadInput
from foretell.hardware.catalog import cluster
from foretell.hardware.members import link
from foretell.oracle.anchored import anchored
from foretell.oracle.anchors import Anchor, read
from foretell.oracle.bands import bands
from foretell.oracle.traces import merged

MODEL = "llama:layers=4,hidden=1024,heads=8,kv_heads=8,ffn=2816,vocab=32000,seq=512"
ASK = ("predict", MODEL, "--on", "8xh100", "--batch", "32", "--json")
PLAN = "dp8 +bf16"
LOG = "iteration {0} | elapsed time per iteration (ms): {1} | global batch size: {2} | max reserved: 4096.0\n"
RANK = "#  Rank {0:2d} Group  0 Pid  1 on    {1} device  {0}\n"
HEADER = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
ROW = "{0:12d} {1:12d}     float     sum      -1 {2:9.1f} {3:7.2f} {4:7.2f}      0\n"


def _sweep(seconds: Callable[[int], float], ranks: int = 8, hosts: int = 1) -> str:
    text = "".join(RANK.format(rank, f"node{rank * hosts // ranks}") for rank in range(ranks)) + HEADER
    for size in (2**20, 2**24, 2**28):
        rate = size / seconds(size) / 1e9
        text += ROW.format(size, size // 4, seconds(size) * 1e6, rate, rate * 2 * (ranks - 1) / ranks)
    return text


def _predicted(foretell: Callable[..., Any], plan: str = PLAN, *more: str) -> dict[str, Any]:
    ran = foretell(*ASK, "--plan", plan, *more)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def _written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_the_run_that_was_measured_is_what_was_measured(foretell: Callable[..., Any], tmp_path: Path) -> None:
    plain = _predicted(foretell)
    told = {"step_seconds": 2 * plain["step_seconds"], "memory_bytes": 1.5 * plain["memory_bytes"]}
    found = _predicted(foretell, PLAN, "--anchor", _written(tmp_path, "run.json", json.dumps(told)))
    assert found["step_seconds"] == pytest.approx(2 * plain["step_seconds"])
    assert found["memory_bytes"] == pytest.approx(1.5 * plain["memory_bytes"])
    assert sum(found["breakdown"].values()) == pytest.approx(found["step_seconds"])
    assert found["samples_per_second"] == pytest.approx(plain["samples_per_second"] / 2)
    assert {one["part"] for one in found["findings"]} == {"step", "memory"}
    band, before = (math.sqrt(one["interval"][1] / one["interval"][0]) for one in (found, plain))
    assert band < before


def test_a_part_that_was_wrong_is_corrected_in_other_plans(foretell: Callable[..., Any], tmp_path: Path) -> None:
    """The measured run has slow messages; a plan without any keeps its time."""
    plain = _predicted(foretell)
    parts = {**plain["breakdown"]}
    slow = 3 * parts["exposed.dp"]
    step = sum(parts.values()) - parts["exposed.dp"] + slow
    told = {"model": MODEL, "plan": PLAN, "cluster": "8xh100", "batch": 32, "step_seconds": step}
    told["breakdown"] = {**parts, "exposed.dp": slow}
    file = _written(tmp_path, "run.json", json.dumps(told))
    found = _predicted(foretell, "dp8:zero1 +bf16", "--anchor", file)
    other = _predicted(foretell, "dp8:zero1 +bf16")
    spread = bands().carried
    alike = spread.links + spread.scale + spread.axes  # all that runs of one stack share of their messages
    assert found["breakdown"]["exposed.dp"] == pytest.approx(
        3 ** (alike / (alike + spread.run)) * other["breakdown"]["exposed.dp"]
    )
    assert found["breakdown"]["forward"] == pytest.approx(other["breakdown"]["forward"])
    findings = {one["part"]: one["measured"] / one["predicted"] for one in found["findings"]}
    assert findings["exposed.dp"] == pytest.approx(3)
    assert findings["forward"] == pytest.approx(1)


def test_a_step_with_time_that_no_part_tells(foretell: Callable[..., Any], tmp_path: Path) -> None:
    plain = _predicted(foretell)
    told = {"step_seconds": 1.5 * plain["step_seconds"], "breakdown": {"forward": plain["breakdown"]["forward"]}}
    found = _predicted(foretell, PLAN, "--anchor", _written(tmp_path, "run.json", json.dumps(told)))
    assert found["step_seconds"] == pytest.approx(1.5 * plain["step_seconds"])
    assert found["breakdown"]["other"] > 0
    assert found["breakdown"]["forward"] == pytest.approx(plain["breakdown"]["forward"])


def test_a_log(foretell: Callable[..., Any], tmp_path: Path) -> None:
    text = "".join(LOG.format(at, ms, 32) for at, ms in enumerate((9000, 800, 700, 710)))
    anchor = read(Path(_written(tmp_path, "train.log", text)))
    assert anchor.step_seconds == pytest.approx(0.705)
    assert anchor.asked == {"batch": 32}
    assert anchor.memory_bytes == 4096 * 2**20
    found = _predicted(foretell, PLAN, "--anchor", str(tmp_path / "train.log"))
    assert found["step_seconds"] == pytest.approx(0.705)


def test_nccl_tests_correct_the_links(foretell: Callable[..., Any], tmp_path: Path) -> None:
    from foretell.cost.collectives import collective_seconds
    from foretell.cost.fabric import Group
    from foretell.hardware.catalog import cluster

    def slow(size: int) -> float:
        return 4 * float(collective_seconds("all-reduce", size, Group(8), cluster("8xh100")).seconds)

    plan = "dp8:zero3 +bf16"
    plain = _predicted(foretell, "tp8 +bf16")
    found = _predicted(foretell, "tp8 +bf16", "--anchor", _written(tmp_path, "sweep.txt", _sweep(slow)))
    slower = found["breakdown"]["exposed.tp"] / plain["breakdown"]["exposed.tp"]
    assert 2 < slower < 4.01  # the logits are gathered, which was not timed
    assert found["provenance"]["exposed.tp"].startswith("measured")
    assert found["findings"][0]["part"] == "all-reduce over 8 ranks"
    untouched = _predicted(foretell, plan, "--anchor", str(tmp_path / "sweep.txt"))
    assert untouched["breakdown"]["exposed.dp"] == _predicted(foretell, plan)["breakdown"]["exposed.dp"]


def test_nccl_tests_of_another_cluster_are_refused(foretell: Callable[..., Any], tmp_path: Path) -> None:
    far = _written(tmp_path, "far.txt", _sweep(lambda size: 1e-3, ranks=16, hosts=2))
    assert foretell(*ASK, "--plan", PLAN, "--anchor", far).code == 2
    split = _written(tmp_path, "split.txt", _sweep(lambda size: 1e-3, hosts=2))
    ran = foretell(*ASK, "--plan", PLAN, "--anchor", split)
    assert ran.code == 2
    assert "nodes" in ran.err


def test_a_profiler_trace_tells_kernels_messages_and_gaps(tmp_path: Path) -> None:
    events = []
    for step in range(3):
        at = 1000.0 * step
        events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": 1000})
        events.append({"ph": "X", "cat": "kernel", "name": "gemm", "ts": at, "dur": 400})
        events.append({"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "ts": at + 300, "dur": 400})
    anchor = read(Path(_written(tmp_path, "trace.json", json.dumps({"traceEvents": events}))))
    assert anchor.step_seconds == pytest.approx(1e-3)
    assert anchor.parts == pytest.approx({"compute": 4e-4, "exposed": 3e-4, "idle": 3e-4})
    assert merged([(0, 2), (1, 3), (5, 6)]) == [(0, 3), (5, 6)]


def _rehearsed(folder: Path, script: bool, **more: Any) -> Path:
    """The record of a rehearsal on a device of the cluster."""
    rehearsal, step = {"rank": 0, "cluster": "8xh100", **more}, {"batch": 32, "step_seconds": 0.5}
    of_run = {"assignment": {"rehearsal": rehearsal}, "measurement": step}
    content = {"rehearsal": rehearsal, "step_seconds": 0.5, "script": "train.py"} if script else of_run
    told = {"kind": "answer" if script else "run", "plan": PLAN, "cluster": "8xh100"}
    told["content"] = {**content, "machine": {"device": "h100"}}
    return Path(_written(folder, "kept.json", json.dumps(told)))


@pytest.mark.parametrize("script", [False, True])
@pytest.mark.parametrize("said", [{"priced": False}, {}])
def test_a_rehearsal_without_messages_is_no_step(tmp_path: Path, script: bool, said: dict[str, bool]) -> None:
    with pytest.raises(BadInput, match="are not known to have taken any time") as refused:
        read(_rehearsed(tmp_path, script, **said))
    assert refused.value.fix == "the same rehearsal again, without --messages none"
    assert read(_rehearsed(tmp_path, script, priced=True)).step_seconds == 0.5


def test_what_a_rehearsed_script_does_not_say_is_told(foretell: Callable[..., Any], tmp_path: Path) -> None:
    unknown = "a script does not say its model, batch and plan: taken to be what is asked about, and not checked"
    found = _predicted(foretell, PLAN, "--anchor", str(_rehearsed(tmp_path, True, priced=True)))
    assert any("messages took as long as they are priced" in note for note in found["notes"])
    assert any(note.endswith(unknown) for note in found["notes"])
    of_model = read(_rehearsed(tmp_path, False, priced=True))
    assert of_model.asked["batch"] == 32 and not any("does not say" in note for note in of_model.notes)


def test_a_forward_pass_is_no_training_step(tmp_path: Path) -> None:
    told = {"assignment": {"forward": True}, "measurement": {"batch": 32, "step_seconds": 0.5}}
    record = {"kind": "run", "plan": PLAN, "cluster": "8xh100", "content": told}
    kept = _written(tmp_path, "kept.json", json.dumps(record))
    with pytest.raises(BadInput, match="says nothing of a training step"):
        read(Path(kept))


def test_files_that_say_nothing(tmp_path: Path) -> None:
    for name, text in (("a.txt", "nothing"), ("b.json", "{}"), ("c.json", '{"step_seconds": -1}'), ("d.txt", HEADER)):
        with pytest.raises(BadInput):
            read(Path(_written(tmp_path, name, text)))
    with pytest.raises(BadInput, match="read"):
        read(tmp_path / "missing.json")


def test_what_limits_the_step_is_told_as_it_was_measured(foretell: Callable[..., Any], tmp_path: Path) -> None:
    """A measured bubble of half the step is a limit, whatever was foretold of it; its share is the corrected one."""
    plan = "pp4:1f1b dp2 +m4 +bf16"
    plain = _predicted(foretell, plan)
    parts = {**plain["breakdown"], "bubble": 3 * plain["breakdown"]["bubble"]}
    told = {"step_seconds": sum(parts.values()), "breakdown": parts}
    found = _predicted(foretell, plan, "--anchor", _written(tmp_path, "run.json", json.dumps(told)))
    shares = [{one["name"]: one["share"] for one in answer["bottlenecks"]} for answer in (plain, found)]
    assert shares[1]["pipeline bubble"] == pytest.approx(found["breakdown"]["bubble"] / found["step_seconds"])
    assert shares[1]["pipeline bubble"] > shares[0]["pipeline bubble"]
    other = next((name for name in shares[0] if name not in ("pipeline bubble", "number of ranks", "memory")), None)
    assert other is None or shares[1].get(other, 0.0) < shares[0][other]


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"a":' * 50_000, '{"step_seconds": 1e308}', '{"step_seconds": 0.1, "batch": 0}']
)
def test_what_nobody_measured_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "anchor.json"
    file.write_text(content)
    with pytest.raises(BadInput):
        read(file)


VGG = ("predict", "vgg16-paradl", "--on", "abci:16", "--trainer", "chainer", "--json")


def _vgg(foretell: Callable[..., Any], plan: str, batch: int, *more: str) -> dict[str, Any]:
    ran = foretell(*VGG, "--plan", plan, "--batch", str(batch), *more)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_a_step_without_parts_says_most_of_plans_like_it(foretell: Callable[..., Any], tmp_path: Path) -> None:
    """The very run is what was measured; another plan takes less of it, another model still less."""
    plain = _vgg(foretell, "dp16 +fp32", 512)
    what = {"model": "vgg16-paradl", "cluster": "abci:16", "plan": "dp16 +fp32", "batch": 512}
    told = {**what, "step_seconds": 1.2 * plain["step_seconds"]}
    anchor = _written(tmp_path, "run.json", json.dumps(told))
    found = _vgg(foretell, "dp16 +fp32", 512, "--anchor", anchor)
    assert found["step_seconds"] == pytest.approx(told["step_seconds"])
    assert any("computing x" in note and "messages x" in note for note in found["notes"])

    def gains(*ask: str) -> float:
        after, before = (json.loads(foretell(*ask, *more).out) for more in (("--anchor", anchor), ()))
        return after["step_seconds"] / before["step_seconds"]

    other = gains(*VGG, "--plan", "dp16 +fp32", "--batch", "256")
    another = gains("predict", "resnet50", *VGG[2:], "--plan", "dp16 +fp32", "--batch", "256")
    fewer = gains("predict", "resnet50", "--on", "abci:1", *VGG[4:], "--plan", "dp1 +fp32", "--batch", "16")
    assert 1.2 > other > another > fewer > 1


@pytest.mark.parametrize("other", [{"trainer": "pytorch"}, {"cluster": "8xa100-80"}, {"model": "llama2-7b"}])
def test_a_run_of_other_software_or_another_device_leaves_a_wider_interval(
    foretell: Callable[..., Any], tmp_path: Path, other: dict[str, str]
) -> None:
    what = {"model": "llama3-8b", "cluster": "8xh100", "trainer": "fsdp", "plan": "dp8:zero3 +bf16", "batch": 8}

    def predicted(told: dict[str, Any], *more: str) -> dict[str, Any]:
        ask = ("--on", told["cluster"], "--trainer", told["trainer"], "--plan", told["plan"])
        return json.loads(foretell("predict", told["model"], *ask, "--batch", str(told["batch"]), "--json", *more).out)

    def width(told: dict[str, Any]) -> float:
        step = predicted(told)["step_seconds"]
        anchor = _written(tmp_path, "run.json", json.dumps({**told, "step_seconds": step}))
        low, high = predicted({**what, "batch": 16}, "--anchor", anchor)["interval"]
        return high / low

    assert width({**what, **other}) > width(what)


def test_what_rounding_leaves_of_a_step_is_no_part() -> None:
    """Ratios that explain a measured step do so but for its last digits."""
    plain = predict("vgg16-paradl", "abci:16", "dp16 +fp32", 512, trainer="chainer")
    for percent in range(100, 150):
        anchor = Anchor(form="study", step_seconds=plain.step_seconds * percent / 100)
        found = anchored(plain, [anchor], (), lambda _: plain)
        assert set(found.breakdown) == set(plain.breakdown), percent
        assert found.step_seconds == pytest.approx(anchor.step_seconds, rel=1e-9)


def test_a_step_far_below_its_messages_leaves_no_part_below_zero(foretell: Callable[..., Any], tmp_path: Path) -> None:
    plain = _vgg(foretell, "dp16 +fp32", 512)
    told = {"plan": "dp16 +fp32", "batch": 512, "step_seconds": 0.24 * plain["step_seconds"]}
    found = _vgg(foretell, "dp16 +fp32", 512, "--anchor", _written(tmp_path, "run.json", json.dumps(told)))
    assert found["step_seconds"] == pytest.approx(told["step_seconds"])
    for part, seconds in plain["breakdown"].items():
        assert 0 < found["breakdown"][part] < seconds, part


def test_managed_memory_pages_what_is_beyond_the_device(foretell: Callable[..., Any]) -> None:
    """Twice what is beyond the device, over its link to the host, in the step and in a note; a plan that fits pages
    nothing, and where memory is not managed nothing pages either."""
    ask = ("predict", "resnet152", "--on", "abci:4", "--plan", "dp4 +fp32", "--json")
    large, small, other = (
        json.loads(foretell(*ask, "--trainer", runs, "--batch", batch).out)
        for runs, batch in (("chainer", "384"), ("chainer", "64"), ("pytorch", "384"))
    )
    assert not large["fits"] and sum("page to the host" in note for note in large["notes"]) == 1
    beyond = large["needed_bytes"] - large["usable"]
    assert large["breakdown"]["paging"] == pytest.approx(
        2 * beyond / link(cluster("abci:4").device.host_link).bandwidth
    )
    assert sum(large["breakdown"].values()) == pytest.approx(large["step_seconds"])
    assert "paging" in {one["name"] for one in large["bottlenecks"]}
    for found in (small, other):
        assert "paging" not in found["breakdown"] and not any("page to the host" in note for note in found["notes"])
    assert small["fits"] and not other["fits"]
