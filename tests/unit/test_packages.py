"""Models that timm and torchvision build by name, as graphs that ship: no torch is needed for these."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from foretell.errors import BadInput, MissingExtra, UnknownName
from foretell.model import zoo
from foretell.model.importers import packages
from foretell.model.importers.packages import PackageModel, index, parse
from foretell.model.source import load
from foretell.model.totals import totals


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("regnety_032", 19_436_338),  # timm, results-imagenet.csv: 19.44 million
        ("timm/regnety_032.ra_in1k", 19_436_338),
        ("timm/vit_small_patch16_384", 22_196_584),  # 22.2
        ("timm/vit_small_patch16_384:attention=math", 22_196_584),
        ("shufflenet_v2_x1_0", 2_278_604),  # torchvision's page of models
        ("torchvision/squeezenet1_1", 1_235_496),
        ("nnunet-3d", 31_192_068),  # nnU-Net: 31.2 million
    ],
)
def test_a_model_by_name(text: str, parameters: int) -> None:
    graph = load(text, 4)
    assert (totals(graph).parameters, graph.batch, graph.source) == (parameters, 4, "package")


def test_the_zoo_comes_first() -> None:
    assert load("resnet50").source == "zoo"
    for name in zoo.names():
        assert zoo.canonical(name) == name


def test_samples_and_types() -> None:
    one, many = load("timm/regnety_032:dtype=bf16", 1), load("timm/regnety_032", 64, dtype="bf16")
    assert totals(many).forward.matrix == 64 * totals(one).forward.matrix
    assert {t.dtype for block in one.blocks for t in block.tensors if t.role == "parameter"} == {"bf16"}


def test_every_graph_that_the_index_names_is_there_and_can_be_priced() -> None:
    shipped = {name: model for name, model in index().models.items() if model.graphs}
    assert len(shipped) > 350
    assert {f"{model.image}" in model.graphs for name, model in shipped.items() if name.startswith(packages.OWN)} == {
        True
    }
    for name in sorted(shipped)[::60]:
        package, _, own = name.partition("/")
        for key in shipped[name].graphs:
            image, _, kernel = key.partition(",")
            graph = packages.load(PackageModel(package, own, int(image), kernel or "flash"))
            assert totals(graph).forward.matrix > 0, name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("timm/resnet50d:imag=3", "'imag=3' is no field"),
        ("timm/resnet50d:image=-3", "image=-3"),
        ("timm/resnet50d:attention=best", "attention=best"),
        ("timm/resnet50d:dtype=int3", "no floating-point type"),
        ("nnunet-2d:image=512", "was traced for images of 192"),
    ],
)
def test_fields_that_do_not_fit(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        load(text)


def test_a_name_of_nobody_is_no_package_model() -> None:
    assert parse("/regnety_032") is None
    assert parse("llama6") is None and parse("meta-llama/Llama-9") is None and parse("file.py:build") is None


def test_what_helps_where_timm_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Any = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "timm" else found(name))
    with pytest.raises(MissingExtra) as raised:
        load("timm/regnety_032:image=64")
    assert raised.value.fix == "pip install 'foretell[timm]'"
    with pytest.raises(MissingExtra) as raised:
        load("timm/regnety_03")
    assert raised.value.fix.startswith("timm/regnety_0")


@pytest.mark.parametrize(
    ("typed", "found"),
    [("EfficientNetV2-S", "timm/efficientnetv2_s"), ("regnety-032", "timm/regnety_032")],
)
def test_dashes_and_capitals_do_not_count(typed: str, found: str) -> None:
    parsed = packages.parse(typed)
    assert parsed is not None and parsed.text == found


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("ssd300", "ssd300-resnet34"), ("nnunet", "nnunet-3d"), ("transformer-xl", "transformer-xl-base"),
        ("mnasnet", "mnasnet1_0"), ("xcit", "xcit_medium_24_p8_384"), ("maxvit", "maxvit_base_tf_224"),
        ("beit", "beit_base_patch16_224"), ("cait", "cait_s24_384"), ("regnet", "regnetx_002"), ("nfnet", "nfnet_f0"),
    ],
)  # fmt: skip
def test_a_family_that_packages_have_is_answered_with_its_members(typed: str, offered: str) -> None:
    with pytest.raises(UnknownName) as problem:
        load(typed)
    names = problem.value.fix.partition(";")[0].partition(" and ")[0].split(", ")
    assert offered in names
    assert all(packages.parse(name) for name in names)


def test_a_slip_in_the_name_of_a_member_of_the_zoo_is_answered_from_the_zoo() -> None:
    with pytest.raises(UnknownName) as problem:
        load("resnet5")
    assert "resnet50" in problem.value.fix and "timm" not in problem.value.fix and "resnet51q" not in problem.value.fix
