"""Mixtral, Qwen with experts: published sizes, agreement with PyTorch, and routing."""

import pytest
import torch
import torch.nn.functional as F

from agreement import assert_agrees, assert_same_names, predicted
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.model.zoo._experts import Routing
from foretell.model.zoo.mixture import PRESETS, Mixture
from foretell.modules._experts import ExpertFeedForward
from language import assert_causal, assert_folds, assert_trains

# Hugging Face model cards (safetensors parameter counts); Qwen2-57B-A14B by name, rounded
PUBLISHED = {
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
}
ROUNDED = {"qwen2-57b-a14b": 57.4e9}

# billions that one token meets, and to how much they are rounded: the papers and model cards
ACTIVE = {
    "mixtral-8x7b": (12.9, 0.1),
    "mixtral-8x22b": (39, 1),
    "qwen3-30b-a3b": (3.3, 0.2),
    "qwen3-235b-a22b": (22, 1),
    "qwen2-57b-a14b": (14, 1),
}

SMALL = "layers=3,hidden=64,heads=4,kv_heads=2,ffn=48,vocab=96,seq=32"


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count


@pytest.mark.parametrize(("name", "count"), ROUNDED.items())
def test_parameters_as_rounded(name: str, count: float) -> None:
    assert abs(predicted(name).parameters - count) <= 0.05e9


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters(name: str) -> None:
    billions, rounding = ACTIVE[name]
    assert abs(PRESETS[name].active_parameters / 1e9 - billions) <= rounding / 2


def test_every_size_is_published() -> None:
    assert {*PUBLISHED, *ROUNDED, "mixture"} == set(PRESETS) == {*ACTIVE, "mixture"}


@pytest.mark.parametrize("name", PRESETS)
def test_layers_are_one_block(name: str) -> None:
    assert_folds(name, [("layers", 0, PRESETS[name].layers)])


@pytest.mark.parametrize(
    "spec",
    [
        "mixtral-8x7b:layers=1,seq=64,dtype=bf16",
        f"mixtral-8x7b:{SMALL}",
        f"mixtral-8x7b:{SMALL},dtype=bf16",
        f"qwen2-57b-a14b:{SMALL},shared_ffn=80,experts=16",
        f"qwen3-30b-a3b:{SMALL},experts=16,dtype=bf16",
        f"mixture:{SMALL},every=2,dense_ffn=80,shared_ffn=48,top_k=1,normalized=false",
    ],
)
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=0.0)
    assert_same_names(spec)


def test_experts_in_every_second_layer() -> None:
    """Llama 4 Maverick: 400.7 billion parameters, of which a token meets 17 (Meta's model card)."""
    shape = "layers=48,hidden=5120,heads=40,kv_heads=8,head_dim=128,vocab=202048,seq=64,ffn=8192,shared_ffn=8192"
    spec = f"mixture:{shape},experts=128,top_k=1,every=2,dense_ffn=16384"
    _, model = zoo.parse(spec)
    assert isinstance(model, Mixture)
    assert predicted(spec).parameters / 1e9 == pytest.approx(400.7, abs=0.1)
    assert model.active_parameters / 1e9 == pytest.approx(17, abs=0.5)
    with pytest.raises(BadInput, match="layers without experts have a width"):
        zoo.load(f"mixture:{SMALL},every=2", 1)


def _dense(layer: ExpertFeedForward, x: torch.Tensor) -> torch.Tensor:
    """Every token through every expert, weighted by zero where it was not chosen."""
    weights, chosen = layer.router(x)
    experts = layer.experts
    y = torch.zeros_like(x)
    for number in range(layer.router.routing.experts):
        weight = (weights * (chosen == number)).sum(-1, keepdim=True)
        inner = F.silu(x @ experts.gate.weight[number]) * (x @ experts.up.weight[number])
        y = y + weight * (inner @ experts.down.weight[number])
    if layer.shared is not None:
        shared = layer.shared(x)
        y = y + (shared if layer.shared_gate is None else shared * layer.shared_gate(x).sigmoid())
    return y


@pytest.mark.parametrize(
    ("routing", "shared", "gate"),
    [
        (Routing(8, 2), 0, False),
        (Routing(8, 3, normalized=False), 12, True),
        (Routing(16, 4, "sigmoid", True, 2.5, 4, 2, 2, True), 12, False),
        (Routing(64, 2), 0, False),  # more experts than tokens: some have no row
    ],
)
def test_sorted_rows_compute_what_a_dense_loop_does(routing: Routing, shared: int, gate: bool) -> None:
    torch.manual_seed(0)
    layer = ExpertFeedForward(8, 6, routing, shared, gate).double()
    x = torch.randn(10, 8, dtype=torch.float64, requires_grad=True)
    goal = torch.randn(10, 8, dtype=torch.float64)
    found: list[list[torch.Tensor]] = []
    for function in (layer, lambda rows: _dense(layer, rows)):
        y = function(x)
        found.append([y, *torch.autograd.grad((y * goal).sum(), [x, *layer.parameters()])])
    torch.testing.assert_close(*found)


def test_only_the_best_groups_are_chosen_from() -> None:
    torch.manual_seed(0)
    routing = Routing(16, 4, "sigmoid", groups=4, top_groups=2, group_best=2, corrected=True)
    layer = ExpertFeedForward(8, 6, routing)
    layer.router.correction[4:8] = 10.0  # the second group wins, whatever the token
    layer.router.correction[8:12] = 5.0
    _, chosen = layer.router(torch.randn(10, 8))
    assert ((chosen >= 4) & (chosen < 8)).all()


def test_a_token_sees_only_earlier_ones() -> None:
    assert_causal(f"mixtral-8x7b:{SMALL}")


def test_trains() -> None:
    assert_trains(f"qwen2-57b-a14b:{SMALL},shared_ffn=48,experts=8,top_k=3")


@pytest.mark.parametrize(("fields", "words"), [("top_k=9", "top_k=8"), ("heads=30", "kv_heads=6")])
def test_fields_that_do_not_fit(fields: str, words: str) -> None:
    with pytest.raises(BadInput) as problem:
        zoo.load(f"mixture:{fields}")
    assert words in str(problem.value)
