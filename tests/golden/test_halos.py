"""Messages of data+spatial, halos and gradients apart (Kahira et al. 2021, arXiv 2104.09075, section 5.3).

The paper says that gradients summed by leaders take over twice as long as those of data parallelism, and that halos
take about 60 % of the gradients' sum (ResNet-50 on 128 V100, four to an image). The first holds here: the authors' own
code sums in a node and then, by one rank of each node, between nodes, where a rank alone has one of a node's two ports.
The second is missed: halos are twice the sum. They are too long where nodes are few (all messages of 16 GPUs together
are shorter, figure 3, `paradl-060`), since one constant of split images stands for runs that take twice as long on more
than one rack. All is held as it is, so that a mend of the parts shows.
"""

from __future__ import annotations

import pytest

import foretell

MESSAGES, OF_SIXTEEN = 0.1158, 0.0742  # seconds, of 128 and of 16 GPUs: paradl-063, paradl-060
MEASURED = 0.6
RESNET = "resnet50:image=226,strided_1x1=true"


def of(gpus: int, model: str = RESNET, images: int = 16) -> tuple[float, float]:
    """Exposed seconds of halos and of gradients."""
    plan = f"dp{gpus // 4} spatial4 +fp32"
    step = foretell.predict(model, f"abci:{gpus}", plan, batch=images * gpus, trainer="chainer", optimizer="adam")
    return step.breakdown["exposed.spatial"], step.breakdown["exposed.dp+spatial"] + step.breakdown["exposed.dp"]


def of_data(gpus: int, model: str = RESNET, images: int = 64) -> float:
    """Exposed seconds of gradients with data parallelism on as many GPUs."""
    step = foretell.predict(
        model, f"abci:{gpus}", f"dp{gpus} +fp32", batch=images * gpus, trainer="chainer", optimizer="adam"
    )
    return step.breakdown["exposed.dp"]


@pytest.fixture(scope="module")
def parts() -> tuple[float, float]:
    return of(128)


def test_the_sum_is_longer_than_the_bar_by_as_much_as_is_said(parts: tuple[float, float]) -> None:
    """11 % too long: a tenth was asked here before sums by leaders had their price, and is missed with it."""
    assert sum(parts) / MESSAGES - 1 == pytest.approx(0.11, abs=0.02)


@pytest.mark.parametrize(("model", "images"), [(RESNET, 64), (RESNET.replace("50", "152"), 64), ("vgg16-paradl", 32)])
def test_leaders_sum_for_about_twice_as_long_as_data_parallelism(model: str, images: int) -> None:
    """The paper: over twice."""
    assert of(128, model, images // 4)[1] == pytest.approx(2.0 * of_data(128, model, images), rel=0.05)


def test_sums_by_leaders_grow_with_nodes() -> None:
    """By a third from 4 to 256 nodes; figure 3's messages grow threefold, of which nothing here has the rest."""
    (_, few), (_, many) = of(16), of(1024)
    assert 1.2 < many / few < 1.4


def test_the_ratio_is_missed_by_as_much_as_is_said(parts: tuple[float, float]) -> None:
    """4.4 before sums by leaders had their price."""
    halos, gradients = parts
    assert MEASURED * 3 < halos / gradients < MEASURED * 4


def test_halos_alone_are_longer_than_all_messages_on_few_nodes() -> None:
    (halos, _), (far_halos, _) = of(16), of(1024)
    assert halos == far_halos
    assert 1.1 * OF_SIXTEEN < halos < 1.3 * OF_SIXTEEN
