"""Sixteen bits with master weights: what small updates would lose is kept, and all ranks agree."""

from __future__ import annotations

import pytest
import torch
from equalities import LLAMA, Trained, trained_as

from foretell import modules
from foretell.program.expand import expand
from foretell.program.lower import lower
from foretell.runtime.assignment import Assignment, Collective
from foretell.runtime.expected import expected, whenever
from foretell.runtime.launch import Ranks
from foretell.runtime.tasks import Batch, synthetic

SMALL = 1e-5
"""A rate whose updates are lost in 8 bits of mantissa, one by one."""


def _run(ranks: Ranks, plan: str) -> tuple[Trained, Assignment]:
    asked = Assignment(
        model=LLAMA, plan=plan, batch=8, steps=17, weights=True, rate=SMALL, optimizer="sgd", trainer="pytorch"
    )
    return trained_as(ranks, asked), asked


def _by_hand(dtype: torch.dtype, name: str) -> dict[str, torch.Tensor]:
    """Twenty steps in one process, with copies in fp32 that are updated."""
    spec = f"{LLAMA},dtype={name}"
    torch.manual_seed(0)
    module = modules.build(spec)
    example = modules.example(spec, 8)
    torch.manual_seed(0)
    batches = synthetic.Synthetic().batches(Batch(example.inputs, example.target), 0)
    masters = {name: weight.detach().float().clone() for name, weight in module.named_parameters()}
    for _ in range(20):
        batch = next(batches)
        example.loss(module(*batch.inputs), batch.target).backward()
        for name, weight in module.named_parameters():
            assert weight.grad is not None
            masters[name] -= SMALL * weight.grad.float()
            weight.data.copy_(masters[name])
            weight.grad = None
    return {name: weight.detach() for name, weight in module.named_parameters()}


@pytest.mark.parametrize(("plan", "dtype", "name"), [("dp1 +bf16", torch.bfloat16, "bf16")])
def test_masters_are_updated(ranks: Ranks, plan: str, dtype: torch.dtype, name: str) -> None:
    found, _ = _run(ranks, plan)
    for path, weight in _by_hand(dtype, name).items():
        assert torch.equal(found.weights[path], weight), path


PLANS = (
    "dp2 +bf16",
    "dp2:zero3 +bf16 +offload:optimizer",
    "dp2 +fp16",
    "tp2:sp +bf16",
    "dp2 +bf16:pure",
    "pp2:1f1b +m2 +amp_bf16",
    "dp2 +amp_fp16",
    "dp2:zero3 +fp32",
)


@pytest.mark.parametrize("plan", PLANS)
def test_ranks_train_as_one_does_up_to_rounding(ranks: Ranks, plan: str) -> None:
    """And what travels is what was predicted; with fp16 ranks ask each other whether a gradient was not finite."""
    found, asked = _run(ranks, plan)
    alone, _ = _run(ranks, f"dp1 {plan.partition(' ')[2]}")
    assert found.losses == pytest.approx(alone.losses, rel=1e-6 if "+fp32" in plan else 0.02)
    program = expand(lower(asked.setting))
    for report in found.reports:
        said, ran = expected(program, report.place.get("pp", 0)), whenever(report.collectives)
        more = [one for one in ran if one not in said]
        assert [one for one in said if one not in ran] == []
        assert more == ([Collective("all-reduce", ("dp",), 2, 4, 1)] if "fp16" in plan else [])
