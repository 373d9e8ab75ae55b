"""Muon against torch.optim.Muon, and what whole matrices cost where ranks have shares of them, by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from foretell.model.optimizers import muon
from foretell.model.source import load
from foretell.plan.job import Job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.program.action import Update
from foretell.program.expand import expand
from foretell.program.expanded import ExpandedProgram
from foretell.program.lower import lower


@pytest.mark.parametrize("shape", [(24, 16), (16, 24), (16, 16)])
def test_a_step_of_muon_is_torchs(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    ours = torch.randn(*shape)
    theirs = torch.nn.Parameter(ours.clone())
    settings = {**muon.OPTIMIZER.arguments, "lr": 0.02}
    running = torch.optim.Muon([theirs], lr=0.02, weight_decay=settings["weight_decay"], adjust_lr_fn="match_rms_adamw")
    state: dict[str, Any] = {}
    for _ in range(3):
        theirs.grad = torch.randn(*shape)
        muon.step(ours, theirs.grad.clone(), state, settings)
        running.step()
    torch.testing.assert_close(ours, theirs.detach(), atol=5e-3, rtol=5e-3)  # both multiply in bf16


def test_a_stack_of_experts_steps_as_its_matrices_do() -> None:
    torch.manual_seed(0)
    stack, gradient = torch.randn(3, 16, 24), torch.randn(3, 16, 24)
    apart = [one.clone() for one in stack]
    muon.step(stack, gradient, {}, muon.OPTIMIZER.arguments)
    for one, own in zip(apart, gradient, strict=True):
        muon.step(one, own, {}, muon.OPTIMIZER.arguments)
    torch.testing.assert_close(stack, torch.stack(apart), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("shape", [(24, 16), (16, 24)])
def test_muon_computes_the_flops_that_torch_counts(shape: tuple[int, int]) -> None:
    with FlopCounterMode(display=False) as counter:
        muon.step(torch.randn(*shape), torch.randn(*shape), {}, muon.OPTIMIZER.arguments)
    assert muon.newton_schulz(*shape).matrix == counter.get_total_flops()


RANKS = 4


def lowered(plan: str) -> ExpandedProgram:
    setting = Setting(load("gpt2:layers=3", 8), Job(batch=8, optimizer="muon"), parse(plan), trainer("fsdp"))
    return expand(lower(setting))


def momentum(program: ExpandedProgram) -> dict[str, float]:
    """Bytes that one rank contributes, by the kind of message."""
    found: dict[str, float] = {}
    for message, times in program.communications(program.kinds[0]):
        if message.path == "momentum":
            found[message.kind] = found.get(message.kind, 0.0) + times * message.payload
    return found


def multiplied(program: ExpandedProgram) -> float:
    """Flops of whole matrices in the update of one rank."""
    walked = (action for body, _, _ in program.walk(program.kinds[0]) for action in body.actions)
    return float(sum(action.cost.matrix for action in walked if isinstance(action, Update)))


@pytest.mark.parametrize("storage", ["zero2", "zero3"])
def test_ranks_with_shares_gather_momentum_and_multiply_whole_matrices(storage: str) -> None:
    """Three layers of 768 hidden units: 2304, 768 and 3072 rows of 768, and 768 of 3072, two bytes a number."""
    program = lowered(f"dp{RANKS}:{storage} +bf16")
    sizes = [(2304, 768), (768, 768), (3072, 768), (768, 3072)] * 3
    assert momentum(program) == {"all-gather": sum(rows * columns for rows, columns in sizes) * 2 / RANKS}
    assert multiplied(program) == sum(muon.newton_schulz(*size).matrix for size in sizes)


def test_ranks_with_whole_matrices_share_the_products_out() -> None:
    together = multiplied(lowered("dp1 +bf16"))
    assert momentum(lowered("dp1 +bf16")) == {}
    assert momentum(lowered(f"dp{RANKS} +bf16")) == {} and multiplied(lowered(f"dp{RANKS} +bf16")) == together


def test_tensor_ranks_step_by_the_matrices_that_they_have() -> None:
    """Two ranks of a tensor axis: rows of the first product of each pair are halved, columns of the second."""
    sizes = [(1152, 768), (768, 384), (1536, 768), (768, 1536)] * 3
    assert multiplied(lowered("tp2 +bf16")) == sum(muon.newton_schulz(*size).matrix for size in sizes)
