"""ViT: published sizes, and agreement with PyTorch."""

import pytest

from agreement import assert_agrees, predicted
from foretell.errors import BadInput
from foretell.model import zoo

SAVED = 0.01  # in bf16 the CPU keeps the statistics of norms in bf16, the GPU in fp32

# torchvision documentation, "VisionTransformer" (num_params); vit-h-14 at 224 pixels instead of 518
PUBLISHED = {
    "vit-b-16": 86_567_656,
    "vit-b-32": 88_224_232,
    "vit-l-16": 304_326_632,
    "vit-l-32": 306_535_400,
    "vit-h-14": 632_045_800,
    "vit-h-14:image=518": 633_470_440,
}


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count


@pytest.mark.parametrize(
    "spec",
    [
        "vit-b-16",
        "vit-h-14:layers=2",
        "vit:image=64,layers=3,hidden=96,heads=6,ffn=200,dtype=bf16",
        "vit:image=64,layers=2,attention=math,classes=10",
    ],
)
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=SAVED if "bf16" in spec else 0.0)


def test_layers_fold() -> None:
    assert 12 in [block.times for block in zoo.load("vit-b-16").blocks]


@pytest.mark.parametrize("spec", ["vit:heads=5", "vit:image=100"])
def test_refuses_what_does_not_divide(spec: str) -> None:
    with pytest.raises(BadInput) as refusal:
        zoo.load(spec)
    assert refusal.value.fix
