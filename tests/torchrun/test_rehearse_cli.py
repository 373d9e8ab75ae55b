"""`foretell rehearse`: what it answers, what it extends, what becomes of its record, and how it ends."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from endings import Ending

from answers import documented
from foretell.hardware import this_machine

TINY = "gpt:layers=8,hidden=64,heads=4,vocab=128,seq=32"

FSDP = """
import sys, torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
assert dist.get_backend() == "gloo" and (dist.get_rank(), dist.get_world_size()) == (3, 64)
model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
mesh = init_device_mesh("cpu", (64,))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), float(sys.argv[1]))
for step in range(1000):
    loss = model(torch.randn(8, 64)).square().mean()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    seen = loss.detach().clone()
    dist.all_reduce(seen)
    assert torch.isfinite(seen) and torch.isfinite(norm) and norm > 0
"""

TWO_AXES = """
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist.init_process_group()
mesh = init_device_mesh("cpu", (8, 8), mesh_dim_names=("dp", "tp"))
model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)) for _ in range(4)])
for block in model:
    parallelize_module(block, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(block, mesh=mesh["dp"])
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(model.parameters())
while True:
    model(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

HYBRID = """
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group()
mesh = init_device_mesh("cpu", (8, 8), mesh_dim_names=("replicas", "shards"))
model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
for layer in (*model, model):
    fully_shard(layer, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
while True:
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

ACCELERATE = """
import torch
from accelerate import Accelerator
from torch import nn

accelerator = Accelerator(cpu=True)
assert accelerator.num_processes == 64 and accelerator.process_index == 3
pairs = torch.utils.data.TensorDataset(torch.randn(4096, 64), torch.randint(10, (4096,)))
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters())
model, optimizer, data = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(pairs, batch_size=4))
for epoch in range(100):
    for inputs, target in data:
        loss = nn.functional.cross_entropy(model(inputs), target)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        assert torch.isfinite(accelerator.gather(loss.detach())).all()
