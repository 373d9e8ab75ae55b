"""The U-Net of latent diffusion: published sizes, agreement with PyTorch, training."""

import pytest

from agreement import assert_agrees, assert_same_names, predicted
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.model.zoo.latent_unet import PRESETS
from language import assert_trains

# Those of diffusers' class with the published configurations (studies/traced/unets_of_diffusers.py)
COUNTS = {"sd-1.5": 859_520_964, "sd-2.1": 865_910_724, "sdxl": 2_567_463_684}

SMALL = "width=32/64/64,depth=1/2/0,heads=2/4/4,image=16,text=24,seq=8,blocks=1"


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count


def test_every_size_is_published() -> None:
    assert {*COUNTS, "latent_unet"} == set(PRESETS)


@pytest.mark.parametrize("more", ["1", "2,dense=true,added=12", "1,dtype=bf16", "1,attention=math"])
def test_agrees_with_pytorch(more: str) -> None:
    spec = f"latent_unet:{SMALL.removesuffix('1')}{more}"
    assert_agrees(spec, batch=2)
    assert_same_names(spec)


def test_trains() -> None:
    assert_trains(f"latent_unet:{SMALL}", steps=24)


WRONG = [("image=66", "image=64"), ("width=40/80", "levels"), ("heads=7/8/8/8", "7")]


@pytest.mark.parametrize(("field", "said"), WRONG)
def test_sizes_that_do_not_fit(field: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        zoo.load(f"latent_unet:{field}")
