"""LeNet-5: its size, and agreement with PyTorch."""

import pytest

from agreement import assert_agrees, predicted
from foretell.errors import BadInput
from foretell.model import zoo


def test_parameters() -> None:
    # LeCun et al. 1998, section II.B: C1 156, C5 48,120, F6 10,164; C3 seeing all six maps 2,416, ten
    # classes from F6 850, subsampling without weights
    assert predicted("lenet").parameters == 156 + 2_416 + 48_120 + 10_164 + 850 == 61_706


@pytest.mark.parametrize("spec", ["lenet", "lenet:image=28,classes=47", "lenet5:dtype=fp64"])
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=3, saved=0.0)


def test_a_small_image_is_refused() -> None:
    with pytest.raises(BadInput, match="does not fit"):
        zoo.load("lenet:image=14")
