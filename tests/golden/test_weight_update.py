"""The share of the weight update in a step, beside figure 7 of the oracle paper (Kahira et al. 2021, arXiv 2104.09075).

Its labels (PyTorch 1, one V100): VGG16 15.1 %, ResNet-50 11.4 %, ResNet-152 5.7 % of 0.156, 0.191 and 0.44 s. That is
24, 22 and 25 ms, for 32, 161 and 467 tensors of 138, 26 and 60 million weights: neither bytes nor kernels make these
three alike, so two of them are missed, and their optimizer is not named.
"""

from __future__ import annotations

import pytest

import foretell

MODELS = {"vgg16:image=226": (32, 0.151), "resnet50:image=226": (64, 0.114), "resnet152:image=226": (64, 0.057)}


def share(model: str, optimizer: str, trainer: str = "pytorch-1") -> float:
    batch, _ = MODELS[model]
    found = foretell.predict(model, "1xv100-16", "dp1", batch=batch, trainer=trainer, optimizer=optimizer)
    return found.breakdown["optimizer"] / found.step_seconds


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_the_largest_of_the_three_is_near_its_label(optimizer: str) -> None:
    assert share("resnet152:image=226", optimizer) == pytest.approx(0.057, abs=0.016)


@pytest.mark.parametrize(("model", "off"), [("vgg16:image=226", 0.09), ("resnet50:image=226", 0.06)])
def test_the_others_are_below_their_labels_by_as_much_as_is_said(model: str, off: float) -> None:
    assert MODELS[model][1] - off < share(model, "adam") < MODELS[model][1]


@pytest.mark.parametrize("model", ["resnet50:image=226", "resnet152:image=226"])
def test_an_update_of_many_tensors_lasts_as_long_as_its_launches(model: str) -> None:
    """A loop over the weights starts a kernel for each line of the formula: 30 us for each list of each tensor."""
    tensors = 161 if "50" in model else 467
    batch, _ = MODELS[model]
    found = foretell.predict(model, "1xv100-16", "dp1", batch=batch, trainer="pytorch-1", optimizer="adam")
    assert found.breakdown["optimizer"] >= 0.99 * 3 * tensors * 30e-6
    assert "host" not in found.breakdown
