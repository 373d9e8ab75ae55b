"""What autograd keeps on one rank of many under every rule of recomputation: the bytes of the program, exactly.

FSDP2's shares, tensor ranks, shares of sequences, and both together: real modules under the appliers of `foretell run`
run, in a process of its own whose other ranks are not there (`kept_by_ranks.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from foretell.plan.recomputation import recomputations

HERE = Path(__file__).parent

LLAMA = "llama:layers=3,hidden=64,heads=8,kv_heads=4,ffn=96,vocab=50,seq=32"
GPT = "gpt:layers=3,hidden=64,heads=4,vocab=50,seq=32"
MIXTURE = "mixture:layers=2,hidden=64,heads=8,kv_heads=4,ffn=96,vocab=50,seq=32,experts=4"
BATCH, TOKENS = 8, 8 * 32

WORDS = (
    "",
    *(f" +recompute:{word}" for word in (*recomputations(), "first1", "nth2", "attention,mlp") if word != "none"),
)
"""Every rule; `kept_by_ranks` says which of them do not run for a module."""

DIVIDED = (" +recompute:block +partitioned",)
"""What tensor ranks save in shares: where they have all of a layer's input."""

CASES = [
    *((LLAMA, axes) for axes in ("dp4:zero2", "dp4:zero3", "tp2", "tp2:sp", "dp2:zero3 tp2:sp")),
    (GPT, "tp2:sp"),
    (GPT, "tp2"),
    (MIXTURE, "dp4:zero3"),
]

PLACES = 32 * 8
"""Numbers of the places of a sequence, which are made again with all of a model."""

MASKED = 8 + 1
"""Bytes of a token that a table cut by rows keeps: its row here, and whether it is elsewhere."""


def kept(model: str, axes: str) -> list[dict[str, float | str]]:
    """Of one process: bytes alive after a forward pass, and those of the program, by plan."""
    plans = [f"{axes}{word}" for word in (*WORDS, *(DIVIDED if axes.endswith("tp2") else ()))]
    program = [sys.executable, "-W", "ignore", str(HERE / "kept_by_ranks.py"), model, str(BATCH), *plans]
    known = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent), *sys.path])}
    done = subprocess.run(program, capture_output=True, text=True, check=False, env=known)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(("model", "axes"), CASES)
def test_a_rank_keeps_what_its_program_says(model: str, axes: str) -> None:
    compared = 0
    for one in kept(model, axes):
        plan = str(one["plan"])
        if "refused" in one or (":sp" in plan and "operators" in plan):
            continue  # torchtitan saves what is summed into shares, and the appliers here do not
        more = float(one["kept"]) - float(one["said"])
        compared += 1
        ranks = 2 if axes.startswith("dp2") else 4 if axes.startswith("dp") else 1
        if "full" in plan:
            assert more == (-PLACES if model == GPT else 0), one
        else:
            assert more == (MASKED * TOKENS / ranks if "tp" in axes else 0), one
    assert compared >= 5 + axes.endswith("tp2")
