"""What the tests of appliers share: models, runs in double precision, and the two laws."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import torch

from foretell.program.expand import expand
from foretell.program.lower import lower
from foretell.runtime.assignment import Assignment, Collective, Report
from foretell.runtime.expected import expected, whenever
from foretell.runtime.launch import Ranks

TOLERANCE = 1e-10
LLAMA = "llama:layers=2,hidden=32,heads=4,kv_heads=2,ffn=48,vocab=40,seq=8"
DEEP = "llama:layers=4,hidden=16,heads=4,kv_heads=2,ffn=24,vocab=40,seq=8"
TIED = "gpt:layers=4,hidden=16,heads=4,ffn=24,vocab=40,seq=8,tied=true,dropout=0"
BERT = "bert-base-mlm:layers=2,hidden=16,heads=4,ffn=24,vocab=40,seq=8,positions=8"
VIT = "vit-b-16:layers=2,hidden=16,heads=4,ffn=24,image=32,classes=10"
LENET = "lenet:image=29"
CNN = f"{Path(__file__).parent / 'small_cnn.py'}:single"
NORMED = CNN.replace("single", "normed_single")
BOX = CNN.replace("single", "box_single")
MIXTURE = "mixture:layers=2,hidden=32,heads=4,kv_heads=2,ffn=48,vocab=40,seq=8,experts=4,top_k=2"
LATENT = "head_dim=8,value_dim=8,rotary_dim=4,kv_rank=8,query_rank=0"
DEEPSEEK = f"deepseek:layers=2,hidden=16,heads=2,{LATENT},ffn=24,vocab=40,seq=8,first_dense=2"


def assignment(model: str, plan: str) -> Assignment:
    return Assignment(model=model, plan=plan, batch=8, steps=1, weights=True, rate=0.01)


def double(model: str) -> str:
    return model.replace("single", "double") if model in (CNN, NORMED, BOX) else f"{model},dtype=fp64"


class Trained(msgspec.Struct, frozen=True):
    """What came of a run: the mean losses of its steps, its whole weights, and each rank's report."""

    losses: list[float]
    weights: dict[str, torch.Tensor]
    reports: tuple[Report, ...]


def trained(ranks: Ranks, model: str, plan: str) -> Trained:
    """In double precision."""
    return trained_as(ranks, assignment(double(model), plan))


def trained_as(ranks: Ranks, asked: Assignment) -> Trained:
    reports = ranks.run(asked)
    weights: dict[str, torch.Tensor] = {}
    for report in reports:
        weights |= torch.load(ranks.folder / f"weights-{report.rank}.pt")
    seen = [report.losses for report in reports if report.losses]
    return Trained([sum(losses) / len(losses) for losses in zip(*seen, strict=True)], weights, reports)


@functools.cache
def alone(ranks: Ranks, model: str, plan: str = "dp1") -> Trained:
    """One process; with as many micro-batches as others have, batch norm sees what it sees there."""
    return trained(ranks, model, plan)


def assert_same_values(one: Trained, other: Trained) -> None:
    assert len(one.losses) == len(other.losses) == 4
    assert one.losses == pytest.approx(other.losses, abs=TOLERANCE, rel=0)
    assert one.losses[0] != one.losses[-1]  # something was learnt
    assert one.weights.keys() == other.weights.keys()
    for name, weight in one.weights.items():
        torch.testing.assert_close(weight, other.weights[name], atol=TOLERANCE, rtol=0, msg=name)


def half(found: Sequence[Collective]) -> list[Collective]:
    return [msgspec.structs.replace(one, payload=one.payload // 2) for one in whenever(found)]


def assert_same_collectives(model: str, plan: str, reports: tuple[Report, ...]) -> None:
    program = expand(lower(assignment(model, plan).setting))
    for report in reports:
        assert half(report.collectives) == expected(program, report.place.get("pp", 0)), f"rank {report.rank}"
