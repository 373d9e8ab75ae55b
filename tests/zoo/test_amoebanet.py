"""AmoebaNet-D: published sizes, and agreement with PyTorch."""

import pytest

from agreement import assert_agrees, predicted
from foretell.errors import BadInput
from foretell.model import zoo

# torchgpipe, benchmarks/amoebanetd-memory, and GPipe (arXiv 1811.06965), table 1, in millions
PUBLISHED = {(18, 208): 81.5, (18, 416): 319, (18, 544): 542.7, (36, 544): 1060, (72, 512): 1840}


@pytest.mark.parametrize(("layers", "filters"), PUBLISHED)
def test_parameters(layers: int, filters: int) -> None:
    found = predicted(f"amoebanet:repeats={layers // 3},filters={filters}").parameters
    assert found / 1e6 == pytest.approx(PUBLISHED[layers, filters], rel=0.006)


@pytest.mark.parametrize(
    "spec", ["amoebanet:repeats=1,filters=64,image=64,classes=10", "amoebanet:repeats=2,filters=32,image=32"]
)
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=0.0)


@pytest.mark.parametrize(("field", "fix"), [("filters=200", "filters=208"), ("image=100", "image=96")])
def test_what_cannot_be_built(field: str, fix: str) -> None:
    with pytest.raises(BadInput) as problem:
        zoo.load(f"amoebanet:{field}")
    assert fix in problem.value.fix
