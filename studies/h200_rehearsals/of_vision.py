"""Vision models of timm: DDP under autocast, or FSDP2 over the blocks of a transformer."""

from __future__ import annotations

import functools
from contextlib import nullcontext
from typing import Any

import timm
import torch
import torch.nn.functional as F
from cases import Case
from subjects import Mark, Step, axes, filled, optimizer, policy
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from foretell.plan.setting import Setting

NAMES = {"vit-l-16": "vit_large_patch16_224", "convnext-base": "convnext_base"}


def step(case: Case, setting: Setting, device: str) -> Step:
    name = case.model.partition(":")[0]
    model: Any = timm.create_model(NAMES.get(name, name))
    data = axes(case)["dp"]
    mesh = init_device_mesh(device, (data.ranks,), mesh_dim_names=("dp",))
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = bool(policy(case, "tf32"))
    autocast: Any = nullcontext
    if data.storage == "zero3":
        blocks = list(model.blocks)
        for block in blocks if policy(case, "recompute") else ():
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
        for block in blocks if policy(case, "compiled") else ():
            block.compile()
        more: dict[str, Any] = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16)}
        for block in blocks:
            fully_shard(block, **more)
        fully_shard(model, **more)
        model = filled(model.to("meta"), device)
    else:
        model = DistributedDataParallel(model.to(device), process_group=mesh.get_group())
        autocast = functools.partial(torch.autocast, device, torch.bfloat16, enabled=bool(policy(case, "amp_bf16")))
    model.train()
    update = optimizer(case, list(model.parameters()))
    rows = case.batch // data.ranks
    images, labels = torch.randn(rows, 3, 224, 224, device=device), torch.randint(1000, (rows,), device=device)

    def once(mark: Mark) -> None:
        with autocast():
            loss = F.cross_entropy(model(images).float(), labels)
        mark("forward")
        loss.backward()
        mark("backward")
        update.step()
        update.zero_grad()
        mark("optimizer")

    return once
