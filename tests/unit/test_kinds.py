"""Runs of all studies by what they are: mixtures, long contexts, Blackwell."""

from __future__ import annotations

import pytest

from foretell.plan.job import Job
from foretell.plan.text import parse
from foretell.validation.kinds import kind_score, kinds_of
from foretell.validation.study import MeasuredRun


@pytest.mark.parametrize(
    ("model", "sequence", "cluster", "told"),
    [
        ("llama3-8b:seq=32768", 0, "8xh100", ["sequences from 32,768"]),
        ("llama3-8b", 131072, "8xb200", ["sequences from 32,768", "Blackwell"]),
        ("llama3-8b:seq=32767", 0, "8xh200", []),
        ("qwen3-30b-a3b", 4096, "8xgb300", ["mixtures", "Blackwell"]),
        ("deepseek-v3", 4096, "8xh800", ["mixtures"]),
        ("resnet50", 0, "8xv100-16", []),
    ],
)
def test_a_run_is_of_each_kind_that_it_is(model: str, sequence: int, cluster: str, told: list[str]) -> None:
    job = Job(batch=8, sequence=sequence)
    row = MeasuredRun(id="a", model=model, job=job, plan=parse("dp8"), cluster=cluster, trainer="pytorch")
    assert list(kinds_of(row)) == told


def test_the_score_of_a_kind_by_hand() -> None:
    found = kind_score("mixtures", [("a", 0.1), ("a", -0.3), ("b", 0.2), ("a", -0.2)])
    assert (found.sources, found.runs) == (2, 4)
    assert found.median == pytest.approx(0.2)
    assert found.by_source == pytest.approx(0.2)
    assert found.bias == pytest.approx(-0.05)
    assert found.p90 == pytest.approx(0.3)
