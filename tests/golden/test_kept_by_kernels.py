"""What trainers' kernels keep for the backward pass, by hand: fused SwiGLU, losses in place, casts to few bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from foretell.model.operators.matmul import piece_rows
from foretell.model.source import load
from foretell.oracle.request import Request
from foretell.oracle.resolve import resolve
from foretell.plan.job import make_job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.program.expand import expand
from foretell.program.expanded import StageMemory
from foretell.program.lower import lower
from foretell.program.verify import verify

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
    alone = trainer("megatron-core")
    asked = msgspec.structs.replace(
        asked, trainer=msgspec.structs.replace(asked.trainer, tensor=alone.tensor, memory=alone.memory)
    )
    memory = expand(lower(asked)).stages[0].memory
    assert max(memory.forward_peak, memory.backward_peak) == pytest.approx(T * vocab * most, rel=0.06)


@pytest.mark.parametrize(("words", "most"), [("", 4 + 4 + 4), (" +compiled", 2 + 2)])
def test_the_loss_of_torchtitan_on_whole_rows(words: str, most: int) -> None:
    """F.cross_entropy: log-softmax, zeros with the rows' gradients, theirs; compiled its logits and their gradient."""
    vocab = 60_000
    asked = resolve(
        Request(
            model=LLAMA.replace(f"vocab={V}", f"vocab={vocab}"),
            plan=parse(f"dp1 +bf16{words}"),
            batch=B,
            trainer="torchtitan",
        )
    )
    memory = expand(lower(asked.setting)).stages[0].memory
    assert memory.backward_peak == pytest.approx(T * vocab * most, rel=0.06)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own modules, as they are imported
def test_what_a_compiled_loss_saves_in_torch() -> None:
    def loss(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.float(), wanted, reduction="sum")

    saved: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor

    logits = torch.randn(T, V, dtype=torch.bfloat16, requires_grad=True)
    run = torch.compile(loss, backend="aot_eager_decomp_partition")
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run(logits, torch.randint(V, (T,)))
    assert sum(tensor.numel() * 2 for tensor in saved if tensor.dtype == torch.bfloat16) == T * V * 2
    assert sum(tensor.numel() for tensor in saved if tensor.dtype == torch.float32) == 2 * T


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


WIDE = 60_000


def chunked(words: str, **kept: str) -> tuple[StageMemory, float]:
    """A stage's memory, and its matrix work, of a plan whose loss is as the trainer has it, or in chunks."""
    asked = setting(LLAMA.replace(f"vocab={V}", f"vocab={WIDE}"), **kept)
    asked = msgspec.structs.replace(asked, plan=parse(f"dp1 +bf16{words}"))
    program = expand(lower(asked))
    assert not verify(program, asked.graph)
    done = (action.cost.matrix * times for kind in program.kinds for action, times in program.computations(kind))
    return program.stages[0].memory, sum(done)


def test_a_loss_in_chunks_has_one_piece_of_the_logits() -> None:
    """Log-softmax of all rows, zeros with their gradients and theirs go; a piece of 16-bit logits stays, of which there
    is as much as of the hidden state, or up to twice."""
    eager, pieces = (chunked(words)[0] for words in ("", " +loss:chunks"))
    rows = piece_rows(T, H, WIDE)
    assert rows == 1 and T * H * 2 <= piece_rows(T * 64, H, WIDE) * WIDE * 2 / 64 <= 2 * T * H * 2
    assert eager.kept - pieces.kept == T * WIDE * 4 + 4 - rows * WIDE * 2
    assert eager.backward_peak - pieces.backward_peak == pytest.approx(T * WIDE * (4 + 4 + 4), rel=0.01)


def test_a_loss_in_chunks_runs_nothing_again() -> None:
    assert chunked("")[1] == chunked(" +loss:chunks")[1]


def test_chunks_made_twice_multiply_once_more_and_keep_what_chunks_keep() -> None:
    """As TRL's do: what a piece's logits were is made again in the backward pass."""
    once, twice = (chunked("", loss=loss) for loss in ("chunks", "chunks twice"))
    assert once[1] == chunked("")[1]
    assert twice[1] - once[1] == 2 * T * H * WIDE
    assert twice[0] == once[0]


class Chunked(torch.autograd.Function):
    """The products and the loss a piece at a time: all gradients are made in the forward pass."""

    @staticmethod
    def forward(
        context: torch.autograd.function.FunctionCtx,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        wanted: torch.Tensor,
        rows: int,
    ) -> torch.Tensor:
        back, of_weight = torch.empty_like(hidden), torch.zeros_like(weight)
        loss = hidden.new_zeros(())
        for start in range(0, len(hidden), rows):
            piece, right = hidden[start : start + rows], wanted[start : start + rows]
            logits = piece @ weight.T
            made = logits.log_softmax(-1)
            loss += F.nll_loss(made, right, reduction="sum")
            slope = made.exp()
            slope[torch.arange(len(right)), right] -= 1
            back[start : start + rows] = slope @ weight
            of_weight += slope.T @ piece
        context.save_for_backward(back, of_weight)
        return loss

    @staticmethod
    def backward(context: Any, *slopes: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        back, of_weight = context.saved_tensors
        return back * slopes[0], of_weight * slopes[0], None, None


def test_what_a_loss_in_chunks_computes_and_saves_in_torch() -> None:
    """Equal gradients, the same products, and between the passes two gradients instead of a row for each token."""
    torch.manual_seed(0)
    hidden, weight = torch.randn(T, H, requires_grad=True), torch.randn(V, H, requires_grad=True)
    wanted = torch.randint(V, (T,))

    def taken(run: Callable[[], torch.Tensor]) -> tuple[list[torch.Tensor], int, set[tuple[int, ...]]]:
        saved: set[tuple[int, ...]] = set()

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            saved.add(tuple(tensor.shape))
            return tensor

        hidden.grad = weight.grad = None
        with FlopCounterMode(display=False) as counter, torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one):
            run().backward()
        assert hidden.grad is not None and weight.grad is not None
        return [hidden.grad, weight.grad], counter.get_total_flops(), saved

    plain = taken(lambda: F.cross_entropy(F.linear(hidden, weight), wanted, reduction="sum"))
    pieces = taken(lambda: cast(torch.Tensor, Chunked.apply(hidden, weight, wanted, 16)))
    for one, other in zip(plain[0], pieces[0], strict=True):
        torch.testing.assert_close(one, other)
    assert plain[1] == pieces[1] == 3 * 2 * T * H * V
    assert (T, V) in plain[2] and pieces[2] == {(T, H), (V, H)}
