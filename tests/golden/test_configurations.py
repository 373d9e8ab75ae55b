"""Examples and recipes that trainers ship: what was read of each, and what their own code makes of them.

`tests/data/configurations.csv` is written by `benchmarks/configurations.py`, `configurations_resolved.csv` by
`benchmarks/resolve_configurations.py`; both need checkouts of the projects, these tests do not.
"""

from __future__ import annotations

import csv
import functools
import importlib.util
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from foretell.dialects import Recipe, names, taken_apart
from foretell.model import zoo
from foretell.model.graph import Graph
from foretell.model.source import load
from foretell.plan.fitness import broken
from foretell.plan.job import make_job
from foretell.plan.plan import Plan
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer


def _benchmark() -> Any:
    """The script that writes the manifest; on the path its folder would hide packages of the tests."""
    file = Path(__file__).parents[2] / "benchmarks" / "configurations.py"
    spec = importlib.util.spec_from_file_location("benchmark_of_configurations", file)
    assert spec is not None and spec.loader is not None
    found = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


_SCRIPT = _benchmark()
MANIFEST, RULES, held_out, kept = _SCRIPT.MANIFEST, _SCRIPT.RULES, _SCRIPT.held_out, _SCRIPT.kept
Example: TypeAlias = Any  # of the script

STATUSES = ("read", "plan", "refused")

CHEAP = ("NVIDIA/NeMo/nemo/collections/llm/recipes/deepseek_v3.py",)
"""Recomputes modules that cost little time alone: told in a note, and not in the plan."""


@functools.cache
def examples() -> tuple[Example, ...]:
    return tuple(kept())


@functools.cache
def graph(model: str, samples: int, sequence: int) -> Graph:
    return load(model, samples, sequence, "bf16")


def read() -> list[Example]:
    return [one for one in examples() if one.status != "refused"]


@functools.cache
def plan_of(text: str) -> Plan:
    return parse(text)


def recipe_of(one: Example) -> Recipe:
    return taken_apart(plan_of(one.plan), batch=one.batch)


def test_every_example_has_its_place() -> None:
    places = Counter((one.repository, one.path, one.function) for one in examples())
    assert max(places.values()) == 1
    rules = {rule.repository: rule for rule in RULES}
    assert {one.repository for one in examples()} == set(rules)
    for one in examples():
        rule = rules[one.repository]
        assert one.commit == rule.commit
        assert re.fullmatch("[0-9a-f]{40}", one.commit)
        assert one.path.startswith(tuple(f"{folder}/" for folder in rule.folders))
        assert re.fullmatch(rule.file, Path(one.path).name)
        assert re.fullmatch(rule.function, one.function)
        assert one.held_out == held_out(one.repository, one.path, one.function)


def test_four_of_five_are_read() -> None:
    assert len(examples()) >= 80
    assert {one.status for one in examples()} <= set(STATUSES)
    assert len(read()) >= 0.8 * len(examples())
    aside = [one for one in examples() if one.held_out]
    assert 0.25 < len(aside) / len(examples()) < 0.4
    assert sum(one.status != "refused" for one in aside) >= 0.8 * len(aside)


def test_what_is_not_read_says_why() -> None:
    for one in examples():
        assert bool(one.reason) == (one.status == "refused")
        assert bool(one.plan) == (one.status != "refused")
    images = [one for one in examples() if re.search("flux|wan/|multimodal|_vl|qwen3_5|vlm", one.path)]
    assert len(images) >= 30
    assert {one.status for one in images} == {"refused"}, "a model of images is never read as one of text"


def test_plans_are_those_of_the_trainer() -> None:
    for one in read():
        assert one.dialect in names()
        assert trainer(one.trainer).name == one.trainer
        plan = plan_of(one.plan)
        assert str(plan) == one.plan
        assert plan.ranks == one.ranks, one.name
        figures = recipe_of(one)
        assert (figures.batch, figures.micro_batch) == (one.batch, one.micro_batch), one.name


def test_models_are_members_of_the_zoo() -> None:
    models = {one.model for one in read() if one.model}
    assert len(models) >= 25
    for model in models:
        zoo.parse(model)


BROKEN = {
    "examples/bert/train_bert_340m_distributed.sh": "24 layers are not a multiple of 16 stages",
    "nemo/collections/llm/recipes/qwen3_235b_a22b.py": "ep8 does not fold over 1 data ranks",
}
"""The first cannot run as it is shipped: Megatron-LM asserts the same. The second folds experts over context ranks too,
which no plan here can express."""


def test_plans_are_legal_for_the_trainer() -> None:
    legal = 0
    questions = {(one.path, one.model, one.plan, one.batch, one.sequence, one.trainer) for one in read() if one.model}
    for path, model, text, batch, sequence, name in questions:
        plan = plan_of(text)
        job = make_job(batch, trainer=name, sequence=sequence)
        setting = Setting(graph(model, batch // plan.microbatches, sequence), job, plan, trainer(name))
        found = next(broken(setting, None), None)
        legal += found is None
        assert (found is None) == (path not in BROKEN), (path, text, found)
        assert found is None or BROKEN[path] in found.why
    assert legal >= 100


def resolved() -> list[tuple[Example, dict[str, str]]]:
    with MANIFEST.with_name("configurations_resolved.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    places = {(one.repository, one.path, one.function): one for one in examples()}
    return [(places[line["repository"], line["path"], line["function"]], line) for line in lines]


def test_enough_were_resolved_by_their_own_code() -> None:
    count = Counter(one.repository for one, _ in resolved())
    assert len(count) == 4
    assert min(count.values()) >= 6
    assert sum(count.values()) >= 150


@pytest.mark.parametrize("repository", sorted({one.repository for one, _ in resolved()}))
def test_what_is_read_is_what_their_own_code_makes(repository: str) -> None:
    for one, own in resolved():
        if one.repository != repository:
            continue
        ours = recipe_of(one)
        said = {
            "tensor": ours.tensor,
            "pipeline": ours.pipeline,
            "chunks": ours.chunks or 1,
            "context": ours.context,
            "experts": ours.experts,
            "micro_batch": one.micro_batch,
            "sequence": one.sequence,
        }
        wanted = {name: int(own[name]) for name in said}
        if ours.pipeline == 1:
            wanted["chunks"] = 1
        assert said == wanted, one.name
        assert own["batch"] == "0" or one.batch == int(own["batch"]), one.name
        assert ours.tensor == 1 or ours.sequence_parallel == (own["sequence_parallel"] == "True"), one.name
        assert ours.experts == 1 or (ours.expert_tensor or ours.tensor) == (int(own["expert_tensor"]) or ours.tensor)
        assert ours.data == 1 or (ours.storage != "replicated") == (own["sharded"] == "True"), one.name
        assert (ours.overlap != "never") == (own["overlap"] == "True"), one.name
        low = own["low_precision"] not in ("", "None", "False", "[]")
        assert low == (ours.precision in ("fp8", "mxfp8", "nvfp4")), one.name
        cheap = f"{one.repository}/{one.path}" in CHEAP
        assert (ours.recompute != "none") == (own["recompute"] not in ("", "None") and not cheap), one.name
