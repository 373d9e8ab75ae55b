"""The multilayer perceptron: its size, agreement with PyTorch, repetition."""

import pytest

from agreement import assert_agrees, predicted
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.model.zoo.mlp import ACTIVATIONS


def test_parameters() -> None:
    # the network of PyTorch's quickstart tutorial, 784-512-512-10
    assert predicted("mlp").parameters == 785 * 512 + 513 * 512 + 513 * 10 == 669_706
    assert predicted("mlp:layers=4,hidden=64,inputs=8,classes=3").parameters == 9 * 64 + 3 * 65 * 64 + 65 * 3


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_agrees_with_pytorch(activation: str) -> None:
    assert_agrees(f"mlp:layers=3,hidden=48,inputs=20,activation={activation}", batch=5, saved=0.0)


def test_agrees_in_bf16() -> None:
    assert_agrees("mlp:layers=6,dtype=bf16", batch=16, saved=0.0)


def test_layers_repeat() -> None:
    blocks = [block for block in zoo.load("mlp:layers=10").blocks if block.times > 1]
    assert [(block.name, block.times) for block in blocks] == [("layers.1..9", 9)]


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(BadInput, match="no activation is called 'relo'"):
        zoo.load("mlp:activation=relo")
