"""Whole steps of small models, as their users build and wrap them: both passes, without an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.utils.checkpoint import checkpoint

LAYERS, WIDTH, HEADS, SEQ, VOCAB = 4, 128, 8, 16, 256


class Model(NamedTuple):
    """A module, what goes in, its repeated layers, and the names of what tensor parallelism cuts."""

    module: nn.Module
    inputs: tuple[torch.Tensor, ...]
    layers: nn.ModuleList | None = None
    names: Mapping[str, str] = MappingProxyType({})


LLAMA = {
    "column": "self_attn.q_proj self_attn.k_proj self_attn.v_proj mlp.gate_proj mlp.up_proj",
    "row": "self_attn.o_proj mlp.down_proj",
}
ZOO = {
    "attention": "attention",
    "column": "attention.query attention.key attention.value feed_forward.gate feed_forward.up",
    "row": "attention.output feed_forward.down",
    "norms": "attention_norm feed_forward_norm",
    "ffn": "feed_forward",
}
SHORT = {
    "llama": f"llama:layers={LAYERS},hidden={WIDTH},heads={HEADS},kv_heads={HEADS},ffn=256,vocab={VOCAB},seq={SEQ}",
    "gpt2": f"gpt2:layers={LAYERS},hidden={WIDTH},heads={HEADS},vocab={VOCAB},seq={SEQ}",
    "bert": f"bert-base:layers={LAYERS},hidden={WIDTH},heads={HEADS},vocab={VOCAB},seq={SEQ}",
    "resnet50": "resnet50:image=64,classes=10",
    "vit": f"vit-b16:layers={LAYERS},hidden={WIDTH},heads={HEADS},image=32,patch=8,classes=10",
    "convnext": "convnext-tiny:image=64,classes=10",
    "densenet": "densenet121:image=64,classes=10",
    "mobilenet": "mobilenet-v2:image=64,classes=10",
}

BATCH = dict.fromkeys(("resnet50", "densenet", "mobilenet", "convnext"), 2)


def zoo(name: str, device: str, kind: torch.dtype) -> Model:
    from foretell import modules

    made, given = modules.build(SHORT[name]), modules.example(SHORT[name], BATCH.get(name, 1))
    inputs = tuple(one.to(device, kind) if one.is_floating_point() else one.to(device) for one in given.inputs)
    layers = getattr(made, "layers", None)
    return Model(made.to(device, kind), inputs, layers, ZOO if name == "llama" else {})


def hugging(name: str, device: str, kind: torch.dtype) -> Model:
    import transformers as tf

    sizes: dict[str, Any] = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    inner = {"intermediate_size": 256, "vocab_size": VOCAB, "max_position_embeddings": 64}
    heads = {"num_key_value_heads": HEADS, "head_dim": WIDTH // HEADS}
    gpt = {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "vocab_size": VOCAB, "n_positions": 64}
    made: Any
    match name:
        case "llama":
            made = tf.LlamaForCausalLM(tf.LlamaConfig(**sizes, **inner, num_key_value_heads=HEADS))
        case "qwen3":
            made = tf.Qwen3ForCausalLM(tf.Qwen3Config(**sizes, **inner, **heads))
        case "gpt2":
            made = tf.GPT2LMHeadModel(tf.GPT2Config(**gpt))
        case "bert":
            made = tf.BertForMaskedLM(tf.BertConfig(**sizes, **inner))
        case "gemma2":
            made = tf.Gemma2ForCausalLM(tf.Gemma2Config(**sizes, **inner, **heads))
        case _:
            made = tf.ViTForImageClassification(
                tf.ViTConfig(**sizes, intermediate_size=256, image_size=32, patch_size=8)
            )
    made = made.to(device, kind).train()
    if name == "vit":
        return Model(made, (torch.rand(1, 3, 32, 32, device=device, dtype=kind),))
    body = getattr(made, "model", None) or getattr(made, "transformer", None) or made.bert.encoder
    layers = getattr(body, "layers", None) or getattr(body, "h", None) or body.layer
    tokens = torch.randint(VOCAB, (1, SEQ), device=device)
    return Model(made, (tokens,), layers, LLAMA if name in ("llama", "qwen3") else {})


class Case(NamedTuple):
    """A model and how it is wrapped; words joined by +."""

    source: str
    model: str
    how: str

    @property
    def name(self) -> str:
        return f"{self.source} {self.model} {self.how}"


ZOO_CASES = "llama gpt2 bert vit resnet50 convnext densenet mobilenet"
HF_CASES = "llama qwen3 gpt2 bert vit gemma2"
WRAPPED = "tp tp+rows fsdp tp+fsdp tp+rows+fsdp recompute fsdp+recompute tp+fsdp+recompute autocast fsdp+mixed"


def cases() -> Iterator[Case]:
    for source, names in (("zoo", ZOO_CASES), ("hf", HF_CASES)):
        for name in names.split():
            yield Case(source, name, "plain")
    for source, name in (("zoo", "llama"), ("hf", "llama"), ("hf", "qwen3")):
        for how in WRAPPED.split():
            if source == "zoo" or "rows" not in how:  # Hugging Face's positions come from the share's own length
                yield Case(source, name, how)
    for source, name in (("zoo", "gpt2"), ("hf", "gpt2"), ("hf", "bert")):
        for how in ("fsdp", "recompute", "autocast"):
            yield Case(source, name, how)
    yield Case("zoo", "resnet50", "autocast")
    for source in ("zoo", "hf"):
        yield Case(source, "llama", "compiled")


def build(case: Case, device: str) -> Callable[[], torch.Tensor]:
    """The forward pass, down to one number."""
    words = case.how.split("+")
    kind = torch.float32 if {"autocast", "mixed"} & set(words) else torch.bfloat16
    model = (zoo if case.source == "zoo" else hugging)(case.model, device, kind)
    mesh = init_device_mesh(device, (8, 8), mesh_dim_names=("dp", "tp"))
    if "tp" in words:
        _cut(model, mesh["tp"], "rows" in words)
    for layer in model.layers or ():
        if "recompute" in words:
            layer.forward = _again(layer.forward)
        if "compiled" in words:
            layer.compile()
        if "fsdp" in words:
            _share(layer, mesh["dp"], "mixed" in words)
    if "fsdp" in words:
        _share(model.module, mesh["dp"], "mixed" in words)

    def forward() -> torch.Tensor:
        if "autocast" in words:
            with torch.autocast(device, torch.bfloat16):
                made = model.module(*model.inputs)
        else:
            made = model.module(*model.inputs)
        logits = getattr(made, "logits", made)
        return logits.float().mean()

    forward.module = model.module  # type: ignore[attr-defined]
    return forward


def _again(forward: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given, **named: checkpoint(forward, *given, use_reentrant=False, **named)


def _share(module: nn.Module, mesh: Any, mixed: bool) -> None:
    if mixed:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        fully_shard(module, mesh=mesh, mp_policy=policy)
    else:
        fully_shard(module, mesh=mesh)


def _cut(model: Model, mesh: Any, rows: bool) -> None:
    """Tensor parallelism; with `rows`, norms in shares of the sequence as torchtitan has them."""
    names = model.names
    plan: dict[str, Any] = {name: ColwiseParallel() for name in names["column"].split()}
    plan |= {name: RowwiseParallel(output_layouts=Shard(1) if rows else Replicate()) for name in names["row"].split()}
    if rows:
        plan |= {name: SequenceParallel() for name in names["norms"].split()}
        plan |= {names["attention"]: _gathered(2), names["ffn"]: _gathered(0)}
    for layer in model.layers or ():
        parallelize_module(layer, mesh, plan)
    if rows:
        _ends(model, mesh)


def _gathered(others: int) -> PrepareModuleInput:
    """The first input gathered, so many others as they are."""
    rest = (None,) * others
    return PrepareModuleInput(input_layouts=(Shard(1), *rest), desired_input_layouts=(Replicate(), *rest))


def _ends(model: Model, mesh: Any) -> None:
    """The embedding hands out shares of the sequence, the head takes them."""
    parallelize_module(
        model.module,
        mesh,
        {
            "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        },
    )
