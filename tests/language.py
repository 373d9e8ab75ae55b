"""What every decoder language model must do: fold, see no future, train."""

from __future__ import annotations

import torch

from foretell import modules
from foretell.model import zoo


def assert_folds(name: str, runs: list[tuple[str, int, int]]) -> None:
    """The layers are these runs of (path, first, times) and nothing else repeats."""
    blocks = [block for block in zoo.load(name).blocks if block.nodes and block.times > 1]
    assert [(block.name, block.times) for block in blocks] == [
        (f"{path}.{first}..{first + times - 1}", times) for path, first, times in runs
    ]


def _module(spec: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return modules.build(spec)


def logits(spec: str, text: torch.Tensor) -> torch.Tensor:
    """What the module makes of these tokens, its weights always the same."""
    with torch.no_grad():
        return _module(spec)(text)


def gradients(spec: str, batch: int = 2) -> list[torch.Tensor]:
    """The gradients of one step, the loss first."""
    module = _module(spec)
    example = modules.example(spec, batch)
    loss = example.loss(module(*example.inputs), example.target)
    loss.backward()
    return [loss, *(weight.grad for weight in module.parameters() if weight.grad is not None)]


def assert_causal(spec: str) -> None:
    """Another last token changes the last logits and no earlier ones."""
    text = modules.example(spec).inputs[0]
    other = text.clone()
    other[:, -1] = (other[:, -1] + 1) % 2
    before, after = logits(spec, text), logits(spec, other)
    assert not torch.equal(before[:, -1], after[:, -1])
    torch.testing.assert_close(before[:, :-1], after[:, :-1], rtol=0, atol=1e-6)


def assert_trains(spec: str, steps: int = 8, frozen: int = 0) -> None:
    """A few steps on one batch learn much of it, and every weight but so many frozen ones has a gradient."""
    module = _module(spec)
    trained = [weight for weight in module.parameters() if weight.requires_grad]
    assert len(trained) == len(list(module.parameters())) - frozen
    example = modules.example(spec, 2)
    optimizer = torch.optim.AdamW(module.parameters(), lr=5e-3)
    losses: list[float] = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = example.loss(module(*example.inputs), example.target)
        loss.backward()
        assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in trained)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
