"""CosmoFlow: sizes counted by hand from its published descriptions, and agreement with PyTorch."""

from itertools import pairwise

import pytest

from agreement import assert_agrees, assert_same_names, measure, predicted
from foretell.errors import BadInput
from foretell.model import zoo

# No count is printed by MLPerf HPC; this is its reference network (mlcommons/hpc, models/cosmoflow.py:
# conv_size 32 doubling, kernel 3, fc1 128, fc2 64, 4 targets), and what larger boxes add to it.
CONVOLUTIONS = [4, 32, 64, 128, 256, 512]
REFERENCE = sum(27 * a * b + b for a, b in pairwise(CONVOLUTIONS))
DENSE = (512 * 4**3 * 128 + 128) + (128 * 64 + 64) + (64 * 4 + 4)
ONE_MORE = 27 * 512 * 512 + 512

COUNTS = {
    "cosmoflow128": REFERENCE + DENSE,
    "cosmoflow256": REFERENCE + ONE_MORE + DENSE,
    "cosmoflow512": REFERENCE + 2 * ONE_MORE + DENSE,
}


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count


def test_the_count_of_the_reference() -> None:
    assert COUNTS["cosmoflow128"] == 8_907_556


@pytest.mark.parametrize(
    ("spec", "batch"),
    [("cosmoflow128", 1), ("cosmoflow256", 2), ("cosmoflow512", 1), ("cosmoflow:image=50,layers=2,dtype=bf16", 2)],
)
def test_agrees_with_pytorch(spec: str, batch: int) -> None:
    assert_agrees(spec, batch)


def test_names_are_the_modules() -> None:
    assert_same_names("cosmoflow256")


def test_agrees_with_a_real_step() -> None:
    spec = "cosmoflow:image=16,width=8,dropout=0"
    assert_agrees(spec, batch=2, fake=False)
    assert predicted(spec, 2).saved_bytes == measure(spec, 2, fake=False).saved_bytes


def test_the_first_map_is_most_of_the_memory() -> None:
    """At 512 voxels the first convolution's output alone is 16 GiB in fp32."""
    first = 32 * 512**3 * 4
    assert first == 16 * 2**30
    assert predicted("cosmoflow512").saved_bytes > first


@pytest.mark.parametrize(
    ("fields", "says"),
    [("image=16,layers=5", "halved 4 times, not 5"), ("image=1", "halved 0 times"), ("image=0", "image")],
)
def test_bad_fields(fields: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        zoo.load(f"cosmoflow:{fields}")