"""


def _ran(*words: str, folder: Path, seconds: float = 600.0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "foretell", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds)


def test_a_rank_of_each_kind_beside_its_prediction(tmp_path: Path) -> None:
    asked = (TINY, "--on", "64xcpu", "--plan", "dp8 tp2 pp4 +m4", "--batch", "64")
    ran = _ran("rehearse", *asked, "--steps", "2", "--records", "kept", "--json", folder=tmp_path)
    found = documented("rehearse", ran.stdout)
    assert found["rehearsed"] == [0, 1, 3] and found["ranks"] == 64
    assert found["comparison"]["collectives"] == {"unexpected": [], "missing": []}
    assert len(found["memory"]["by_stage"]) == 3 and found["why"] == "" and len(found["unseen"]) == 3
    shown = _ran("results", "show", found["record"], folder=tmp_path).stdout
    assert "rank 0, 1, 3 alone" in shown
    compared = _ran("compare", found["record"], folder=tmp_path).stdout
    assert "The collectives that ran are those that were predicted, to the byte." in compared
    refused = _ran("predict", *asked, "--anchor", found["record"], folder=tmp_path)
    assert refused.returncode == 2 and "says nothing of the kernels of 64xcpu" in refused.stderr


def test_two_shallow_models_stand_for_a_deep_one(tmp_path: Path) -> None:
    asked = ("rehearse", TINY, "--on", "4xcpu", "--plan", "dp4:zero3", "--batch", "8", "--steps", "1")
    asked = (*asked, "--messages", "none")
    whole = documented("rehearse", _ran(*asked, "--records", "kept", "--json", folder=tmp_path).stdout)
    ran = _ran(*asked, "--depths", "4,6", "--records", "kept", "--json", folder=tmp_path)
    extended = documented("rehearse", ran.stdout)
    assert extended["depths"] == [4, 6] and whole["depths"] == []
    assert extended["memory"]["allocated"] == pytest.approx(whole["memory"]["allocated"], rel=0.01)
    said = [(one["kind"], one["payload"], one["count"]) for one in extended["collectives"]]
    among = {(one["kind"], one["payload"]) for one in whole["collectives"]}
    assert {(kind, payload) for kind, payload, _ in said} == among


def test_a_rehearsal_on_the_same_device_is_an_anchor(tmp_path: Path) -> None:
    asked = ("lenet", "--on", "this-machine", "--plan", "dp2", "--batch", "8")
    found = documented("rehearse", _ran("rehearse", *asked, "--records", "kept", "--json", folder=tmp_path).stdout)
    told = _ran("predict", *asked, "--anchor", found["record"], "--json", folder=tmp_path)
    answer = documented("predict", told.stdout)
    assert answer["step_seconds"] == pytest.approx(found["step_seconds"])
    assert any("messages took as long as they are priced" in note for note in answer["notes"])


def test_too_long_for_this_machine_is_extended_or_refused(tmp_path: Path) -> None:
    asked = ("--on", "4xcpu", "--plan", "dp4", "--batch", "8", "--timeout", "0.001", "--records", "kept")
    ran = _ran("rehearse", "lenet", *asked, folder=tmp_path)
    assert (
        ran.returncode == 2
        and "--timeout is 0.001 s" in ran.stderr
        and "is not shortened" in re.sub(r"\s+", " ", ran.stderr)
    )


@pytest.mark.parametrize(
    "how, said",
    [("signal_9", "was ended by signal 9"), ("memory", "ran out of memory"), ("hang", "no rank went on for 6 s")],
)
def test_a_rank_that_ends_leaves_a_message_and_nothing_else(tmp_path: Path, how: str, said: str) -> None:
    asked = ("--on", "4xcpu", "--plan", "dp4", "--batch", "4", "--rank", "1", "--records", "kept")
    asked = (*asked, "--patience", "6") if how == "hang" else asked
    ran = _ran("rehearse", Ending(how, 1, 0).model, *asked, folder=tmp_path)
    assert ran.returncode == 2 and said in ran.stderr
    assert not list(tmp_path.glob("kept/*"))


@pytest.mark.skipif(this_machine.gpus() > 0, reason="this machine has a GPU")
def test_a_machine_without_a_gpu_says_what_it_can_do(tmp_path: Path) -> None:
    asked = ("lenet", "--on", "4xh100", "--plan", "dp4", "--batch", "4", "--steps", "1", "--records", "kept")
    refused = _ran("rehearse", *asked, "--device", "cuda", folder=tmp_path)
    assert refused.returncode == 2 and "no GPU" in refused.stderr and "--device cpu" in refused.stderr
    told = re.sub(r"\s+", " ", _ran("rehearse", *asked, folder=tmp_path).stdout)
    assert "rehearsed rank 0 of 4, on a core of" in told
    assert "are those of cpu-core here, not of h100" in told and "it is no anchor for h100" in told


SHARED, SUMMED = {"all-gather", "reduce-scatter"}, {"all-reduce"}


@pytest.mark.parametrize(
    "source, plan, sent",
    [
        (FSDP, "dp64:zero3", SHARED),
        (HYBRID, "dp8:zero3,shard8", SHARED | SUMMED),
        (ACCELERATE, "dp64", SUMMED),
        (TWO_AXES, "dp8:zero3 tp8", SHARED | SUMMED),
    ],
    ids=["fsdp2", "hybrid", "accelerate", "two axes"],
)
def test_a_script_runs_as_it_is_and_its_plan_is_recognised(
    tmp_path: Path, source: str, plan: str, sent: set[str]
) -> None:
    if "accelerate" in source:
        pytest.importorskip("accelerate")
    (tmp_path / "train.py").write_text(source)
    asked = ("rehearse", "--script", "--on", "64xcpu", "--rank", "3", "--messages", "none", "--steps", "2")
    ran = _ran(*asked, "--records", "kept", "--json", "--", "train.py", "1e-3", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    found = documented("rehearse --script", ran.stdout)
    assert found["recognised"] == plan and len(found["steps"]) == 2 and found["allocated"] > found["resting"] > 0
    assert {one["kind"] for one in found["collectives"] if one["payload"] > 64} == sent
    kept = json.loads((tmp_path / found["record"]).read_text())
    assert kept["content"]["rehearsal"] == {"cluster": "64xcpu", "priced": False}


@pytest.mark.parametrize(
    "source, said, way_out",
    [
        ("raise ValueError('no data')", "ValueError: no data", "the same script alone"),
        ("import os; os._exit(7)", "process ended with 7", "the same script alone"),
        (
            "import os; os.kill(os.getpid(), 9)",
            "ended with -9; the kernel does so when memory runs out",
            "a smaller batch or model in the script",
        ),
        ("print('done')", "no optimizer of the script stepped", "more steps in the script"),
    ],
)
def test_a_script_that_fails_is_told_and_leaves_nothing(tmp_path: Path, source: str, said: str, way_out: str) -> None:
    (tmp_path / "train.py").write_text(source)
    asked = ("rehearse", "--script", "--on", "4xcpu", "--steps", "2", "--records", "kept")
    ran = _ran(*asked, "--", "train.py", folder=tmp_path)
    told = re.sub(r"\s+", " ", ran.stderr)
    assert ran.returncode == 2 and said in told and f" try {way_out}" in told
    assert not list(tmp_path.glob("kept/*"))


@pytest.mark.parametrize(
    "said, where",
    [
        (("--plan", "dp4"), "--plan"),
        (("--batch", "64", "--seq", "128"), "--batch, --seq"),
        (("--trainer", "pytorch"), "--trainer"),
    ],
)
def test_what_a_script_says_itself_is_not_read_past(tmp_path: Path, said: tuple[str, ...], where: str) -> None:
    (tmp_path / "train.py").write_text("raise AssertionError('it does not begin')")
    ran = _ran("rehearse", "--script", "--on", "4xcpu", *said, "--", "train.py", folder=tmp_path)
    told = re.sub(r"\s+", " ", ran.stderr)
    assert ran.returncode == 2 and f"{where} with --script: a script has a plan" in told and f"without {where}" in told


def test_ranks_are_said_of_scripts_alone(tmp_path: Path) -> None:
    asked = ("lenet", "--on", "4xcpu", "--plan", "dp4", "--batch", "8", "--ranks", "4")
    ran = _ran("rehearse", *asked, folder=tmp_path)
    assert ran.returncode == 2 and "--ranks 4 without --script" in ran.stderr


def test_a_script_without_an_end_is_ended(tmp_path: Path) -> None:
    """However slow this machine is: also where the time is over before the script begins."""
    (tmp_path / "train.py").write_text("while True: pass")
    asked = ("rehearse", "--script", "--on", "4xcpu", "--steps", "2", "--timeout", "20", "--records", "kept")
    ran = _ran(*asked, "--", "train.py", folder=tmp_path)
    assert ran.returncode == 2 and "did not do 5 steps within 20 seconds" in re.sub(r"\s+", " ", ran.stderr)
    assert not list(tmp_path.glob("kept/*"))
