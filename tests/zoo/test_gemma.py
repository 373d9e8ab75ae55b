"""Gemma 2 and 3: published sizes, agreement with PyTorch, windows and soft caps."""

import pytest
import torch

from agreement import assert_agrees, assert_same_names, predicted
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.model.zoo.gemma import PRESETS
from language import assert_causal, assert_trains, gradients, logits

VISION = 416_866_032
"""SigLIP's tower in Gemma 3's larger sizes, with a norm and a product of 1,152 features behind it."""

# Hugging Face model cards (safetensors parameter counts)
PUBLISHED = {
    "gemma2-2b": 2_614_341_888,
    "gemma2-9b": 9_241_705_984,
    "gemma2-27b": 27_227_128_320,
    "gemma3-270m": 268_098_176,
    "gemma3-1b": 999_885_952,
    "gemma3-4b": 4_300_079_472 - VISION - 1152 * (2560 + 1),
    "gemma3-12b": 12_187_325_040 - VISION - 1152 * (3840 + 1),
    "gemma3-27b": 27_432_406_640 - VISION - 1152 * (5376 + 1),
}

SMALL = "hidden=64,heads=4,kv_heads=2,head_dim=16,ffn=96,vocab=96,seq=32,window=8"


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count


def test_every_size_is_published() -> None:
    assert {*PUBLISHED, "gemma"} == set(PRESETS)


@pytest.mark.parametrize(
    "spec",
    [
        f"gemma2-2b:layers=4,{SMALL}",
        f"gemma2-27b:layers=4,{SMALL},dtype=bf16",
        f"gemma3-1b:layers=6,{SMALL},global_every=3",
        f"gemma3-1b:layers=6,{SMALL},global_every=3,attention=flash,dtype=bf16",
    ],
)
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=0.0)
    assert_same_names(spec)


def test_layers_that_take_turns_are_one_block() -> None:
    blocks = [(block.name, block.times) for block in zoo.load(f"gemma2-2b:layers=6,{SMALL}").blocks]
    assert ("layers.0..5", 3) in blocks


@pytest.mark.parametrize("fields", ["query_scale=9", "global_every=0", "window=0"])
def test_kernels_compute_the_same(fields: str) -> None:
    spec = f"gemma3-1b:layers=4,{SMALL},global_every=2,dtype=fp64".replace("window=8,", "")
    spec = f"{spec},{fields}" if not fields.startswith("global") else spec.replace("global_every=2", fields)
    for ours, theirs in zip(gradients(spec), gradients(f"{spec},attention=math"), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_far_places_are_out_of_sight() -> None:
    """With windows of 8 in two layers a token sees 14 places back and no further."""
    spec = f"gemma3-1b:layers=2,{SMALL},global_every=0"
    text = torch.randint(0, 96, (1, 32))
    other = text.clone()
    other[:, 0] = (other[:, 0] + 1) % 96
    before, after = logits(spec, text), logits(spec, other)
    torch.testing.assert_close(before[:, 15:], after[:, 15:], rtol=0, atol=1e-6)
    assert not torch.equal(before[:, 14], after[:, 14])


def test_a_token_sees_only_earlier_ones() -> None:
    assert_causal(f"gemma2-2b:layers=4,{SMALL}")


def test_trains() -> None:
    assert_trains(f"gemma2-2b:layers=2,{SMALL},dtype=fp32")


def test_windows_cost_less_only_where_kernels_have_them() -> None:
    narrow, wide = (predicted(f"gemma3-1b:seq=2048,attention=flash,window={size}") for size in (512, 4096))
    assert narrow.saved_bytes > wide.saved_bytes  # a mask
    assert predicted("gemma3-1b:seq=2048").saved_bytes == predicted("gemma3-1b:seq=2048,window=4096").saved_bytes


def test_soft_caps_want_a_kernel_that_has_them() -> None:
    with pytest.raises(BadInput, match="no soft caps") as caught:
        zoo.load("gemma2-2b:attention=flash")
    assert "attention=local" in caught.value.fix
