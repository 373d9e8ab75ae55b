"""Comparisons that run: engines that should learn the same do, and a killed one goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from foretell.bench import engine, environments, study
from foretell.bench.measuring import Starter, measured
from foretell.bench.question import Question
from foretell.bench.reading import FIRST, difference
from foretell.bench.row import OK, Row

MODELS = {
    "image": "vgg:convolutions=1/1/1/1/1,image=32,classes=10,width=4,pooled=1,dense=16,dropout=0",
    "language": "gpt2:layers=2,hidden=16,heads=2,vocab=128,seq=16,dropout=0,tied=false",
}
ON_TEXT = ("megatron_tensor", "tensor", "tensor_sp", "fsdp2_zero3", "zero1", "one_f_one_b")

SYNCHRONOUS = [name for name in engine.names() if engine.engine(name).synchronous]


def _hindrance(name: str) -> str:
    """Why an engine cannot run here on two ranks, or nothing."""
    one = engine.engine(name)
    if one.least > 2:
        return f"{name} needs {one.least} ranks"
    if one.gpu:
        return f"{name} needs CUDA"
    return "" if environments.found(one) else f"{one.package} is not installed"


@pytest.fixture(scope="module")
def starter() -> Iterator[Starter]:
    with Starter() as found:
        yield found


def _asked(name: str, pair: str) -> Question:
    return Question(engine=name, pair=pair, ranks=2, model=MODELS[pair], batch=8, steps=2, look=0)


@pytest.fixture(scope="module")
def references(starter: Starter) -> dict[str, Row]:
    return {pair: measured(_asked("ddp", pair), starter) for pair in MODELS}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SYNCHRONOUS if name != "ddp"])
def test_synchronous_engines_have_the_same_first_losses(
    name: str, starter: Starter, references: dict[str, Row]
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
    return 1 if name == "fairscale_pipe" else 2


@pytest.mark.slow
def test_a_comparison_that_is_killed_goes_on(tmp_path: Path) -> None:
    words = ["--engine", "ddp", "--pair", "image", "--model", MODELS["image"], "--ranks", "1", "--seeds", "3"]
    command = [sys.executable, "-m", "foretell", "bench", *words, "--steps", "1", "--look", "0", "--out", str(tmp_path)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        until = time.monotonic() + 300.0
        while not list((tmp_path / "rows").glob("*.json")) and child.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "rows").glob("*.json")}
    assert before
    ended = subprocess.run([*command, "--json"], capture_output=True, timeout=600.0)
    assert ended.returncode == 0, ended.stderr.decode()
    assert all(file.stat().st_mtime_ns == moment for file, moment in before.items())
    assert [row.seed for row in study.read(tmp_path).rows] == [0, 1, 2]
    assert all(row.ok for row in study.read(tmp_path).rows)
