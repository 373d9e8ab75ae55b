"""GLM-4.5 and MiniMax-M2: published sizes, how they are made up, agreement with PyTorch."""

import pytest

from agreement import assert_agrees, assert_same_names, predicted
from foretell.model.zoo.glm import PRESETS
from language import assert_causal, assert_trains

SMALL = "hidden=64,heads=4,kv_heads=2,head_dim=16,rotary_dim=8,ffn=48,vocab=96,seq=32,experts=16,top_k=4"

# Parameters in the weights on Hugging Face
IN_FILES = {"glm-4.5": 358_337_791_296, "glm-4.5-air": 110_468_824_832, "minimax-m2": 228_703_644_928}

# billions that a token meets as the reports say, and to how much they are rounded; the token table is not among them
ACTIVE = {"glm-4.5": (32, 2), "glm-4.5-air": (12, 2), "minimax-m2": (10, 1)}


def _corrections(name: str, layers: int = 0) -> int:
    fields = PRESETS[name]
    return (fields.layers + layers - fields.first_dense) * fields.experts


@pytest.mark.parametrize("name", ["glm-4.5", "glm-4.5-air"])
def test_files_hold_a_layer_for_the_second_token_too(name: str) -> None:
    """A layer more, a product of two hidden vectors to one, three norms, a token table and a head of its own."""
    fields = PRESETS[name]
    hidden, ours = fields.hidden, predicted(name).parameters
    layer = predicted(f"{name}:layers={fields.layers + 1}").parameters - ours
    more = layer + 2 * hidden**2 + 3 * hidden + 2 * fields.vocab * hidden
    assert ours + more + _corrections(name, 1) == IN_FILES[name]


def test_files_hold_a_scale_for_each_block_of_fp8_weights() -> None:
    """All products but the head and the routers are in fp8, with a scale for 128 x 128 of their weights."""
    fields = PRESETS["minimax-m2"]
    attention = 2 * fields.hidden * fields.size * (fields.heads + fields.shared_heads)
    eighths = fields.layers * (attention + fields.experts * 3 * fields.hidden * fields.inner)
    ours = predicted("minimax-m2").parameters
    assert ours + _corrections("minimax-m2") + eighths // 128**2 == IN_FILES["minimax-m2"]


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters(name: str) -> None:
    billions, rounding = ACTIVE[name]
    fields = PRESETS[name]
    met = fields.active_parameters - fields.vocab * fields.hidden
    assert abs(met / 1e9 - billions) <= rounding / 2


def test_every_size_is_published() -> None:
    assert {*IN_FILES, "glm"} == set(PRESETS) == {*ACTIVE, "glm"}


@pytest.mark.parametrize(
    "spec",
    [
        f"glm-4.5:layers=5,{SMALL},shared_ffn=40,dense_ffn=96",
        f"glm-4.5-air:layers=3,{SMALL},shared_ffn=40,dense_ffn=96,dtype=bf16",
        f"minimax-m2:layers=3,{SMALL},dtype=bf16",
    ],
)
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=0.0)
    assert_same_names(spec)


def test_a_token_sees_only_earlier_ones() -> None:
    assert_causal(f"glm:layers=3,{SMALL},shared_ffn=40,dense_ffn=96")


def test_trains() -> None:
    assert_trains(f"minimax-m2:layers=3,{SMALL}")
