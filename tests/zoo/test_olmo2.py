"""OLMo 2: published sizes, agreement with PyTorch, norms after what they follow."""

import pytest

from agreement import assert_agrees, assert_same_names, predicted
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.model.zoo.olmo2 import PRESETS
from language import assert_causal, assert_folds, assert_trains

# Hugging Face model cards (safetensors parameter counts)
PUBLISHED = {
    "olmo2-1b": 1_484_916_736,
    "olmo2-7b": 7_298_617_344,
    "olmo2-13b": 13_716_198_400,
    "olmo2-32b": 32_234_279_936,
}

SMALL = "layers=3,hidden=64,heads=4,ffn=96,vocab=96,seq=32"


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count


def test_every_size_is_published() -> None:
    assert {*PUBLISHED, "olmo2"} == set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_layers_are_one_block(name: str) -> None:
    assert_folds(name, [("layers", 0, PRESETS[name].layers)])


@pytest.mark.parametrize("spec", [f"olmo2:{SMALL}", f"olmo2:{SMALL},kv_heads=2,dtype=bf16"])
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=0.0)
    assert_same_names(spec)


def test_a_token_sees_only_earlier_ones() -> None:
    assert_causal(f"olmo2:{SMALL}")


def test_trains() -> None:
    assert_trains(f"olmo2:{SMALL}")


def test_two_norms_of_the_same_are_refused() -> None:
    with pytest.raises(BadInput, match="two norms"):
        zoo.load("olmo2:qk_norm=true")
