"""Compiled layers train as they do eagerly. The backend needs no compiler of C++: it shows what torch follows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from equalities import LLAMA, alone, assert_same_collectives, assert_same_values, assignment, double, trained_as

from foretell.runtime.launch import Ranks

ONE = LLAMA.replace("layers=2", "layers=1")
"""A second layer would be compiled once more, by every rank, and show nothing else."""


@pytest.fixture(scope="module")
def compiling() -> Iterator[Ranks]:
    """Ranks that find the backend in their environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORETELL_COMPILE_BACKEND", "aot_eager")
        with Ranks() as found:
            yield found


PLANS = ("dp2 +compiled", "tp2 +compiled")


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
def test_compiled_layers_train_alike(ranks: Ranks, compiling: Ranks, plan: str) -> None:
    found = trained_as(compiling, assignment(double(ONE), plan))
    assert_same_values(found, alone(ranks, ONE))
    assert_same_collectives(ONE, plan, found.reports)


TOLD = """
import os, tempfile
from torch._C._distributed_c10d import FileStore
from torch._dynamo import register_backend
from foretell.runtime import training, worker
from foretell.runtime.assignment import Assignment
from foretell.runtime.place import RankPlace

ran = []

def told(module, inputs):
    return lambda *given: (ran.append(1), module.forward(*given))[1]

register_backend(told, name="told")
with tempfile.TemporaryDirectory() as folder:
    worker.begun("cpu", RankPlace(0, 1, 0), FileStore(folder + "/store", 1))
    asked = Assignment(model="lenet", plan="dp1 +compiled", batch=4, steps=2)
    training.trained(asked, asked.setting, 0)
print(len(ran), flush=True)
os._exit(0)
"""


@pytest.mark.slow
def test_steps_that_are_measured_are_compiled() -> None:
    """Of three dropped and two measured ones all but the one in which collectives are counted."""
    environment = {**os.environ, "FORETELL_COMPILE_BACKEND": "told"}
    ended = subprocess.run([sys.executable, "-c", TOLD], env=environment, capture_output=True, text=True, timeout=300)
    assert ended.stdout.split()[-1:] == ["4"], ended.stderr[-2000:]
