"""LLaVA: published sizes, agreement with PyTorch, training, what is frozen."""

import pytest

from agreement import assert_agrees, assert_same_names, predicted
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.model.source import load
from foretell.model.zoo.llava import PRESETS
from foretell.plan.facts import facts
from language import assert_trains

# As transformers counts the models of the hub: tower, projector and language model
COUNTS = {"llava-1.5-7b": 7_063_427_072, "llava-1.5-13b": 13_351_494_656}
TOWER = 303_507_456

SMALL = "layers=2,hidden=64,heads=4,ffn=96,vocab=96,seq=40,vision_layers=3,vision_hidden=32,vision_heads=2"
SMALL += ",vision_ffn=48,patch=8,image=32"


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count
    assert predicted(name).trainable == count - TOWER


def test_every_size_is_published() -> None:
    assert {*COUNTS, "llava"} == set(PRESETS)


@pytest.mark.parametrize("spec", [f"llava:{SMALL}", f"llava:{SMALL},dtype=bf16", f"llava:{SMALL},frozen=false"])
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=0.01)
    assert_same_names(spec)


def test_trains() -> None:
    last = 16  # of a layer: two norms, four products and two of the feed-forward, weights and biases
    assert_trains(f"llava:{SMALL},frozen=false", steps=16, frozen=last + 2)


def test_an_image_leaves_room_for_text() -> None:
    with pytest.raises(BadInput, match="seq=576"):
        zoo.load("llava:seq=576")


def test_tokens_are_places_of_the_text() -> None:
    """The tower attends over places of an image, of which there may be fewer."""
    places = (32 // 8) ** 2
    assert facts(load(f"llava:{SMALL}", 2)).sequence == 40 - places
