"""Nemotron-H: its published size, agreement with PyTorch, patterns of layers."""

import pytest

from agreement import assert_agrees, assert_same_names, predicted
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.model.zoo.nemotron_h import PRESETS, NemotronH
from language import assert_causal, assert_trains

PUBLISHED = {"nemotron-h-8b": 8.1e9}
"""As the report and the model card round it."""

SMALL = "layers=8,pattern=M-*-,hidden=64,heads=4,kv_heads=2,head_dim=16,ffn=96,vocab=96,seq=48,"
SMALL += "scan_heads=8,scan_head_dim=16,state=8,groups=2,chunk=16"


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters(name: str, count: float) -> None:
    assert abs(predicted(name).parameters - count) <= 0.05e9


def test_every_size_is_published() -> None:
    assert {*PUBLISHED, "nemotron_h"} == set(PRESETS)


def test_the_layers_of_the_report() -> None:
    """24 scans, 24 feed-forwards, 4 attentions (the report's table 1)."""
    pattern = NemotronH().pattern
    assert [pattern.count(letter) for letter in "M-*"] == [24, 24, 4]


@pytest.mark.parametrize("spec", [f"nemotron_h:{SMALL}", f"nemotron_h:{SMALL},dtype=bf16"])
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=0.0)
    assert_same_names(spec)


def test_a_token_sees_only_earlier_ones() -> None:
    assert_causal(f"nemotron_h:{SMALL}")


def test_trains() -> None:
    assert_trains(f"nemotron_h:{SMALL}")


def test_unknown_letters_are_refused() -> None:
    with pytest.raises(BadInput, match="M for a scan"):
        zoo.load("nemotron_h:pattern=M-E")
