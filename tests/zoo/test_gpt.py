"""GPT, Megatron, OPT, BLOOM, Nemotron: published sizes, agreement with PyTorch, and what each field does."""

import pytest
import torch

from agreement import assert_agrees, assert_same_names, predicted
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.model.zoo.gpt import PRESETS, Gpt
from foretell.modules.gpt import Alibi
from language import assert_causal, assert_folds, assert_trains, gradients

# Hugging Face model cards and checkpoints
EXACT = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "opt-125m": 125_239_296,
    "opt-1.3b": 1_315_758_080,
    "opt-2.7b": 2_651_596_800,
    "opt-6.7b": 6_658_473_984,
    "opt-13b": 12_853_473_280,
    "opt-30b": 29_974_540_288,
    "bloom-560m": 559_214_592,
    "bloom-1b1": 1_065_314_304,
    "bloom-1b7": 1_722_408_960,
    "bloom-3b": 3_002_557_440,
    "bloom-7b1": 7_069_016_064,
    "bloom-176b": 176_247_271_424,
}

# (published, to how much it is rounded): GPT-3 paper Table D.1 in millions, of which the smaller
# have three digits; Shoeybi et al. 2019 Table 1; Microsoft's announcement of Turing-NLG; Korthikanti
# et al. Table 3; the OPT paper's names; Nemotron-4 reports (embedding plus other parameters)
ROUNDED = {
    "gpt3-125m": (125e6, 1e6),
    "gpt3-350m": (356e6, 1e6),
    "gpt3-760m": (760e6, 1e6),
    "gpt3-1.3b": (1320e6, 10e6),
    "gpt3-2.7b": (2650e6, 10e6),
    "gpt3-6.7b": (6660e6, 10e6),
    "gpt3-13b": (12850e6, 10e6),
    "gpt3-175b": (174600e6, 10e6),
    "megatron-1.2b": (1.2e9, 0.1e9),
    "megatron-2.5b": (2.5e9, 0.1e9),
    "megatron-4.2b": (4.2e9, 0.1e9),
    "megatron-8.3b": (8.3e9, 0.1e9),
    "megatron-22b": (22e9, 1e9),
    "turing-nlg-17b": (17e9, 1e9),
    "opt-66b": (66e9, 1e9),
    "opt-175b": (175e9, 1e9),
    "nemotron4-15b": (3.2e9 + 12.5e9, 0.2e9),
    "nemotron4-340b": (9.4e9 + 331.6e9, 0.2e9),
}

# Narayanan et al. 2021, Table 1, in billions
MEGATRON = {
    "megatron-1.7b": 1.7,
    "megatron-3.6b": 3.6,
    "megatron-7.5b": 7.5,
    "megatron-18b": 18.4,
    "megatron-39b": 39.1,
    "megatron-76b": 76.1,
    "megatron-145b": 145.6,
    "megatron-310b": 310.1,
    "megatron-530b": 529.6,
    "megatron-1t": 1008.0,
}

SMALL = "layers=3,hidden=64,heads=4,vocab=96,seq=32"
NEMOTRON = f"nemotron4-15b:{SMALL},kv_heads=2,rotary_dim=8"


