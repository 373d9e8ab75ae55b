"""Comparisons that run: engines that should learn the same do, on one host and on several."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from foretell.bench import engine, environments, study
from foretell.bench.measuring import Starter, measured
from foretell.bench.question import BenchQuestion
from foretell.bench.reading import FIRST, difference
from foretell.bench.row import OK, BenchRow
from free_port import free_port

MODELS = {
    "image": "vgg:convolutions=1/1/1/1/1,image=32,classes=10,width=4,pooled=1,dense=16,dropout=0",
    "language": "gpt2:layers=2,hidden=16,heads=2,vocab=128,seq=16,dropout=0,tied=false",
}
ON_TEXT = ("megatron_tensor", "tensor", "tensor_sp", "data_tensor", "fsdp2_zero3", "zero1", "one_f_one_b")

SYNCHRONOUS = [name for name in engine.names() if engine.engine(name).synchronous]


def _hindrance(name: str) -> str:
    """Why an engine cannot run here, or nothing."""
    one = engine.engine(name)
    if one.gpu:
        return f"{name} needs CUDA"
    return "" if environments.found(one) else f"{one.package} is not installed"


@pytest.fixture(scope="module")
def starter() -> Iterator[Starter]:
    with Starter() as found:
        yield found


def _asked(name: str, pair: str) -> BenchQuestion:
    """On two ranks, hybrids on four, in the same batches of 16."""
    ranks = max(2, engine.engine(name).least)
    return BenchQuestion(engine=name, pair=pair, ranks=ranks, model=MODELS[pair], batch=16 // ranks, steps=2, look=0)


@pytest.fixture(scope="module")
def references(starter: Starter) -> dict[str, BenchRow]:
    return {pair: measured(_asked("ddp", pair), starter) for pair in MODELS}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SYNCHRONOUS if name != "ddp"])
def test_synchronous_engines_have_the_same_first_losses(
    name: str, starter: Starter, references: dict[str, BenchRow]
) -> None:
    if reason := _hindrance(name):
        pytest.skip(reason)
    text = name in ON_TEXT or name.startswith("deepspeed")  # large gradients show whoever clips them unasked
    pair = "language" if text else "image"
    row = measured(_asked(name, pair), starter)
    assert row.status == OK, row.reason
    assert len(row.losses) == FIRST and len(row.memory_by_rank) == _processes(name)
    assert difference(row, references[pair]) < 1e-4, (row.losses, references[pair].losses)
    assert (
        row.step_seconds > 0 and row.epoch_samples > 0 and sum(row.phases.values()) == pytest.approx(row.step_seconds)
    )


def _processes(name: str) -> int:
    """Processes: one framework has all its stages in one."""
    return 1 if name == "fairscale_pipe" else max(2, engine.engine(name).least)


# plug-ins


@pytest.mark.slow
def test_the_plug_in_of_the_page_is_an_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, references: dict[str, BenchRow]
) -> None:
    """As an installed package would bring it: a module and the name of it."""
    page = (Path(__file__).parents[2] / "docs" / "bench.md").read_text()
    code = next(block for block in page.split("```python\n")[1:] if "ENGINE" in block).partition("```")[0]
    (tmp_path / "plugged_engine.py").write_text(code)
    about = tmp_path / "plugged-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{engine.PLUG_INS}]\nmine = plugged_engine\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with Starter() as starter:
        row = measured(_asked("mine", "image"), starter)
    assert row.status == OK, row.reason
    assert row.title == "mine" and row.settings["buckets"] == "one"
    assert difference(row, references["image"]) < 1e-4


# several hosts

ALONE = ("env", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1")
"""Each of torchrun's processes as if it were alone on its host."""

SRUN = """\
import os, subprocess, sys
_, _, nodes, _, tasks, *command = sys.argv  # -N NODES --ntasks-per-node TASKS COMMAND
nodes, tasks = int(nodes), int(tasks)
step = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "localhost"}
step |= {"SLURM_STEP_NUM_TASKS": str(nodes * tasks), "SLURM_STEP_TASKS_PER_NODE": f"{tasks}(x{nodes})"}
started = [
    subprocess.Popen(command, env={**os.environ, **step, "SLURM_PROCID": str(rank), "SLURM_NODEID": str(rank // tasks),
                                   "SLURM_LOCALID": str(rank % tasks)})
    for rank in range(nodes * tasks)
]
sys.exit(any([task.wait() for task in started]))  # -9 of one that was killed is less than 0
"""
"""Starts tasks with the variables that srun(1) lists; its nodes are all this one."""


def _torchrun(folder: Path) -> list[str]:
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return [*run, "--no-python", *ALONE]


def _srun(folder: Path) -> list[str]:
    program = folder / "srun"
    program.write_text(f"#!{sys.executable}\n{SRUN}")
    program.chmod(0o755)
    return [str(program), "-N", "2", "--ntasks-per-node", "1"]


def _ran(command: list[str], limit: float = 600.0) -> str:
    """What a launcher and its tasks say; all of them are gone at the limit."""
    given = {**os.environ, "PYTHONPATH": str(Path(environments.__file__).parents[2]), "MASTER_PORT": str(free_port())}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=given, start_new_session=True, **pipes) as launched:
        try:
            said, problem = launched.communicate(timeout=limit)
        except BaseException:
            os.killpg(launched.pid, signal.SIGKILL)
            raise
    assert launched.returncode == 0, problem
    return said


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [_torchrun, _srun])
def test_a_launcher_starts_a_comparison_on_several_hosts(launcher: Callable[[Path], list[str]], tmp_path: Path) -> None:
    """Seat 0 asks and keeps, both compute; losses are those of ranks that are started here."""
    words = ["--engine", "ddp,ray-train", "--pair", "image", "--model", MODELS["image"], "--ranks", "1,2"]
    words += ["--batch", "8", "--steps", "2", "--look", "0", "--out", str(tmp_path), "--json"]
    said = _ran([*launcher(tmp_path), sys.executable, "-m", "foretell", "bench", *words])
    (told,) = [json.loads(line) for line in said.splitlines() if line.startswith("{")]  # seat 0 alone answers
    assert told["about"]["hosts"] == 2
    found = {(row.engine, row.ranks): row for row in study.read(tmp_path).rows}
    assert all(len(found["ddp", ranks].losses) == FIRST and found["ddp", ranks].node == 1 for ranks in (1, 2))
    assert len(found["ddp", 2].memory_by_rank) == 2 and "several hosts" in found["ddp", 2].unpredicted
    assert found["ddp", 1].predicted is not None
    assert "on one host" in found["ray_train", 2].reason
