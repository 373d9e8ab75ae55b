"""LoRA: trained parameters as published and by hand, and work as PyTorch counts it on a real module."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from agreement import Measured, measure_module
from foretell import modules
from foretell.hardware.catalog import cluster
from foretell.model.adapters import adapted
from foretell.model.fold import unfold
from foretell.model.gradients import as_trained
from foretell.model.graph import Graph, Tensor, check
from foretell.model.importers.torch_trace import trace
from foretell.model.quantized import FORMATS
from foretell.model.totals import totals
from foretell.oracle.predict import Prediction, predict
from foretell.oracle.predicted import predicted as answered
from foretell.oracle.request import read
from foretell.plan.fitness import refusals
from foretell.plan.job import Job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trained import as_trained_by
from foretell.plan.trainer import trainer
from program_cases import load, program

LLAMA = "llama:layers=3,hidden=64,heads=4,kv_heads=2,head_dim=16,ffn=96,vocab=128,seq=32"
GPT = "gpt:layers=3,hidden=64,heads=4,vocab=128,seq=32"
VIT = "vit:layers=3,hidden=64,heads=4,image=32,patch=8,classes=10"
MIXTURE = "mixture:layers=2,hidden=64,heads=4,kv_heads=4,head_dim=16,ffn=48,vocab=128,seq=32,experts=4,top_k=2"


def test_llama3_8b_by_hand() -> None:
    """Rank 16: a weight of rows x columns has 16 (rows + columns); query and output, key and value, three of ffn."""
    hidden, keys, ffn = 4096, 8 * 128, 14336
    each = 2 * (hidden + hidden) + 2 * (hidden + keys) + 3 * (hidden + ffn)
    found = totals(adapted(load("llama3-8b", 1), 16))
    assert found.trainable == 32 * 16 * each == 41_943_040
    assert found.parameters == 8_030_261_248 + 41_943_040 == 8_072_204_288  # as PEFT prints it


@pytest.mark.parametrize(
    ("model", "rank", "only", "trained"),
    [
        # PEFT's print_trainable_parameters for Llama-2-7B: its default layers at rank 8, all linear ones at 64
        ("llama2-7b", 8, ("query", "value"), 4_194_304),
        ("llama2-7b", 64, (), 159_907_840),
        # meta-llama/llama-cookbook issue 814: k_proj and q_proj of Llama-3.2-3B; 3,215,043,584 in all
        ("llama3.2-3b", 8, ("query", "key"), 2_293_760),
        # by hand: query, key and value in one weight
        ("gpt2", 4, ("qkv",), 12 * 4 * (768 + 3 * 768)),
    ],
)
def test_published_counts(model: str, rank: int, only: tuple[str, ...], trained: int) -> None:
    found = totals(adapted(load(model, 1), rank, only))
    assert found.trainable == trained
    if model == "llama3.2-3b":
        assert found.parameters == 3_215_043_584


class Adapted(nn.Module):
    """y = W x + s B A x, as PEFT and torchtune write it."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.lora_a = nn.Linear(base.in_features, rank, bias=False)
        self.lora_b = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.lora_b(self.lora_a(x)) * 2.0


