"""Ranks meet in a folder whatever it is called, and a run that has no room is refused with the numbers."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch.distributed.rendezvous import rendezvous

from foretell.errors import BadInput
from foretell.hardware import this_machine
from foretell.runtime import rank_rendezvous
from foretell.runtime.assignment import Assignment, Seat
from foretell.runtime.place import RankPlace, bound
from foretell.runtime.training import _threads
from foretell.runtime.worker import _on_gpu, checked, take_part

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
"""Of what torch's own parts use, when they are loaded for the first time."""

BIG = Assignment(model="llama3-8b:layers=8", plan="dp2", batch=2)


@pytest.mark.parametrize("name", ["plain", "run #1", "why?", "100%25", "a;b&c=d"])
def test_a_folder_may_be_called_anything(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[rendezvous.__module__], "_rendezvous_handlers", {})
    rank_rendezvous.learn()
    (tmp_path / name).mkdir()
    meeting = rank_rendezvous.in_file(tmp_path / name / "store")
    store, rank, world = next(iter(rendezvous(meeting, 0, 1)))
    store.set("here", "I am")
    assert (rank, world, store.get("here")) == (0, 1, b"I am")
    assert (tmp_path / name / "store").is_file()


def test_ranks_that_memory_has_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "free_bytes", lambda: 8 << 30)
    with pytest.raises(BadInput, match=r"2 ranks begin with all weights, .* each with its process, and 8 GiB are free"):
        checked(BIG, here=2)
    monkeypatch.setattr(this_machine, "free_bytes", lambda: 64 << 30)
    assert checked(BIG, here=2).plan.ranks == 2


def test_a_dry_run_needs_memory_only_where_numbers_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "free_bytes", lambda: 8 << 30)
    dry = msgspec.structs.replace(BIG, dry=True)
    assert checked(dry, here=1).plan.ranks == 2
    with pytest.raises(BadInput, match=r"GiB of weights, gradients and states, and 8 GiB are free"):
        checked(msgspec.structs.replace(dry, plan="dp2 +fp16"), here=1)


def test_ranks_that_share_a_gpu_talk_by_gloo_and_gloo_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "gpus", lambda: 1)
    asked = Assignment(model="lenet", plan="dp2", batch=4, device="cuda")
    assert checked(asked, here=2)
    assert checked(Assignment(model="lenet", plan="dp2:zero3", batch=4, device="cuda"), here=2)
    with pytest.raises(BadInput, match="2 ranks share 1 GPUs and talk by gloo, which has no exchange of GPU tensors"):
        checked(Assignment(model="lenet", plan="spatial2", batch=4, device="cuda"), here=2)


def test_ranks_on_one_gpu_talk_by_gloo_unless_srun_gives_each_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    monkeypatch.setenv("SLURM_PROCID", "0")  # as in every shell of sbatch
    assert _on_gpu(RankPlace(1, 2, 1, here=2)) == "gloo"
    assert _on_gpu(RankPlace(1, 2, 1, here=2, by_srun=True)) == "nccl"


def test_ranks_of_torchrun_that_share_a_gpu_are_told_what_gloo_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "gpus", lambda: 1)
    model = "llama:layers=2,hidden=32,heads=4,kv_heads=2,ffn=48,vocab=128,seq=16"
    stages = Assignment(model=model, plan="pp2:gpipe +m2", batch=2, device="cuda")
    with pytest.raises(BadInput, match="2 ranks share 1 GPUs"):
        take_part(stages, RankPlace(0, 2, 0, here=2))


@pytest.mark.parametrize(("given", "said"), [({"dry": True}, "dry run"), ({"steps": 4}, "before the first look")])
def test_looks_that_nobody_gets_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        checked(Assignment(**{"model": "lenet", "plan": "dp1", "batch": 4, "steps": 60, "noise_every": 50} | given))


@pytest.mark.parametrize(
    ("given", "cores", "threads"),
    [
        ("16", 4, 4),  # srun gave each of four ranks its own cores
        ("16", 16, 4),  # and here all of them, to be shared
        ("16", 1, 1),
    ],
)
def test_cores_that_srun_gave_one_rank_are_not_divided_again(
    monkeypatch: pytest.MonkeyPatch, given: str, cores: int, threads: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    task = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    for name, value in {**task, "SLURM_NTASKS_PER_NODE": "4", "SLURM_CPUS_ON_NODE": given}.items():
        monkeypatch.setenv(name, value)
    asked = Assignment(model="lenet", plan="dp4", batch=8, device="cuda")
    assert _threads(asked, 4) == threads
    seat = Seat(0, 0, 4, "", bound=bound(RankPlace(0, 4, 0, here=4, by_srun=True), cores))
    assert _threads(msgspec.structs.replace(asked, seat=seat), 4) == threads
    monkeypatch.setenv("RANK", "0")  # ranks of torchrun share the cores of its own process
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert _threads(asked, 4) == max(1, cores // 4)
