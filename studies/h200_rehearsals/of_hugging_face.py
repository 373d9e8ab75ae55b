"""Hugging Face's language models: built without memory, cut by `parallelize_module`, `fully_shard` or DDP, filled."""

from __future__ import annotations

import functools
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from cases import Case
from subjects import Mark, Step, axes, filled, optimizer, plain, policy
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from transformers import AutoModelForCausalLM, LlamaConfig, MixtralConfig, Qwen3Config, Qwen3MoeConfig

from foretell.model import zoo
from foretell.plan.setting import Setting


def config(model: str) -> Any:
    """Hugging Face's words for a model of the zoo."""
    fields = plain(zoo.parse(model)[1])
    said: dict[str, Any] = {
        "hidden_size": fields["hidden"], "num_hidden_layers": fields["layers"],
        "num_attention_heads": fields["heads"], "num_key_value_heads": fields["kv_heads"] or fields["heads"],
        "intermediate_size": fields["ffn"], "vocab_size": fields["vocab"],
        "max_position_embeddings": 131072, "tie_word_embeddings": fields["tied"], "use_cache": False,
    }  # fmt: skip
    if fields["head_dim"]:
        said["head_dim"] = fields["head_dim"]
    if "experts" in fields and not fields["qk_norm"]:
        return MixtralConfig(num_local_experts=fields["experts"], num_experts_per_tok=fields["top_k"], **said)
    if "experts" in fields:
        more = {"num_experts": fields["experts"], "num_experts_per_tok": fields["top_k"]}
        return Qwen3MoeConfig(
            moe_intermediate_size=fields["ffn"], norm_topk_prob=True, decoder_sparse_step=1, **more, **said
        )
    return (Qwen3Config if fields["qk_norm"] else LlamaConfig)(**said)


def step(case: Case, setting: Setting, device: str) -> Step:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config(case.model), attn_implementation="sdpa")
    model.train()
    own = axes(case)
    mesh, names = meshes(own, device)
    if "tp" in own:
        cut(model, mesh["tp"], own["tp"].sequence)
    again(model, policy(case, "recompute"))
    if policy(case, "compiled"):
        for layer in model.model.layers:
            layer.compile()
    data = own["dp"]
    autocast: Any = nullcontext()
    if data.storage in ("zero2", "zero3"):
        shard(model, mesh[tuple(names)] if len(names) > 1 else mesh[names[0]], data.storage == "zero3")
        model = filled(model, device)
        tie(model)
        update = optimizer(case, list(model.parameters()))
    else:
        model = filled(model, device)
        tie(model)
        whole = DistributedDataParallel(model, process_group=mesh["dp"].get_group())
        autocast = functools.partial(torch.autocast, device, torch.bfloat16)
        update = (
            ZeroRedundancyOptimizer(
                model.parameters(), torch.optim.AdamW, process_group=mesh["dp"].get_group(), lr=1e-5
            )
            if data.storage == "zero1"
            else optimizer(case, list(model.parameters()))
        )
        model = whole
    rows = case.batch // (data.ranks * (data.shard or 1))
    tokens = torch.randint(config(case.model).vocab_size, (rows, case.seq), device=device)
    places = torch.arange(case.seq, device=device).unsqueeze(0)
    labels = tokens.clone()
    in_shares = "tp" in own

    def once(mark: Mark) -> None:
        with autocast() if callable(autocast) else autocast:
            if in_shares:  # Hugging Face's own loss shifts and pads; shares of a sequence have whole logits again
                logits = model(input_ids=tokens, position_ids=places).logits
                loss = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
                del logits
            else:
                loss = model(input_ids=tokens, labels=labels).loss
        mark("forward")
        loss.backward()
        mark("backward")
        update.step()
        update.zero_grad()
        mark("optimizer")

    return once


def meshes(own: dict[str, Any], device: str) -> tuple[DeviceMesh, list[str]]:
    """Torch's mesh of a plan, and the dims along which weights are shared out."""
    data = own["dp"]
    sizes = {"dp": data.ranks, **({"shard": data.shard} if data.shard else {})}
    names = list(sizes)
    if "tp" in own:
        sizes["tp"] = own["tp"].ranks
    return init_device_mesh(device, tuple(sizes.values()), mesh_dim_names=tuple(sizes)), names


def tie(model: nn.Module) -> None:
    """Weights that two layers share are shared again, now that they have memory."""
    if getattr(model.config, "tie_word_embeddings", False):
        model.lm_head.weight = model.model.embed_tokens.weight


def cut(model: Any, mesh: DeviceMesh, in_shares: bool) -> None:
    """Columns first, rows second; with sequence parallelism shares of the sequence between layers."""
    rows: Any = RowwiseParallel(output_layouts=Shard(1)) if in_shares else RowwiseParallel()
    plan: dict[str, Any] = {f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"}
    plan |= {"self_attn.o_proj": rows, "mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel()}
    plan["mlp.down_proj"] = rows
    if in_shares:
        plan |= {"input_layernorm": SequenceParallel(), "post_attention_layernorm": SequenceParallel()}
        whole: dict[str, Any] = {"hidden_states": Replicate()}
        plan["self_attn"] = PrepareModuleInput(
            input_kwarg_layouts={"hidden_states": Shard(1)}, desired_input_kwarg_layouts=whole
        )
        plan["mlp"] = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    for layer in model.model.layers:
        parallelize_module(layer, mesh, plan)
    outer: dict[str, Any] = {
        "model.embed_tokens": RowwiseParallel(
            input_layouts=Replicate(), output_layouts=Shard(1) if in_shares else Replicate()
        ),
        "lm_head": ColwiseParallel(input_layouts=Shard(1) if in_shares else Replicate(), output_layouts=Replicate()),
    }
    if in_shares:
        outer["model.norm"] = SequenceParallel()
    parallelize_module(model, mesh, outer)


SAVED = {
    torch.ops.aten.mm.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
}


def again(model: Any, how: str) -> None:
    """Layers that run again in the backward pass: wholly, or but for attention and every other product."""
    if not how:
        return
    more: dict[str, Any] = {"context_fn": _savings} if how == "operators" else {}
    for layer in model.model.layers:
        layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False, **more)


def _savings() -> Any:
    counts = {False: 0, True: 0}

    def decide(context: Any, function: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        if function == torch.ops.aten.mm.default:
            counts[context.is_recompute] += 1
            kept = counts[context.is_recompute] % 2 == 1
        else:
            kept = function in SAVED
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(decide)


def shard(model: Any, mesh: DeviceMesh, reshard: bool) -> None:
    """Layer by layer: weights rest in fp32, and are read and summed in bf16."""
    more: dict[str, Any] = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16)}
    for layer in model.model.layers:
        fully_shard(layer, reshard_after_forward=reshard, **more)
    fully_shard(model, **({} if reshard else {"reshard_after_forward": False}), **more)
