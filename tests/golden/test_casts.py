"""What operators move under autocast, and what ranks make of their own samples, by hand."""

from __future__ import annotations

import pytest

from foretell.model.operators.elementwise import Elementwise
from foretell.model.source import load
from foretell.plan.job import Job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.program.action import Compute
from foretell.program.lower import lower
from foretell.program.partition import kind_of
from foretell.program.program import Program

SAMPLES, TOKENS, HIDDEN = 8, 197, 768
STREAM = SAMPLES * TOKENS * HIDDEN
"""Elements of the tensor that the layers of ViT-B/16 hand on."""


def lowered(model: str, plan: str, runs: str = "pytorch", batch: int = SAMPLES) -> Program:
    return lower(Setting(load(model, batch), Job(batch=batch, optimizer="sgd"), parse(plan), trainer(runs)), 0)


def layer(plan: str, runs: str = "pytorch") -> tuple[list[Compute], list[Compute]]:
    """The computations of a layer of ViT-B/16, forward and backward."""
    program = lowered("vit-b-16:dtype=bf16", plan, runs)
    run = max((run for runs in program.partition.row.runs for run in runs), key=lambda run: run.times)
    forward, backward = program.rank_program.actions(kind_of(run))
    return [a for a in forward if isinstance(a, Compute)], [a for a in backward if isinstance(a, Compute)]


def moved(some: list[Compute], operator: str) -> list[tuple[float, float]]:
    """Bytes an element of the stream that operators read and write, at least."""
    return [(a.cost.read // STREAM, a.cost.written // STREAM) for a in some if a.operator == operator]


def test_norms_and_sums_are_in_full_and_each_product_casts_its_input() -> None:
    forward, backward = layer("dp1 +amp_bf16")
    assert moved(forward, "normalize") == [(4, 4), (4, 4)]
    # three projections and a feed-forward layer cast what norms made; sums read 4 and 2 bytes; GELU, four times as wide
    assert sorted(moved(forward, "elementwise")) == [(2, 4)] * 4 + [(6, 4)] * 2 + [(8, 8)]
    casts = [a for a in backward if a.operator == "elementwise" and a.cost.written == 2 * a.cost.read]
    assert len(casts) == 4 and all(a.part == "input_gradient" for a in casts)


@pytest.mark.parametrize(("plan", "runs"), [("dp1 +bf16", "pytorch"), ("dp1 +amp_bf16", "tensorflow")])
def test_nothing_is_cast_without_autocast_or_where_a_trainer_counts_its_own_passes(plan: str, runs: str) -> None:
    forward, _ = layer(plan, runs)
    assert moved(forward, "normalize") == [(2, 2), (2, 2)]
    assert sorted(moved(forward, "elementwise")) == [(4, 2)] * 2 + [(8, 8)]


def test_scores_that_are_written_out_are_cast_for_their_softmax() -> None:
    program = lowered("timm/vit_tiny_patch16_224:image=224,attention=math,dtype=fp16", "dp1 +amp_fp16")
    kinds = [kind_of(run) for runs in program.partition.row.runs for run in runs]
    bodies = [body for kind in kinds for body in program.rank_program.actions(kind)]
    computed = [action for body in bodies for action in body if isinstance(action, Compute)]
    softmax = next(a for a in computed if a.operator == "softmax" and a.part == "forward")
    scores = softmax.cost.written / 4
    assert softmax.cost.read == softmax.cost.written
    # to 32 bits before it, and back to 16 for the product after it
    same = [a for a in computed if a.operator == "elementwise" and a.part == "forward" and a.cost.work == scores]
    assert sum((a.cost.read, a.cost.written) == (2 * scores, 4 * scores) for a in same) >= 2


def test_zeros_are_made_for_a_rank_s_own_samples() -> None:
    """RetinaNet's loss begins with zeros as large as its logits."""
    graph = load("retinanet-resnext50", 8)
    fills = [n for b in graph.blocks for n in b.nodes if isinstance(n.operator, Elementwise) and not n.inputs]
    assert fills
    whole, shared = (lowered("retinanet-resnext50", plan, batch=8) for plan in ("dp1 +fp32", "dp8 +fp32"))
    sizes: list[list[float]] = []
    for program in (whole, shared):
        kinds = [kind_of(run) for runs in program.partition.row.runs for run in runs]
        made = (a for kind in kinds for a in program.rank_program.actions(kind)[0] if isinstance(a, Compute))
        sizes.append([a.cost.written for a in made if a.operator == "elementwise" and not a.cost.read])
    assert sizes[0] and sizes[0] == [8 * size for size in sizes[1]]
