"""DenseNet: published sizes and work, and agreement with PyTorch."""

import pytest

from agreement import assert_agrees, predicted

# torchvision documentation, "DenseNet": num_params, GFLOPS (multiply-adds)
PUBLISHED = {
    "densenet121": (7_978_856, 2.83),
    "densenet161": (28_681_000, 7.73),
    "densenet169": (14_149_480, 3.36),
    "densenet201": (20_013_928, 4.29),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_size_and_work(name: str) -> None:
    count, giga = PUBLISHED[name]
    totals = predicted(name)
    assert totals.parameters == count
    assert totals.forward.matrix / 2e9 == pytest.approx(giga, abs=0.006)


@pytest.mark.parametrize("spec", ["densenet121:image=64", "densenet121:image=32,growth=12,filters=20,classes=10"])
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=0.0)
