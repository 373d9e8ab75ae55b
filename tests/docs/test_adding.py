"""The members that docs/adding.md adds do what they say: against torch, and against formulas by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from docs.pages import FILE, ROOT

FILES = dict(FILE.findall((ROOT / "docs" / "adding.md").read_text()))


def member(name: str) -> Any:
    """A file of the page, as if it had been imported."""
    names: dict[str, Any] = {"__name__": "added"}
    exec(compile(FILES[name], name, "exec"), names)
    return SimpleNamespace(**names)


@pytest.mark.parametrize("shape", [(24, 16), (16, 24), (16, 16)])
def test_a_step_of_muon_is_torchs(shape: tuple[int, int]) -> None:
    muon = member("src/foretell/model/optimizers/muon.py")
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
    muon = member("src/foretell/model/optimizers/muon.py")
    torch.manual_seed(0)
    stack, gradient = torch.randn(3, 16, 24), torch.randn(3, 16, 24)
    apart = [one.clone() for one in stack]
    muon.step(stack, gradient, {}, muon.OPTIMIZER.arguments)
    for one, own in zip(apart, gradient, strict=True):
        muon.step(one, own, {}, muon.OPTIMIZER.arguments)
    torch.testing.assert_close(stack, torch.stack(apart), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("shape", [(24, 16), (16, 24)])
def test_muon_computes_the_flops_that_torch_counts(shape: tuple[int, int]) -> None:
    muon = member("src/foretell/model/optimizers/muon.py")
    with FlopCounterMode(display=False) as counter:
        muon.step(torch.randn(*shape), torch.randn(*shape), {}, muon.OPTIMIZER.arguments)
    assert muon.newton_schulz(*shape).matrix == counter.get_total_flops()
