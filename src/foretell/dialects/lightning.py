"""Lightning: the `trainer` part of a LightningCLI file.

Names: Lightning 2.6.6, lightning/pytorch/trainer/trainer.py, pytorch/strategies/{ddp,fsdp,model_parallel}.py, fabric/
plugins/precision/precision.py. ModelParallelStrategy has a mesh of (data_parallel, tensor_parallel).
"""

from __future__ import annotations

import shlex

from foretell.dialects._dialect import Dialect
from foretell.dialects._formats import YAML
from foretell.dialects._recipe import Recipe
from foretell.dialects._table import Document, Figures, Formula, Same
from foretell.errors import BadInput

_CLASS, _GIVEN = "trainer.strategy.class_path", "trainer.strategy.init_args"
_MODULE = "lightning.pytorch.strategies"


def _strategy(recipe: Recipe) -> Document:
    ranks: Document = {
        "trainer.accelerator": "gpu",
        "trainer.devices": recipe.on_node,
        "trainer.num_nodes": recipe.nodes,
    }
    if recipe.tensor > 1:
        return {
            **ranks,
            _CLASS: f"{_MODULE}.ModelParallelStrategy",
            f"{_GIVEN}.data_parallel_size": recipe.data,
            f"{_GIVEN}.tensor_parallel_size": recipe.tensor,
        }
    if recipe.storage == "replicated":
        bucket = {f"{_GIVEN}.bucket_cap_mb": -(-recipe.bucket // 2**20)} if recipe.bucket else {}
        return {**ranks, _CLASS: f"{_MODULE}.DDPStrategy", **bucket}
    whole = {"zero3": "FULL_SHARD", "zero2": "SHARD_GRAD_OP"}.get(recipe.storage, recipe.storage)
    mesh = {f"{_GIVEN}.device_mesh": [recipe.replicas, recipe.shard]} if recipe.shard else {}
    hybrid = {"FULL_SHARD": "HYBRID_SHARD"}.get(whole, whole)
    sharding = {f"{_GIVEN}.sharding_strategy": hybrid if mesh else whole}
    offload = {f"{_GIVEN}.cpu_offload": True} if recipe.offload else {}
    return {**ranks, _CLASS: f"{_MODULE}.FSDPStrategy", **sharding, **mesh, **offload}


def _figures(document: Document) -> Figures:
    nodes, devices = document.get("trainer.num_nodes", 1), document.get("trainer.devices", 1)
    figures: Figures = {"offload": ()}
    if isinstance(devices, int) and isinstance(nodes, int) and devices > 0:
        figures |= {"ranks": nodes * devices, "per_node": devices}
    kind = _kind(document)
    if kind == "model_parallel":
        sizes = [document.get(f"{_GIVEN}.{name}_parallel_size") for name in ("data", "tensor")]
        data, tensor = (size if isinstance(size, int) else None for size in sizes)
        return figures | {"data": data, "tensor": tensor, "storage": "zero3", "sequence_parallel": True}
    if kind == "ddp":
        return figures | {"storage": "replicated", "bucket": 2**20 * int(document.get(f"{_GIVEN}.bucket_cap_mb", 0))}
    if document.get(f"{_GIVEN}.cpu_offload"):
        figures["offload"] = ("optimizer", "weights")
    said = str(document.get(f"{_GIVEN}.sharding_strategy", "FULL_SHARD")).upper()
    words = {"FULL_SHARD": "zero3", "SHARD_GRAD_OP": "zero2", "HYBRID_SHARD": "zero3", "NO_SHARD": "replicated"}
    if said not in words:
        raise BadInput(f"sharding_strategy is {said}", fix=", ".join(words))
    mesh = document.get(f"{_GIVEN}.device_mesh")
    if isinstance(mesh, list):
        figures |= {"shard": mesh[1], "replicas": mesh[0]}
    return figures | {"storage": words[said]}


def _kind(document: Document) -> str:
    said = str(document.get(_CLASS) or document.get("trainer.strategy") or "auto")
    kinds = {"ModelParallelStrategy": "model_parallel", "FSDPStrategy": "fsdp", "fsdp": "fsdp", "fsdp2": "fsdp"}
    kinds |= {"DDPStrategy": "ddp", "ddp": "ddp", "auto": "ddp"}
    word = said.rpartition(".")[2]
    if word not in kinds:
        raise BadInput(f"the strategy is {said}", where=_CLASS, fix=", ".join(kinds))
    return kinds[word]


def _mixed(recipe: Recipe) -> Document:
    words = {"bf16": "bf16-mixed", "amp_bf16": "bf16-mixed", "fp16": "16-mixed", "amp_fp16": "16-mixed"}
    words |= {"bf16:pure": "bf16-true", "fp32": "32-true", "fp8": "transformer-engine"}
    return {"trainer.precision": words[recipe.precision]} if recipe.precision in words else {}


def _precision(document: Document) -> Figures:
    """Under FSDP mixed precision casts gathered weights; under DDP it is automatic mixed precision."""
    said = str(document.get("trainer.precision", "32-true"))
    word = {"32": "32-true", "16": "16-mixed", "bf16": "bf16-mixed"}.get(said, said)
    sharded = _kind(document) != "ddp"
    words = {"32-true": "fp32", "bf16-true": "bf16:pure", "transformer-engine": "fp8"}
    words |= {"bf16-mixed": "bf16" if sharded else "amp_bf16", "16-mixed": "fp16" if sharded else "amp_fp16"}
    if word not in words:
        raise BadInput(f"precision is {said}", where="trainer.precision", fix=", ".join(words))
    return {"precision": words[word]}


DIALECT = Dialect(
    name="lightning",
    summary="Lightning's YAML: strategy, precision, devices",
    version="Lightning 2.6.6",
    trainer=lambda recipe: "pytorch" if recipe.storage == "replicated" and recipe.tensor == 1 else "fsdp",
    format=YAML,
    file="lightning.yaml",
    table=(
        Formula(
            (
                *("trainer.accelerator", "trainer.devices", "trainer.num_nodes", "trainer.strategy", _CLASS),
                *(f"{_GIVEN}.{name}" for name in ("data_parallel_size", "tensor_parallel_size", "sharding_strategy")),
                *(f"{_GIVEN}.{name}" for name in ("device_mesh", "cpu_offload", "bucket_cap_mb")),
            ),
            _strategy,
            _figures,
        ),
        Formula(("trainer.precision",), _mixed, _precision),
        Same("trainer.accumulate_grad_batches", "microbatches", 1),
        Same("data.init_args.batch_size", "micro_batch"),
    ),
    elsewhere={
        "model": "the LightningModule of the command line",
        "sequence": "the samples of the LightningDataModule",
        "optimizer": "configure_optimizers of the LightningModule",
        "recompute": "activation_checkpointing_policy of FSDPStrategy, with the class of the model's blocks",
    },
    beside={"tensor": "configure_model of the LightningModule, which applies the tensor-parallel plan"},
    command=lambda document, file: ["train.py fit", f"--config {shlex.quote(file)}"],
)
