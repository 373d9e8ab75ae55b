"""Llama, Mistral, Qwen: published sizes, agreement with PyTorch, and what each field does."""

import pytest
import torch

from agreement import assert_agrees, assert_same_names, predicted
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.model.zoo.llama import PRESETS
from language import assert_causal, assert_folds, assert_trains, gradients, logits

# Hugging Face model cards (safetensors parameter counts); Llama 1 and 2 as in their reports
PUBLISHED = {
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-30b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "llama3.2-1b": 1_235_814_400,
    "llama3.2-3b": 3_212_749_824,
    "mistral-7b": 7_241_732_096,
    "qwen2-0.5b": 494_032_768,
    "qwen2-1.5b": 1_543_714_304,
    "qwen2-7b": 7_615_616_512,
    "qwen2-72b": 72_706_203_648,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
}

SMALL = "layers=3,hidden=64,heads=4,ffn=96,vocab=96,seq=32"


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count


def test_every_size_is_published() -> None:
    assert {*PUBLISHED, "llama"} == set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_layers_are_one_block(name: str) -> None:
    assert_folds(name, [("layers", 0, PRESETS[name].layers)])


@pytest.mark.parametrize(
    "spec",
    [
        "llama3-8b:layers=2,seq=64,dtype=bf16",
        f"llama:{SMALL}",
        f"llama:{SMALL},kv_heads=2",
        f"llama:{SMALL},kv_heads=2,dtype=bf16",
        f"llama:{SMALL},kv_heads=2,attention=math",
        f"llama:{SMALL},attention=math,dtype=bf16",
        f"mistral-7b:{SMALL},kv_heads=1,window=32",
        f"mistral-7b:{SMALL},kv_heads=1,window=8",
        f"qwen2-0.5b:{SMALL},kv_heads=2",
        f"qwen3-0.6b:{SMALL},kv_heads=2",
        f"qwen3-8b:{SMALL},kv_heads=2,head_dim=32,dtype=bf16",
    ],
)
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=0.0)
    assert_same_names(spec)


@pytest.mark.parametrize("window", [0, 8])
def test_kernels_compute_the_same(window: int) -> None:
    spec = f"llama:{SMALL},kv_heads=2,window={window},dtype=fp64"
    for ours, theirs in zip(gradients(spec), gradients(f"{spec},attention=math"), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_token_sees_only_earlier_ones() -> None:
    assert_causal(f"qwen3-0.6b:{SMALL},kv_heads=2")


def test_a_window_hides_what_is_far_behind() -> None:
    spec = f"llama:{SMALL},window=4,layers=1,dtype=fp64".replace("layers=3,", "")
    text = torch.randint(96, (1, 32))
    other = text.clone()
    other[0, 0] = (text[0, 0] + 1) % 96
    changed = (logits(spec, text) != logits(spec, other)).any(-1)[0]
    assert changed[:4].all()
    assert not changed[4:].any()


def test_trains() -> None:
    assert_trains(f"llama:{SMALL},kv_heads=2")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("heads=30", "hidden=4110"),
        ("heads=12,hidden=48,kv_heads=8", "kv_heads=6"),
        ("attention=sparse", "attention=flash"),
        ("hidden=96,heads=32", "rotary"),
    ],
)
def test_fields_that_do_not_fit(fields: str, words: str) -> None:
    with pytest.raises(BadInput) as problem:
        zoo.load(f"llama:{fields}")
    assert words in str(problem.value)