@pytest.mark.parametrize(("name", "count"), EXACT.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count


@pytest.mark.parametrize("name", ROUNDED)
def test_parameters_as_rounded(name: str) -> None:
    published, rounding = ROUNDED[name]
    assert abs(predicted(name).parameters - published) <= rounding / 2


@pytest.mark.parametrize(("name", "billions"), MEGATRON.items())
def test_parameters_by_the_formula_of_megatron(name: str, billions: float) -> None:
    """P = 12 l h^2 (1 + 13 / 12h + (V + s) / 12lh); it leaves the last norm's 2h out."""
    fields = PRESETS[name]
    layers, hidden = fields.layers, fields.hidden
    formula = 12 * layers * hidden**2 + 13 * layers * hidden + (fields.vocab + fields.seq) * hidden
    count = predicted(name).parameters
    assert count == formula + 2 * hidden
    assert round(count / 1e9, 1) == billions


def test_every_size_is_published() -> None:
    assert {*EXACT, *ROUNDED, *MEGATRON, "gpt"} == set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_layers_are_one_block(name: str) -> None:
    assert_folds(name, [("layers", 0, PRESETS[name].layers)])


@pytest.mark.parametrize(
    "spec",
    [
        f"gpt:{SMALL}",
        f"gpt:{SMALL},attention=math",
        f"gpt:{SMALL},positions=none,tied=false,bias=false,activation=gelu",
        f"gpt:{SMALL},positions=rotary,gated=true,activation=squared_relu",
        f"opt-125m:{SMALL}",
        f"bloom-560m:{SMALL}",
        f"bloom-560m:{SMALL},attention=math",
        f"bloom-560m:{SMALL},attention=flash,head_dim=24",
        NEMOTRON,
    ],
)
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=0.0)
    assert_same_names(spec)


def test_gpt2_agrees_with_pytorch() -> None:
    assert_agrees("gpt2:seq=128", batch=1, saved=0.0)


@pytest.mark.parametrize("name", ["gpt2", "opt-125m", "bloom-560m"])
def test_agrees_with_pytorch_in_bf16(name: str) -> None:
    """CPUs keep the statistics of a norm in bf16, GPUs in fp32."""
    assert_agrees(f"{name}:{SMALL},dtype=bf16", batch=2, saved=0.01)


@pytest.mark.parametrize("spec", [f"gpt:{SMALL}", f"bloom-560m:{SMALL}", NEMOTRON])
def test_kernels_compute_the_same(spec: str) -> None:
    spec = f"{spec},dtype=fp64"
    for ours, theirs in zip(gradients(spec), gradients(f"{spec},attention=math"), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", ["gpt2", "opt-125m", "bloom-560m"])
def test_a_token_sees_only_earlier_ones(name: str) -> None:
    assert_causal(f"{name}:{SMALL}")


@pytest.mark.parametrize("spec", [f"gpt2:{SMALL},dropout=0.1", f"bloom-560m:{SMALL}", NEMOTRON])
def test_trains(spec: str) -> None:
    assert_trains(spec)


def test_slopes_of_alibi() -> None:
    """Press et al. 2022: 2^-1 ... 2^-8 for eight heads; other counts take every second slope of twice as many."""
    assert Alibi(8).slopes.tolist() == [2.0**-power for power in range(1, 9)]
    between = [2.0 ** -(power / 2) for power in (1, 3, 5, 7)]
    torch.testing.assert_close(Alibi(12).slopes, torch.tensor([*Alibi(8).slopes.tolist(), *between]))
    assert Alibi(1).slopes.shape == (1,)


def test_views_of_one_product_are_kept_once() -> None:
    """Queries, keys and values are one storage, whichever of them is kept: it grows with all heads."""
    small = SMALL.replace("layers=3", "layers=1")
    all_heads, half = (predicted(f"gpt:{small},kv_heads={heads},dtype=bf16").saved_bytes for heads in (4, 2))
    of_a_head = 32 * 16 * 2
    assert all_heads - half == 2 * 2 * of_a_head


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("positions=sideways", "positions=learned"),
        ("activation=step", "activation=gelu"),
        ("attention=sparse", "attention=flash"),
        ("heads=7", "7 heads"),
        ("kv_heads=5", "kv_heads=4"),
        ("positions=rotary,rotary_dim=65", "64"),
    ],
)
def test_fields_that_do_not_fit(fields: str, words: str) -> None:
    with pytest.raises(BadInput) as problem:
        zoo.load(f"gpt:{fields}")
    assert words in str(problem.value)


def test_usual_sizes() -> None:
    fields = Gpt(hidden=512, heads=8)
    assert (fields.inner, fields.size, fields.shared_heads) == (2048, 64, 8)
