"""What an engine does to one rank alone: its wrapper is there, precision lies beneath, a stage may have no weights."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from foretell.bench.engine import Engine, engine, written
from foretell.runtime import appliers
from foretell.runtime.assignment import Assignment
from foretell.runtime.launch import Ranks
from foretell.runtime.subject import TorchOptimizer

ALONE = Assignment(model="lenet", plan="dp1", batch=4, steps=1)


def test_a_wrapper_of_one_rank_talks_to_itself_and_changes_no_loss(ranks: Ranks) -> None:
    (plain,) = ranks.run(ALONE)
    (wrapped,) = ranks.run(msgspec.structs.replace(ALONE, alone=True))
    assert not plain.collectives
    assert [(one.kind, one.axes, one.ranks) for one in wrapped.collectives] == [("all-reduce", ("dp",), 1)]
    assert wrapped.losses == pytest.approx(plain.losses, rel=1e-6)


@pytest.mark.parametrize(("policy", "dtype"), [("", torch.float32), ("+amp_bf16", torch.bfloat16)])
def test_frameworks_compute_in_the_precision_of_the_plan(policy: str, dtype: torch.dtype) -> None:
    setting = msgspec.structs.replace(ALONE, plan=f"dp1 {policy}").setting
    part: Any = nn.Linear(2, 2)
    subject: Any = SimpleNamespace(setting=setting, parts=[part], device=torch.device("cpu"))
    appliers.in_precision(subject)
    assert part(torch.ones(1, 2)).dtype == dtype


def test_a_stage_without_weights_is_updated_all_the_same() -> None:
    optimizer = TorchOptimizer(torch.optim.AdamW, {"lr": 0.1}).over([])
    optimizer.step()
    assert [len(group["params"]) for group in optimizer.param_groups] == [1]


def test_variables_of_an_engine_name_the_device_of_the_pair() -> None:
    asked = Engine(title="", plan="dp{n}", environment={"WHERE": "{device}"})
    assert written(asked, 2, "", "", "cuda").environment == {"WHERE": "cuda"}
    assert written(engine("deepspeed_zero2"), 2, "", "").environment["DS_ACCELERATOR"] == "cpu"