def with_adapters(module: nn.Module, rank: int, kind: type[Adapted], inside: bool = False) -> None:
    """Every dense layer of a numbered item gets one."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear) and inside and "router" not in name:
            setattr(module, name, kind(child, rank))
        else:
            with_adapters(child, rank, kind, inside or name.isdigit())


Real: TypeAlias = tuple[nn.Module, tuple[torch.Tensor, ...], Callable[..., torch.Tensor]]


def real(spec: str, rank: int, batch: int, kind: type[Adapted] = Adapted) -> Real:
    module, sample = modules.build(spec), modules.example(spec, batch)
    module.requires_grad_(False)
    with_adapters(module, rank, kind)
    return module, sample.inputs, lambda y: sample.loss(y, sample.target)


def measured(spec: str, rank: int, batch: int, kind: type[Adapted] = Adapted) -> Measured:
    with FakeTensorMode():
        return measure_module(*real(spec, rank, batch, kind))


@pytest.mark.parametrize("spec", [LLAMA, GPT, VIT])
def test_work_is_what_pytorch_counts(spec: str) -> None:
    """Frozen layers have the gradient of their input at most, and none before the first adapter."""
    ours, theirs = totals(adapted(load(spec, 2), 4)), measured(spec, 4, 2)
    assert ours.parameters == theirs.parameters
    assert ours.forward.matrix == theirs.forward_flops
    assert ours.backward.matrix == theirs.backward_flops
    assert ours.saved_bytes == pytest.approx(theirs.saved_bytes, rel=0.02)


def test_a_traced_module_with_its_own_adapters_is_the_same() -> None:
    with FakeTensorMode():
        traced = trace(*real(LLAMA, 4, 2))
    ours = adapted(load(LLAMA, 2), 4)
    assert totals(traced).trainable == totals(ours).trainable
    for part in ("forward", "input_gradient", "weight_gradient"):
        assert getattr(totals(traced), part).matrix == getattr(totals(ours), part).matrix


@pytest.mark.parametrize("spec", [LLAMA, GPT, VIT, MIXTURE])
def test_a_traced_module_gets_the_adapters_of_the_zoo(spec: str) -> None:
    with FakeTensorMode():
        module, sample = modules.build(spec), modules.example(spec, 2)
        traced = trace(module, sample.inputs, lambda y: sample.loss(y, sample.target))
    one, other = totals(adapted(traced, 4)), totals(adapted(load(spec, 2), 4))
    assert one.trainable == other.trainable
    for part in ("forward", "input_gradient", "weight_gradient"):
        assert getattr(one, part).matrix == getattr(other, part).matrix
    assert one.saved_bytes == pytest.approx(other.saved_bytes, rel=0.02)


@pytest.mark.parametrize("spec", [LLAMA, GPT, VIT, MIXTURE, "bert:layers=2", "t5:layers=2", "resnet18", "lstm"])
def test_what_is_trained_as_before_has_the_gradients_it_had(spec: str) -> None:
    """The rule for gradients of frozen models finds those of a model that is trained whole."""
    flat = unfold(load(spec, 2).blocks)
    assert as_trained(flat, flat) == flat


@pytest.mark.parametrize("spec", [LLAMA, GPT, VIT, MIXTURE])
def test_adapters_are_all_that_is_trained(spec: str) -> None:
    graph = adapted(load(spec, 2), 4)
    check(graph)
    names = {t.name.rpartition(".")[0].rpartition(".")[2] for t in tensors(graph) if t.trainable}
    assert names == {"lora_a", "lora_b"}
    assert not any("head" in t.name or "router" in t.name for t in tensors(graph) if t.trainable)
    # all but the first layer are equal, and still one block
    assert max(block.times for block in graph.blocks) == max(block.times for block in load(spec, 2).blocks) - 1


def tensors(graph: Graph) -> list[Tensor]:
    return [tensor for block in graph.blocks for tensor in block.tensors]


def test_the_rank_is_the_policys() -> None:
    graph = load(LLAMA, 2)
    four, eight = (totals(as_trained_by(parse(f"dp1 +lora{rank}"), graph)).trainable for rank in (4, 8))
    assert as_trained_by(parse("dp1"), graph) is graph
    assert eight == 2 * four


def test_embeddings_are_trained_as_a_whole() -> None:
    """Llama-3 8B: tables of 128,256 x 4,096, one read by the first layer and one by the loss, beside all adapters."""
    found = totals(as_trained_by(parse("dp1 +lora16 +adapt:embeddings"), load("llama3-8b", 1)))
    assert found.trainable == 41_943_040 + 2 * 128_256 * 4_096


def test_weights_in_4_bits_by_hand() -> None:
    """What QLoRA says of Llama-3 8B: dense weights of layers take 4.5 bits, 4.127 with scales in 8; the rest 16."""
    layers = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    others = 8_030_261_248 - layers + 41_943_040  # tables, norms, adapters
    for form, bits in (("nf4", 4.5), ("nf4-dq", 4 + 8 / 64 + 32 / (64 * 256))):
        made = program("llama3-8b", f"dp1 +bf16:pure +lora16 +{form}", 1)
        assert made.stages[0].memory.weights == pytest.approx(layers * bits / 8 + others * 2, rel=1e-12)
    assert bits == pytest.approx(4.127, abs=1e-3)  # section 3: 0.373 bits less


def predicted(plan: str) -> Prediction:
    return predict(Setting(load("llama3-8b", 1), Job(batch=1), parse(plan), trainer("pytorch")), cluster("a100-80"))


@pytest.mark.parametrize("form", [form for form, one in FORMATS.items() if not one.products])
def test_few_bits_save_memory_and_cost_time(form: str) -> None:
    wide, narrow = (predicted(f"dp1 +recompute:block +bf16:pure +lora16{more}") for more in ("", f" +{form}"))
    assert narrow.memory.by_kind["weights"] < (0.6 if form == "int8" else 0.4) * wide.memory.by_kind["weights"]
    assert narrow.memory_bytes < wide.memory_bytes
    assert narrow.step_seconds > wide.step_seconds


def test_weights_in_8_bits_are_read_as_they_lie() -> None:
    """NeMo's fp8_params: a byte for each weight of a layer, and no kernel that widens it; 16-bit products cannot."""
    asked = "dp1 +recompute:block +fp8 +lora16"
    wide, narrow = (
        predict(Setting(load("llama3-8b", 1), Job(batch=1), parse(f"{asked}{more}"), trainer("nemo")), cluster("h100"))
        for more in ("", " +fp8-weights")
    )
    layers = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    assert wide.memory.by_kind["weights"] - narrow.memory.by_kind["weights"] == layers
    assert narrow.step_seconds == pytest.approx(wide.step_seconds, rel=1e-6)
    found = Setting(load("llama3-8b", 1), Job(batch=1), parse("dp1 +bf16 +lora16 +fp8-weights"), trainer("nemo"))
    assert any("products in fp8 alone" in one.why for one in refusals(found))


