"""Swin: published sizes, its windows, and agreement with PyTorch."""

import pytest
import torch

from agreement import assert_agrees, predicted
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.modules.swin import image_of, relative_index, shift_mask, windows_of

# torchvision documentation, "SwinTransformer" (num_params); swin-l: the authors' repository (197 M) and timm
PUBLISHED = {"swin-t": 28_288_354, "swin-s": 49_606_258, "swin-b": 87_768_224, "swin-l": 196_532_476}


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count


@pytest.mark.parametrize(
    "spec",
    ["swin-t", "swin-b:image=64,window=2,classes=10", "swin-t:image=192,window=6,channels=1,dtype=bf16"],
)
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=0.01 if "bf16" in spec else 0.0)


def test_blocks_fold_in_pairs() -> None:
    """Every second block is shifted, so eighteen blocks are nine pairs."""
    assert 9 in [block.times for block in zoo.load("swin-s").blocks]


def test_windows_and_back() -> None:
    image = torch.arange(2 * 8 * 8 * 3).reshape(2, 8, 8, 3)
    windows = windows_of(image, 4)
    assert torch.equal(windows[1, 2], image[1, 4:, :4].flatten(0, 1))
    assert torch.equal(image_of(windows, 4, 8), image)


def test_relative_index_tells_relative_places_apart() -> None:
    index = relative_index(3)
    assert index.unique().numel() == 25
    assert index[0, 4] == index[4, 8]  # one down, one right
    assert index.diagonal().unique().tolist() == [12]


def test_shifted_windows_do_not_mix_opposite_borders() -> None:
    mask = shift_mask(8, 4, 2)
    assert mask.shape == (4, 1, 16, 16)
    assert mask[0].count_nonzero() == 0
    assert mask[1, 0, 0, 1] == 0
    assert mask[1, 0, 0, 2] == -100


@pytest.mark.parametrize("spec", ["swin:image=200", "swin:hidden=100", "swin:window=8"])
def test_refuses_what_does_not_fit(spec: str) -> None:
    with pytest.raises(BadInput) as refusal:
        zoo.load(spec)
    assert refusal.value.fix
