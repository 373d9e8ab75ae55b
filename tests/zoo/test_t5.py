"""T5: published sizes, its position bias, and agreement with PyTorch."""

import pytest
import torch

from agreement import assert_agrees, predicted
from foretell import modules
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.modules.t5 import distance_buckets

# Hugging Face transformers: parameters of T5ForConditionalGeneration under the configurations of
# t5-* and google/t5-v1_1-* (google/flan-t5-* are of the same sizes)
PUBLISHED = {
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-3b": 2_851_598_336,
    "t5-11b": 11_307_321_344,
    "t5-v1.1-small": 76_961_152,
    "t5-v1.1-base": 247_577_856,
    "t5-v1.1-large": 783_150_080,
    "t5-v1.1-xl": 2_849_757_184,
    "t5-v1.1-xxl": 11_135_332_352,
}

SMALL = "layers=2,hidden=64,heads=4,head_dim=16,ffn=128,vocab=500,seq=48"


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count


@pytest.mark.parametrize(
    "spec",
    [
        "t5-small:seq=128",
        f"t5:{SMALL},target_seq=16,decoder_layers=3",
        f"t5-v1.1-base:{SMALL},target_seq=20",
        f"t5:{SMALL},dtype=bf16",
    ],
)
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=0.01 if "bf16" in spec else 0.0)


def test_layers_fold() -> None:
    """All but the first of each stack, after which gradients of the bias and the memory are added up."""
    assert [block.times for block in zoo.load("t5-3b").blocks].count(23) == 2


def test_buckets_are_exact_near_and_logarithmic_far() -> None:
    """Both directions: 16 buckets each, 8 of them exact; beyond the distance all share the last."""
    buckets = distance_buckets(200, 32, 128, causal=False)
    assert buckets[0, :8].tolist() == [0, *range(17, 24)]
    assert buckets[:8, 0].tolist() == list(range(8))
    assert buckets[199, :72].unique().tolist() == [15]
    assert distance_buckets(200, 32, 128, causal=True).triu(1).max() == 0


def test_decoder_does_not_see_the_future() -> None:
    torch.manual_seed(0)
    model = modules.build(f"t5:{SMALL}")
    tokens, target_tokens = modules.example(f"t5:{SMALL}").inputs
    before = model(tokens, target_tokens)
    changed = target_tokens.clone()
    changed[:, 30:] = (changed[:, 30:] + 1) % 500
    after = model(tokens, changed)
    assert torch.equal(before[:, :30], after[:, :30])
    assert not torch.equal(before[:, 30:], after[:, 30:])


@pytest.mark.parametrize("spec", ["t5:attention=flash", "t5:activation=tanh", "t5:buckets=2", "t5:distance=16"])
def test_refuses_what_does_not_fit(spec: str) -> None:
    with pytest.raises(BadInput) as refusal:
        zoo.load(spec)
    assert refusal.value.fix