def test_shares_of_weights_in_4_bits_travel_in_4_bits() -> None:
    wide, narrow = (
        [m for m, _ in made.communications(made.kinds[0]) if m.what == "weights" and m.path.startswith("layers.1")]
        for made in (program("llama3-8b", f"dp8:zero3 +bf16:pure +lora16{more}", 8, "fsdp") for more in ("", " +nf4"))
    )
    adapters = 16 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336))
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    norms = 2 * 4096
    assert wide[0].payload * 8 == 2 * (layer + adapters + norms)
    assert narrow[0].payload * 8 == 0.5625 * layer + 2 * (adapters + norms)


def test_forms_and_targets_are_those_of_adapters() -> None:
    for text, said in (("dp1 +nf4", "without adapters"), ("dp1 +adapt:attention", "the plan has none")):
        setting = Setting(load(LLAMA, 2), Job(batch=2), parse(text), trainer("pytorch"))
        (refused,) = refusals(setting)
        assert refused.rule == "adapters" and said in refused.why


def test_a_rank_over_that_of_every_weight_is_refused() -> None:
    """The widest adapted weight of this model is 96 x 64: an adapter of rank 65 is no longer thin beside any."""
    graph = load(LLAMA, 2)
    assert not [*refusals(Setting(graph, Job(batch=2), parse("dp1 +lora64"), trainer("pytorch")))]
    (refused,) = refusals(Setting(graph, Job(batch=2), parse("dp1 +lora65"), trainer("pytorch")))
    assert refused.rule == "adapters" and "rank over 64" in refused.why


# Adapters in fp32


def _on_an_h200(words: str) -> tuple[Graph, Prediction]:
    plan = f"dp1 {words}"
    asked, found = answered(read(model="llama3.2-1b", on="1xh200", plan=plan, batch=4, seq=1024))
    return as_trained_by(asked.setting.plan, asked.setting.graph), found


