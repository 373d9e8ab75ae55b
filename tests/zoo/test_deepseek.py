"""DeepSeek: published sizes, agreement with PyTorch, latent attention."""

import msgspec
import pytest
import torch

from agreement import assert_agrees, assert_same_names, predicted
from foretell import modules
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.model.layers import layers
from foretell.model.zoo.deepseek import PRESETS
from foretell.modules._further_tokens import further_loss
from foretell.units import product
from language import assert_causal, assert_folds, assert_trains, gradients

# Hugging Face checkpoints. The published 671,026,419,200 of V3 (without the second-token module)
# count the router's 58 x 256 corrections, which here are a buffer
PUBLISHED = {
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v3": 671_026_419_200 - 58 * 256,
    "deepseek-v3.2": 671_877_929_216,  # of the class of transformers; 685 B in its files, with the second-token module
    "kimi-k2": 1_026_408_209_408,  # "1T" on its card; its files hold 1.0265 T with scales of fp8 weights
}

# billions that one token meets: the reports say 2.4 (without the token table), 21 and 37, and 32.6 of Kimi K2
ACTIVE = {"deepseek-v2-lite": 2.66, "deepseek-v2": 21.38, "deepseek-v3": 37.55, "deepseek-v3.2": 38.4, "kimi-k2": 32.86}

SMALL = (
    "layers=4,first_dense=2,hidden=64,heads=4,query_rank=24,kv_rank=16,head_dim=16,rotary_dim=8,value_dim=16,"
    "ffn=96,expert_ffn=40,experts=16,top_k=4,vocab=96,seq=32"
)


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count


@pytest.mark.parametrize(("name", "billions"), ACTIVE.items())
def test_active_parameters(name: str, billions: float) -> None:
    assert round(PRESETS[name].active_parameters / 1e9, 2) == billions


def test_every_size_is_published() -> None:
    assert {*PUBLISHED, "deepseek"} == set(PRESETS) == {*ACTIVE, "deepseek"}


WEIGHTS = 685e9
"""Of DeepSeek-V3's files, by its README: 671 B of the main model and 14 B of its module for the second token, which has
copies of the token table and the head."""


def test_the_layer_of_the_second_token_has_the_size_of_that_in_the_files() -> None:
    """By README_WEIGHTS.md: 11.5 B of its own, 2.4 B that a token meets with table and head. Both are met without the
    projection from 2h to h, which the files have too."""
    main, whole = predicted("deepseek-v3").parameters, predicted("deepseek-v3:mtp=1").parameters
    fields = PRESETS["deepseek-v3"]
    table, projection, more = fields.vocab * fields.hidden, 2 * fields.hidden**2, whole - main
    attention = 7168 * 1536 + 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 + 512 * 128 * 256 + 128 * 128 * 7168
    experts = 7168 * 256 + 257 * 3 * 7168 * 2048
    assert more == attention + experts + projection + 5 * 7168  # two norms of the layer, two before it, one after it
    assert round((more - projection) / 1e9, 1) == 11.5
    assert main + more + 2 * table == pytest.approx(WEIGHTS, rel=1e-3)
    active = msgspec.structs.replace(fields, mtp=1).active_parameters - fields.active_parameters
    assert round((active - projection + 2 * table) / 1e9, 1) == 2.4


def test_further_tokens_are_layers_of_their_own_behind_the_others() -> None:
    assert layers(zoo.load(f"deepseek-v3:{SMALL},groups=4,top_groups=2,mtp=2"))[-3:] == ("layers.3", "mtp.0", "mtp.1")


def test_a_module_that_is_evaluated_predicts_the_next_token_alone() -> None:
    spec = f"deepseek-v3:{SMALL},groups=4,top_groups=2,mtp=2"
    module, (text,) = modules.build(spec), modules.example(spec).inputs
    assert [part.shape for part in module(text)] == 3 * [(1, 32, 96)]
    assert module.eval()(text).shape == (1, 32, 96)


def test_the_second_token_is_told_from_the_next_one() -> None:
    """Its loss is that of targets one place further: logits sure of those lose nothing, but at the last place."""
    target = torch.arange(8).reshape(1, 8)
    sure = torch.nn.functional.one_hot(target, 9) * 100.0
    later = torch.nn.functional.one_hot(target + 1, 9) * 100.0
    assert further_loss((sure, later), target) < 1e-6
    assert further_loss((sure, sure), target) == pytest.approx(0.3 * 100.0)


@pytest.mark.parametrize("name", PRESETS)
def test_dense_and_expert_layers_are_a_block_each(name: str) -> None:
    fields = PRESETS[name]
    runs = [("layers", 0, fields.first_dense), ("layers", fields.first_dense, fields.layers - fields.first_dense)]
    assert_folds(name, [run for run in runs if run[2] > 1])


