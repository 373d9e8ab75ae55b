"""CLIP: published sizes, agreement with PyTorch, training."""

import pytest

from agreement import assert_agrees, assert_same_names, predicted
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.model.zoo.clip import PRESETS
from language import assert_trains

# As transformers counts the models of the hub, and as the released code does (151,277,313 of ViT-B/32)
COUNTS = {
    "clip-b-32": 151_277_313,
    "clip-b-16": 149_620_737,
    "clip-l-14": 427_616_513,
    "clip-l-14-336": 427_944_193,
}

SMALL = "layers=2,hidden=64,heads=4,ffn=96,patch=8,image=32,text_layers=2,text_hidden=32,text_heads=2,text_ffn=48"
SMALL += ",vocab=96,seq=16,embedding=32"


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count


def test_every_size_is_published() -> None:
    assert {*COUNTS, "clip"} == set(PRESETS)


@pytest.mark.parametrize("spec", [f"clip:{SMALL}", f"clip:{SMALL},dtype=bf16", f"clip:{SMALL},attention=math"])
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=6, saved=0.01)
    assert_same_names(spec)


def test_every_pair_of_samples_is_compared() -> None:
    """The product of both towers' features grows with the square of the samples, all else with the samples."""
    one, two = predicted(f"clip:{SMALL}", 2).forward.matrix, predicted(f"clip:{SMALL}", 4).forward.matrix
    assert two - 2 * one == 2 * 32 * (4 * 4 - 2 * 2 * 2)


def test_trains() -> None:
    assert_trains(f"clip:{SMALL}", steps=24)


def test_patches_tile_the_image() -> None:
    with pytest.raises(BadInput, match="patch=31"):
        zoo.load("clip:patch=31")
