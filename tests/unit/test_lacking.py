"""Kernels that a container has not built: words behind a trainer's name."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foretell import predict
from foretell.errors import BadInput
from foretell.oracle.memory_band import is_of_another_time
from foretell.plan.lacking import LACKING, MARK, without
from foretell.plan.trainer import CONSTANTS, names, trainer

MODEL = "llama:layers=4,hidden=2048,heads=16,kv_heads=16,ffn=5632,vocab=32000,seq=2048"


def _step(name: str) -> float:
    return predict(MODEL, "8xa100-80", "dp8 +bf16", 16, trainer=name).step_seconds


@pytest.mark.parametrize("word", LACKING)
def test_a_kernel_that_is_not_built_costs_time(word: str) -> None:
    assert _step(f"megatron-core{MARK}{word}") > 1.02 * _step("megatron-core")


def test_norms_that_are_written_out_anyway_cost_no_more() -> None:
    """The program of FSDP2's layers has their lines: passes over the hidden tensor would count them twice."""
    assert trainer("fsdp").kept.norms == "written"
    assert _step(f"fsdp{MARK}norms") == _step("fsdp") > _step("pytorch")


def test_more_that_is_not_built_costs_more() -> None:
    both = _step(f"megatron-core{MARK}norms+softmax")
    assert both > max(_step(f"megatron-core{MARK}{word}") for word in ("norms", "softmax"))
    assert _step(f"megatron-core{MARK}softmax") > _step(f"megatron-core{MARK}attention")


@pytest.mark.parametrize(("name", "word"), list(itertools.product(sorted(names()), LACKING)))
def test_only_what_a_word_names_changes(name: str, word: str) -> None:
    """Of every trainer; its name reads back as the same trainer, and says where each constant is from."""
    made = trainer(name)
    found = trainer(f"{name}{MARK}{word}")
    moved = {key for key in CONSTANTS if found.constant(key) != made.constant(key)}
    assert moved <= set(LACKING[word].keys)
    assert (found.based_on, found.name) == (made.name, f"{made.name}{MARK}{word}")
    assert trainer(found.name) == found
    assert all((found.source(key) == LACKING[word].source) == (key in moved) for key in LACKING[word].keys)
    assert without(found, (word,)).fingerprint == found.fingerprint  # twice without it is no more without it


@pytest.mark.parametrize("name", ["megatron-core", "x.toml"])
@pytest.mark.parametrize("words", ["norm", "norms+norms", "", "norms "])
def test_words_that_nobody_knows_are_refused(name: str, words: str) -> None:
    with pytest.raises(BadInput):
        trainer(f"{name}{MARK}{words}")


def test_a_container_is_software_of_the_same_year(tmp_path: Path) -> None:
    """What widens an interval of memory holds for a container too, and a trainer of one's own is of today."""
    assert is_of_another_time("axonn-2021") and is_of_another_time(f"axonn-2021{MARK}norms")
    assert not is_of_another_time(f"megatron-core{MARK}norms")
    own = tmp_path / "ours.toml"
    own.write_text('summary = "ours"\nbased_on = "megatron-core"\n[sources]\n')
    assert _step(str(own)) == _step("megatron-core")


def test_a_file_takes_no_words() -> None:
    with pytest.raises(BadInput):
        trainer(f"x.toml{MARK}norms")


def test_a_search_asks_for_the_same_container(foretell: Callable[..., Any]) -> None:
    words = ("plan", MODEL, "--on", "8xa100-80", "--batch", "16", "--fix", "dp8", "--only", "dp", "--json")
    plain, lacking = (
        json.loads(foretell(*words, "--trainer", name).out)["best"]["step_seconds"]
        for name in ("megatron-core", f"megatron-core{MARK}norms")
    )
    assert lacking > 1.02 * plain
