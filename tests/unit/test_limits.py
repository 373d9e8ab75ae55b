"""How far models can be split: the oracle paper's values, and the ways of transformers."""

from __future__ import annotations

import pytest

from foretell.model import zoo
from foretell.model.build import Builder, dims
from foretell.model.limits import limits
from foretell.model.operators.attention import attention
from foretell.model.operators.embedding import embedding
from foretell.model.operators.experts import grouped_linear
from foretell.model.operators.matmul import linear


def found(spec: str, batch: int = 1) -> dict[str, tuple[int, str]]:
    return {limit.way: (limit.ranks, limit.by) for limit in limits(zoo.load(spec, batch))}


@pytest.mark.parametrize("spec", ["vgg16", "resnet50-paradl", "vgg16-paradl"])
def test_filter_parallelism_ends_at_64_ranks(spec: str) -> None:
    """Kahira et al.: p <= 64 for filter and channel on VGG16 and ResNet-50."""
    ways = found(spec, batch=32)
    assert ways["filter"][0] == 64
    assert ways["channel"][0] == 64
    assert ways["data"] == (32, "")
    assert ways["data+filter"][0] == 32 * 64


@pytest.mark.parametrize(
    ("spec", "lines"),
    [("alexnet-paradl", 20), ("vgg16-paradl", 38), ("resnet50-paradl", 166), ("cosmoflow512-paradl", 25)],
)
def test_a_pipeline_ends_at_the_lines_of_a_layer_file(spec: str, lines: int) -> None:
    assert found(spec)["pipeline"] == (lines, "")


def test_the_limiting_layer_is_named() -> None:
    ways = found("resnet50-paradl", batch=4)
    assert ways["spatial"] == (49, "5.1.CONV2")
    assert ways["data+spatial"] == (4 * 49, "5.1.CONV2")
    assert ways["filter"] == (64, "CONV1")
    assert ways["channel"] == (64, "2.1.CONV1")  # the first layer has three channels and is not counted
    assert ways["blocks"] == (3 + 4 + 6 + 3, "2, 3, 4, 5")
    assert found("alexnet-paradl")["filter"] == (96, "CONV1")
    assert found("cosmoflow512-paradl")["spatial"] == (2 * 2 * 2, "CONV7")
    assert found("cosmoflow512-paradl")["filter"] == (4, "FC3")


def test_ways_that_a_model_does_not_have_are_left_out() -> None:
    assert set(found("alexnet-paradl")) == {
        "data", "spatial", "filter", "channel", "pipeline", "data+filter", "data+spatial",
    }  # fmt: skip


def test_ways_of_transformers() -> None:
    g = Builder("attention and experts", batch=2)
    tokens = g.input("tokens", dims(sample=2, sequence=16), "int64")
    x = embedding(g, tokens, 100, dims(hidden=32))
    with g.scope("attention"):
        q = g.input("q", dims(sample=2, head=8, sequence=16, head_dim=4))
        k, v = (g.input(name, dims(sample=2, head=2, sequence=16, head_dim=4)) for name in "kv")
        attention(g, q, k, v, causal=True)
    with g.scope("up"):
        x = linear(g, x, dims(ffn=64))
    with g.scope("experts"):
        grouped_linear(g, x, 4, dims(ffn=48))
    ways = {limit.way: (limit.ranks, limit.by) for limit in limits(g.graph())}
    assert ways["tensor"] == (2, "attention")
    assert ways["heads"] == (8, "attention")
    assert ways["context"] == (16, "attention")
    assert ways["expert"] == (4, "experts")
    assert ways["filter"] == (48, "experts")
    assert ways["channel"] == (32, "up")  # a table comes first, so the first dense layer counts
    assert "spatial" not in ways
    assert "blocks" not in ways


def test_every_limit_says_its_rule() -> None:
    for limit in limits(zoo.load("vgg16")):
        assert limit.rule.startswith("ranks <= ")
        assert limit.ranks >= 1


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("name", "heads"), [("llama3-405b", 8), ("mixtral-8x7b", 8), ("qwen3-235b-a22b", 4), ("gpt2", 12)]
)
def test_tensor_ranks_are_key_heads_in_every_type(name: str, heads: int, dtype: str) -> None:
    """Some kernels are given copied heads; that makes no more of them."""
    assert found(f"{name}:dtype={dtype}")["tensor"][0] == heads


def test_the_layer_that_reads_the_data_is_left_out() -> None:
    assert found("swin-t")["channel"][0] == 96
    assert found("efficientnet-b0")["spatial"][0] == found("efficientnet-b0", batch=8)["spatial"][0] == 49
    assert found("lstm")["filter"][0] == 650
