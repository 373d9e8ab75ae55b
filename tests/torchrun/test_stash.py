"""A pipeline that never runs empty is exactly as stale as it should be: one process with old weights does the same."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from equalities import DEEP, TOLERANCE, Trained, assert_same_collectives, double, trained_as
from torch import nn

from foretell import modules
from foretell.plan.schedule import find
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.pipeline import Pipeline
from foretell.program.partition import pipeline_partition
from foretell.runtime import stages
from foretell.runtime.assignment import Assignment
from foretell.runtime.launch import Ranks
from foretell.runtime.models import model
from foretell.runtime.subject import cut
from foretell.runtime.tasks import Batch, synthetic

RATE, STEPS = 0.05, 4


def _asked(plan: str) -> Assignment:
    return Assignment(model=double(DEEP), plan=plan, batch=8, steps=1, weights=True, rate=RATE, optimizer="sgd")


class _Stage:
    """One stage: its newest weights, and all older ones."""

    def __init__(self, module: nn.Module, staleness: int) -> None:
        self.module, self.staleness = module, staleness
        self.versions = [{name: one.detach().clone() for name, one in module.named_parameters()}]

    def see(self, microbatch: int) -> None:
        """Put the weights in place that a micro-batch meets: as many updates old as ranks follow."""
        for name, weight in self.module.named_parameters():
            weight.data.copy_(self.versions[max(0, microbatch - self.staleness)][name])
            weight.grad = None

    def update(self) -> None:
        """The newest weights, changed by the gradients of old ones."""
        newest = self.versions[-1]
        gradients = {name: one.grad for name, one in self.module.named_parameters()}
        self.versions.append({name: newest[name] - RATE * one for name, one in gradients.items() if one is not None})


def _delayed(plan: str, late: int = 0) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The losses of the steps, and the weights of each stage after the updates that it has made when training ends."""
    asked = _asked(plan)
    setting = asked.setting
    part = setting.plan.axis(Pipeline)
    assert part is not None
    torch.manual_seed(0)  # the tokens of an example are drawn, and batches have as many kinds of them
    found = model(asked.model, setting, "fp32", setting.job.batch)
    batches = synthetic.Synthetic().batches(found.like, 0)
    torch.manual_seed(0)
    module = modules.build(asked.model)
    row = pipeline_partition(setting.graph, part, setting.trainer.pipeline.split).row
    names = [frozenset(piece.layer for piece in own if piece.layer) for own in row.parts]
    sample = cut(found.like, 0, setting.plan.microbatches)
    parts = stages.cut(module, setting.graph, names, Batch(sample.inputs, sample.target))
    schedule = find(part.schedule)
    line = [_Stage(own, schedule.staleness(at, part.ranks) + late) for at, own in enumerate(parts)]
    count = setting.plan.microbatches
    data = setting.plan.axis(Data)
    shares = data.ranks if data is not None else 1
    losses = [_step(line, _microbatches(next(batches), shares, count), at * count, found.loss) for at in range(STEPS)]
    weights: dict[str, torch.Tensor] = {}
    for stage in line:
        weights |= stage.versions[STEPS * count - stage.staleness]
    return losses, weights


def _microbatches(batch: Batch, shares: int, count: int) -> list[Batch]:
    """What all ranks that share a batch take together: of each share a micro-batch."""
    each = [[cut(cut(batch, share, shares), at, count) for share in range(shares)] for at in range(count)]
    return [Batch((torch.cat([one.inputs[0] for one in row]),), torch.cat([one.target for one in row])) for row in each]


def _step(line: Sequence[_Stage], microbatches: Sequence[Batch], first: int, loss: object) -> float:
    losses: list[float] = []
    for at, own in enumerate(microbatches):
        values: object = own.inputs
        for stage in line:
            stage.see(first + at)
            values = stage.module(*(values if isinstance(values, tuple) else (values,)))
        found = loss(values, own.target)  # type: ignore[operator]
        found.backward()
        losses.append(found.item())
        for stage in line:
            stage.update()
    return sum(losses) / len(losses)


def _assert_same(one: Trained, losses: list[float], weights: dict[str, torch.Tensor]) -> None:
    assert one.losses == pytest.approx(losses, abs=TOLERANCE, rel=0)
    assert one.weights.keys() == weights.keys()
    for name, weight in one.weights.items():
        torch.testing.assert_close(weight, weights[name], atol=TOLERANCE, rtol=0, msg=name)


PLANS = ("pp2:stash +m2", "pp4:stash +m4", "pp2:stash dp2 +m4", "pp2:stash tp2:sp +m2")


@pytest.mark.parametrize("plan", PLANS)
def test_gradients_are_those_of_weights_as_old_as_ranks_follow(ranks: Ranks, plan: str) -> None:
    found = trained_as(ranks, _asked(plan))
    _assert_same(found, *_delayed(plan))
    with pytest.raises(AssertionError):
        _assert_same(found, *_delayed(plan, late=1))
    assert_same_collectives(DEEP, plan, found.reports)