@pytest.mark.parametrize(
    "spec",
    [
        f"deepseek-v3:{SMALL},groups=4,top_groups=2,attention=math",
        f"deepseek-v3:{SMALL},groups=1,top_groups=1,attention=math,dtype=bf16",
        f"deepseek-v3:{SMALL},groups=4,top_groups=2,attention=math,mtp=1",
        f"deepseek-v3:{SMALL},groups=4,top_groups=2,attention=math,dtype=bf16,mtp=2",
        f"deepseek-v2:{SMALL},groups=4,top_groups=2,attention=math",
        f"deepseek-v2-lite:{SMALL},attention=math".replace("query_rank=24,", ""),
    ],
)
def test_agrees_with_pytorch(spec: str) -> None:
    """CPUs have no kernel for keys that are longer than values, so these write the scores out."""
    assert_agrees(spec, batch=2, saved=0.0)
    assert_same_names(spec)


@pytest.mark.parametrize("kernel", ["flash", "efficient"])
def test_agrees_with_pytorch_where_keys_and_values_are_alike(kernel: str) -> None:
    fields = SMALL.replace("value_dim=16", "value_dim=24")
    assert_agrees(f"deepseek-v3:{fields},groups=4,top_groups=2,attention={kernel},dtype=bf16", batch=2, saved=0.0)


SPARSE = f"deepseek-v3.2:{SMALL},groups=4,top_groups=2,index_heads=3,index_dim=16"


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_sparse_attention_agrees_with_pytorch(dtype: str) -> None:
    assert_agrees(f"{SPARSE},index_top_k=8,dtype={dtype}", batch=2, saved=0.0)
    assert_same_names(f"{SPARSE},index_top_k=8")


def test_an_index_of_all_places_is_causal_attention() -> None:
    """And one of few is not."""
    text = modules.example(f"{SPARSE},dtype=fp64").inputs[0]
    sparse, few = (modules.build(f"{SPARSE},dtype=fp64,index_top_k={count}") for count in (32, 4))
    dense = modules.build(f"deepseek-v3:{SMALL},groups=4,top_groups=2,attention=math,dtype=fp64")
    weights = sparse.state_dict()
    few.load_state_dict(weights)
    dense.load_state_dict({name: weights[name] for name in dense.state_dict()})
    with torch.no_grad():
        torch.testing.assert_close(sparse(text), dense(text))
        assert not torch.allclose(few(text), dense(text))
        assert torch.allclose(few(text)[:, :4], dense(text)[:, :4])  # as many places as are chosen


def test_sparse_attention_trains_all_but_its_index() -> None:
    assert_trains(f"{SPARSE},index_top_k=8", frozen=4 * 5)


def test_fewer_places_are_less_work() -> None:
    """Counted as fused kernels are: all scores, and the share of them that is made."""
    attended = [
        node.operator.density({loop.name: product(dim.size for dim in loop.dims) for loop in node.loops})
        for count in (8, 32)
        for block in zoo.load(f"{SPARSE},index_top_k={count}").blocks
        for node in block.nodes
        if node.kind == "attention"
    ]
    assert set(attended) == {0.25 * (1 - 0.125), 0.5}


WRONG = ("deepseek-v3:attention=sparse", "deepseek-v3.2:attention=math", "llama:attention=sparse")


@pytest.mark.parametrize("spec", WRONG)
def test_an_index_goes_with_sparse_attention(spec: str) -> None:
    with pytest.raises(BadInput, match="sparse"):
        zoo.load(spec)


def test_kernels_compute_the_same() -> None:
    spec = f"deepseek-v3:{SMALL},groups=4,top_groups=2,dtype=fp64"
    for ours, theirs in zip(gradients(spec), gradients(f"{spec},attention=math"), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_token_sees_only_earlier_ones() -> None:
    assert_causal(f"deepseek-v3:{SMALL},groups=4,top_groups=2")


@pytest.mark.parametrize("further", [0, 1])
def test_trains(further: int) -> None:
    assert_trains(f"deepseek-v3:{SMALL},groups=4,top_groups=2,mtp={further}")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("attention=flash", "attention=efficient"),
        ("experts=100", "experts=104"),
        ("top_groups=9", "top_groups=8"),
        ("top_groups=1,top_k=40", "top_k=32"),
        ("first_dense=62", "first_dense=61"),
        ("score=tanh", "score=sigmoid"),
        ("rotary_dim=63", "62"),
    ],
)
def test_fields_that_do_not_fit(fields: str, words: str) -> None:
    with pytest.raises(BadInput) as problem:
        zoo.load(f"deepseek:{fields}")
    assert words in str(problem.value)
