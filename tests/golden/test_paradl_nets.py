"""The oracle paper's four networks: the sums in its authors' logs, to the last digit."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from types import ModuleType

import pytest

from foretell.model import zoo
from foretell.model.importers.paradl_net import LayerFile, parse, write
from foretell.model.totals import totals
from foretell.model.zoo.paradl import FOLDER, NETWORKS, Paradl
from foretell.units import product

STUDY = Path(__file__).parents[2] / "studies/paradl_nets/generate.py"

# layers, sum|x|, sum|y|, sum|w|, seconds per sample
SUMS = {
    "alexnet": (20, 931_692, 779_464, 62_367_776, 0.000610938),
    "vgg16": (38, 15_705_164, 15_552_936, 169_801_408, 0.008245589),
    "resnet50": (166, 14_971_596, 14_819_368, 22_734_016, 0.003119502),
    "cosmoflow512": (25, 3_528_104_656, 2_991_233_748, 2_128_064, 2.108143184),
}

SAMPLES = 1_280_000

# filter parallelism, seconds of computation an epoch on p GPUs: convolutions are shared, the rest is not
FILTER_SECONDS = {
    ("vgg16", 2): 5465.10787204,
    ("vgg16", 4): 2920.48484805,
    ("vgg16", 8): 1648.17333606,
    ("vgg16", 64): 534.90076307,
    ("resnet50", 2): 2097.95068038,
    ("resnet50", 8): 676.691770662,
    ("resnet50", 64): 262.157921995,
}

# data parallelism, samples per GPU: bytes = 4 * 2 * (samples * (sum|x| + sum|y|) + sum|w|)
DATA_BYTES = {("vgg16", 32): 9_360_484_864, ("resnet50", 64): 15_434_845_696}


def file_of(network: str) -> LayerFile:
    return Paradl(network=network).file()


@pytest.mark.parametrize("network", SUMS)
def test_sums(network: str) -> None:
    file = file_of(network)
    found = (len(file.layers), file.inputs, file.outputs, file.weights, file.seconds)
    assert found == SUMS[network]


@pytest.mark.parametrize(("network", "layers", "items"), [("vgg16", 13, 13_939_200), ("resnet50", 49, 9_096_256)])
def test_convolution_outputs_that_filter_parallelism_gathers(network: str, layers: int, items: int) -> None:
    found = [product(layer.y) for layer in file_of(network).layers if layer.kind == "convolution"]
    assert (len(found), sum(found)) == (layers, items)


@pytest.mark.parametrize(("case", "seconds"), FILTER_SECONDS.items())
def test_seconds_are_shared_out_as_in_the_logs(case: tuple[str, int], seconds: float) -> None:
    network, ranks = case
    file = file_of(network)
    split = math.fsum(layer.seconds for layer in file.layers if layer.kind == "convolution")
    assert SAMPLES * (split / ranks + file.seconds - split) == pytest.approx(seconds, rel=1e-11)


@pytest.mark.parametrize(("case", "size"), DATA_BYTES.items())
def test_bytes_of_data_parallelism(case: tuple[str, int], size: int) -> None:
    network, samples = case
    file = file_of(network)
    assert 8 * (samples * (file.inputs + file.outputs) + file.weights) == size


@pytest.mark.parametrize("network", NETWORKS)
def test_the_graph_has_the_weights_of_the_file(network: str) -> None:
    graph = zoo.load(f"{network}-paradl")
    assert totals(graph).parameters == file_of(network).weights


def test_shapes_that_the_sums_hang_on() -> None:
    by_name = {name: {layer.name: layer for layer in file_of(name).layers} for name in NETWORKS}
    assert by_name["vgg16"]["MPOOL5"].y == (512, 8, 8)
    assert by_name["alexnet"]["CONV2"].w == (96, 256, 5, 5)  # not in groups
    assert by_name["resnet50"]["3.1.CONV1"].y == (128, 28, 28)  # the stride is in the first 1x1
    assert by_name["cosmoflow512"]["CONV3"].y == (64, 62, 62, 62)
    assert file_of("cosmoflow512").sample == (4, 512, 512, 512)
    assert (file_of("cosmoflow512").samples, file_of("vgg16").samples) == (1584, SAMPLES)


def study() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", STUDY)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("network", NETWORKS)
def test_the_shipped_file_is_what_the_study_writes(network: str) -> None:
    text = (FOLDER / f"{network}.net").read_text()
    assert text == write(study().NETS[network]())
    assert write(parse(text)) == text
