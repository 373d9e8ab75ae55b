"""Optimizers whose copies lie in host memory, and ranks that share a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from foretell.hardware import this_machine
from foretell.plan.refusal import PlanRefused
from foretell.runtime.appliers._master import Mastered, mastered, on_host
from foretell.runtime.assignment import Assignment
from foretell.runtime.worker import checked

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
"""Of what torch's own parts use, when they are loaded for the first time."""

LLAMA = "llama:layers=2,hidden=32,heads=4,kv_heads=2,ffn=48,vocab=40,seq=8"
KINDS = ((torch.optim.SGD, {"momentum": 0.9}), (torch.optim.Adam, {}), (torch.optim.AdamW, {}))


def _trained(make: type[torch.optim.Optimizer], weights: nn.Parameter, **said: float) -> torch.Tensor:
    optimizer = make([weights], lr=0.1, **said)  # type: ignore[call-arg]
    for step in range(3):
        weights.grad = (step + 1.0) * torch.ones_like(weights)
        optimizer.step()
    return weights.detach()


@pytest.mark.parametrize(("kind", "said"), KINDS)
def test_one_kernel_on_the_host_updates_as_the_plain_optimizer_does(
    kind: type[torch.optim.Optimizer], said: dict[str, float]
) -> None:
    start = torch.linspace(-1, 1, 7, dtype=torch.float64)
    plain = _trained(kind, nn.Parameter(start.clone()), **said)
    hosted = _trained(on_host(kind), nn.Parameter(start.clone()), **said)
    torch.testing.assert_close(hosted, plain, atol=1e-14, rtol=0)
    assert not torch.equal(hosted, start)


def test_master_weights_move_to_the_host_with_their_scale_and_type() -> None:
    weight = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    found = on_host(mastered(torch.optim.AdamW, None))([weight], lr=1e-4)
    assert isinstance(found, Mastered)
    assert found.masters[0].dtype == torch.float32
    assert found.inner.defaults["fused"]


@pytest.mark.parametrize("plan", ["pp2:1f1b +m2", "cp2:ring"])
def test_ranks_that_share_a_gpu_send_each_other_nothing(monkeypatch: pytest.MonkeyPatch, plan: str) -> None:
    asked = Assignment(model=LLAMA, plan=plan, batch=8, device="cuda")
    monkeypatch.setattr(this_machine, "gpus", lambda: 1)
    with pytest.raises(PlanRefused, match="2 ranks share 1 GPUs"):
        checked(asked, here=2)
    monkeypatch.setattr(this_machine, "gpus", lambda: 2)
    assert checked(asked, here=2)
