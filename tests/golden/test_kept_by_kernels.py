"""What trainers' kernels keep for the backward pass, by hand: fused SwiGLU, losses in place, casts to few bits."""

from __future__ import annotations

import msgspec
import pytest
import torch
import torch.nn.functional as F

from foretell.model.source import load
from foretell.plan.job import make_job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.program.expand import expand
from foretell.program.lower import lower

B, S, H, W, V, LAYERS = 2, 32, 64, 96, 50, 3
T = B * S
LLAMA = f"llama:layers={LAYERS},hidden={H},heads=4,kv_heads=2,ffn={W},vocab={V},seq={S},dtype=bf16"
MIXTURE = f"mixture:layers=2,hidden={H},heads=4,kv_heads=2,ffn={W},vocab={V},seq={S},experts=4,dtype=bf16"


def setting(model: str, precision: str = "bf16", **kept: str) -> Setting:
    runs = trainer("pytorch")
    runs = msgspec.structs.replace(runs, kept=msgspec.structs.replace(runs.kept, **kept))
    return Setting(load(model, B), make_job(B, trainer="pytorch"), parse(f"dp1 +{precision}"), runs)


def less(model: str, precision: str = "bf16", **kept: str) -> float:
    """Bytes that a kernel does not keep."""
    eager, fused = (expand(lower(setting(model, precision, **one))).stages[0].memory.kept for one in ({}, kept))
    return eager - fused


def test_fused_swiglu_keeps_its_inputs() -> None:
    """silu(gate) goes; gate, up, and the product that the last layer reads stay."""
    assert less(LLAMA, gated="inputs") == LAYERS * T * W * 2


def test_a_fused_swiglu_in_torch_keeps_as_much_less() -> None:
    class Fused(torch.autograd.Function):
        @staticmethod
        def forward(context: torch.autograd.function.FunctionCtx, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
            context.save_for_backward(gate, up)
            return F.silu(gate) * up

    def saved(function: object) -> int:
        found: dict[int, int] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        gate, up = (torch.randn(T, W, requires_grad=True) for _ in range(2))
        down = torch.randn(H, W, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            assert callable(function)
            F.linear(function(gate, up), down).sum()
        return sum(found.values())

    assert saved(lambda gate, up: F.silu(gate) * up) - saved(Fused.apply) == T * W * 4


@pytest.mark.parametrize(("loss", "each"), [("softmax", 0), ("logits", 2)])
def test_losses_in_place(loss: str, each: int) -> None:
    """PyTorch keeps log-softmax in fp32; Megatron as much of the softmax; others the logits in 16 bits."""
    assert less(LLAMA, loss=loss) == T * V * each


@pytest.mark.parametrize(("loss", "most"), [("logarithms", 4 + 4), ("softmax", 4 + 2), ("logits", 2)])
def test_what_a_loss_has_at_most(loss: str, most: int) -> None:
    """Beside what layers keep: log-softmax and its gradient; softmax and logits; logits."""
    vocab = 60_000
    asked = setting(LLAMA.replace(f"vocab={V}", f"vocab={vocab}"), loss=loss)
    asked = msgspec.structs.replace(
        asked, trainer=msgspec.structs.replace(asked.trainer, tensor=trainer("megatron-core").tensor)
    )
    memory = expand(lower(asked)).stages[0].memory
    assert max(memory.forward_peak, memory.backward_peak) == pytest.approx(T * vocab * most, rel=0.06)


def test_experts_weighted_inside_their_activation_keep_no_outputs() -> None:
    """Of two experts for each token."""
    assert less(MIXTURE, weighted="inside") == 2 * (2 * T * H * 2)


@pytest.mark.parametrize(
    ("precision", "each"), [("bf16", 0), ("fp8", 1), ("mxfp8", 2 - 33 / 32), ("nvfp4", 2 - 9 / 16)]
)
def test_inputs_of_products_in_few_bits(precision: str, each: float) -> None:
    """Both norms' outputs and what the feed-forward's last product reads; attention keeps its output itself."""
    assert less(LLAMA, precision, low="cast") == pytest.approx(LAYERS * T * (2 * H + W) * each)


@pytest.mark.parametrize("name", ["megatron-core", "nemo", "llm-foundry", "megatron-lm-2021"])
def test_trainers_differ_from_pytorch_by_their_source(name: str) -> None:
    runs, usual = trainer(name), trainer("pytorch")
    own = [key for key, value in msgspec.structs.asdict(runs.kept).items() if value != getattr(usual.kept, key)]
    assert own and all(runs.source(f"kept.{key}") != usual.source(f"kept.{key}") for key in own)
