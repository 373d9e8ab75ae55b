"""Looks at gradients: the lengths that they have, under every plan."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from foretell.errors import BadInput
from foretell.runtime.assignment import Assignment
from foretell.runtime.gradient_noise import APART
from foretell.runtime.launch import Ranks
from foretell.runtime.measure import measurement
from foretell.trust import trust

OWN = """
import torch
from torch import nn

def model(batch=4):
    return nn.Linear(3, 1, bias=False), torch.zeros(batch, 3)

def data(batch, seed):
    generator = torch.Generator().manual_seed(seed)
    while True:
        x = torch.randn(batch, 3, generator=generator) + 1
        yield x, torch.zeros(batch)

def mean(outputs, target):
    return outputs.mean()
"""


def test_lengths_are_those_of_the_samples(ranks: Ranks, tmp_path: Path) -> None:
    """The gradient of a mean output of a linear layer is the mean input, whatever the weights are."""
    file = tmp_path / "noisy.py"
    file.write_text(OWN)
    trust(*(f"{file}:{name}" for name in ("model", "data", "mean")))
    given = {"model": f"{file}:model", "task": f"{file}:data", "loss": f"{file}:mean", "batch": 8, "rate": 0.01}
    assignment = Assignment(**given, plan="dp2", steps=4, noise_every=2)
    reports = ranks.run(assignment)
    assert reports[0].looks == reports[1].looks and [one.step for one in reports[0].looks] == [5, 7]
    generator = torch.Generator().manual_seed(APART)
    for one in reports[0].looks:
        inputs = torch.randn(8, 3, generator=generator).double() + 1
        assert (one.piece, one.whole, one.samples) == (1, 8, 8 * one.step)
        assert one.of_piece == pytest.approx(inputs.square().sum(1).mean().item(), rel=1e-5)
        assert one.of_whole == pytest.approx(inputs.mean(0).square().sum().item(), rel=1e-5)
    noise = measurement(assignment, "dp2", 8, reports).noise
    assert noise is not None and noise.looks == tuple(reports[0].looks) and noise.sequence == 0


@pytest.mark.parametrize("plan", ["dp2:zero3", "tp2", "pp2:1f1b +m2"])
def test_looks_do_not_depend_on_the_plan(ranks: Ranks, plan: str) -> None:
    model = "llama:layers=2,hidden=32,heads=4,kv_heads=2,ffn=48,vocab=128,seq=16"
    given = {"model": model, "task": "text", "batch": 8, "steps": 2, "noise_every": 2, "rate": 0.01}
    (one,) = ranks.run(Assignment(**given, plan="dp1"))[0].looks
    (other,) = ranks.run(Assignment(**given, plan=plan))[0].looks
    assert other.of_piece == pytest.approx(one.of_piece, rel=1e-3)
    assert other.of_whole == pytest.approx(one.of_whole, rel=1e-3)


def test_looks_take_nothing_from_the_memory_of_a_step(ranks: Ranks) -> None:
    given = {"model": "lenet", "task": "digits", "plan": "dp2", "batch": 8, "steps": 2}
    alone, looked_at = (ranks.run(Assignment(**given, noise_every=every, validate_every=every))[0] for every in (0, 2))
    assert (looked_at.allocated, looked_at.losses) == (alone.allocated, alone.losses)


def test_what_cannot_be_looked_at_is_told(ranks: Ranks) -> None:
    with pytest.raises(BadInput, match="no equal pieces"):
        ranks.run(Assignment(model="lenet", plan="dp1", batch=1, noise_every=2))
    with pytest.raises(BadInput, match="have one each"):
        ranks.run(Assignment(model="lenet", plan="local2:tau2", batch=4, optimizer="sgd", noise_every=2))
