"""Hugging Face models that the zoo does not know, over data, tensor and pipeline axes without a rule by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.model.graph import Graph
from foretell.model.operators.unknown import Unknown
from foretell.model.source import load
from foretell.plan.job import Job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.program.expand import expand
from foretell.program.lower import lower

FACTORIES = Path(__file__).parents[1] / "data" / "hf_factories.py"


@pytest.mark.parametrize("name", ["gptj", "gemma2", "falcon", "cohere", "olmoe", "bart"])
def test_an_unseen_model_is_planned_or_the_operator_without_a_rule_is_named(name: str) -> None:
    plan = parse("dp2 tp2 pp2:1f1b +m2")
    graph = load(f"{FACTORIES}:{name}", batch=4)
    program = expand(lower(Setting(graph, Job(batch=4 * plan.microbatches), plan, trainer("pytorch"))))
    axes = {axis for kind in program.kinds for key in program.traffic(kind) for axis in key.axes}
    assert axes == {"dp", "tp", "pp"}
    assert all(any(note.startswith(f"{path} ") for note in program.notes) for path in _ruleless(graph))


def _ruleless(graph: Graph) -> set[str]:
    """Where operators without a rule read samples. (Those that only count positions run whole anyway.)"""
    return {
        node.path
        for block in graph.blocks
        for node in block.nodes
        for operand in node.inputs
        if isinstance(node.operator, Unknown)
        and any(dim.name == "sample" for dim in graph.tensor(block, operand.tensor).dims)
    }