def test_wide_adapters_read_a_copy_in_fp32_and_give_back_16_bits() -> None:
    """PEFT 0.21: x.to(fp32), two products, a scaling, a sum with the layer's own output, and a cast back."""
    wide = unfold(_on_an_h200("+bf16:pure +lora16 +fp32-adapters")[0].blocks)
    thin = [node for node in wide.nodes if node.path.endswith((".lora_a", ".lora_b"))]
    assert len(thin) == 16 * 7 * 2
    for node in thin:
        assert {wide.tensors[operand.tensor].dtype for operand in node.inputs} == {"fp32"}
        assert wide.tensors[node.outputs[0]].dtype == "fp32"
    usual = unfold(_on_an_h200("+bf16:pure +lora16")[0].blocks)
    assert len(wide.nodes) - len(usual.nodes) == 2 * 16 * 7  # a cast before and one behind each adapter
    heads = [node for node in wide.nodes if node.operator.priced_as == "cross_entropy"]
    assert len(heads) == 1 and totals(_on_an_h200("+bf16:pure +lora16 +fp32-adapters")[0]).trainable == 11_272_192


def test_wide_adapters_cost_what_is_wide() -> None:
    """Copies are kept for the backward pass: 4 bytes of what each of seven layers reads, in 16 layers, instead of 2 of
    what three groups of them share (what attention makes is kept by attention as well)."""
    (_, usual), (_, wide) = (_on_an_h200(f"+bf16:pure +lora16{word}") for word in ("", " +fp32-adapters"))
    copies = 4 * 1024 * 16 * (4 * (6 * 2048 + 8192) - 2 * (2 * 2048 + 8192))
    assert wide.memory.allocated - usual.memory.allocated == pytest.approx(copies, rel=0.02)
    assert wide.step_seconds > 1.2 * usual.step_seconds


@pytest.mark.parametrize("precision", ["+fp32", "+amp_bf16"])
def test_wide_adapters_of_wide_weights_change_nothing(precision: str) -> None:
    (_, usual), (_, wide) = (_on_an_h200(f"{precision} +lora16{word}") for word in ("", " +fp32-adapters"))
    assert (wide.step_seconds, wide.memory_bytes) == (usual.step_seconds, usual.memory_bytes)


def test_sums_of_gradients_are_no_wide_product() -> None:
    """A thin product in 16 bits whose input's gradient is summed with others may move as many bytes as a wide one."""
    from foretell.cost.kernels.matmul import multiplied_in
    from foretell.model.operator import OperatorPart
    from foretell.plan.policies.precision import FORMATS
    from foretell.program.action import Compute

    loops = {"batch": 1, "row": 4096, "in": 2048, "out": 16}
    sizes = 4096 * 2048, 2048 * 16, 4096 * 16
    for path, taken, given, wide in (
        ("layers.0.attention.query.lora_a", 4 * (sizes[1] + sizes[2]), 4 * sizes[0], True),
        ("layers.0.attention.query.lora_a", 2 * (sizes[1] + sizes[2]) + 4 * sizes[0], 4 * sizes[0], False),
        ("layers.0.attention.query", 4 * (sizes[1] + sizes[2]), 4 * sizes[0], False),
    ):
        action = Compute(path, "matmul", "input_gradient", loops, OperatorPart(read=taken, written=given))
        form = FORMATS["bf16:pure"]
        assert (multiplied_in(action, form) is not form) == wide


# DoRA


class Decomposed(Adapted):
    """As PEFT 0.21.2 writes it (tuners/lora/dora.py, without dropout); it forgets what the lengths kept at once."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__(base, rank)
        self.magnitude = nn.Parameter(torch.ones(base.out_features, dtype=base.weight.dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        base = self.base(x)
        with torch.no_grad():
            merged = self.lora_b(self.lora_a(torch.eye(x.shape[-1], dtype=x.dtype))).T
            lengths = torch.linalg.norm(self.base.weight + 2.0 * merged, dim=1)
        factor = self.magnitude / lengths
        plain = base if self.base.bias is None else base - self.base.bias
        return base + ((factor - 1) * plain + factor * self.lora_b(self.lora_a(x)) * 2.0)


@pytest.mark.parametrize("spec", [LLAMA, GPT, VIT])
def test_dora_is_what_pytorch_counts(spec: str) -> None:
    ours, theirs = totals(adapted(load(spec, 2), 4, magnitudes=True)), measured(spec, 4, 2, Decomposed)
    assert ours.parameters == theirs.parameters
    assert ours.forward.matrix == theirs.forward_flops
    assert ours.backward.matrix == theirs.backward_flops
    assert ours.saved_bytes == pytest.approx(theirs.saved_bytes, rel=0.02)
