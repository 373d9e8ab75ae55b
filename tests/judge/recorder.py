"""One training step of a zoo module under torch's fake process group, and every collective rank 0 starts in it.

Run as a program it reads a case (JSON) from every line and answers with a line: process groups and
fake tensors stay in this process. Nothing here knows foretell's plans: torch is the judge.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import Any

import msgspec
import torch
import torch._dynamo.convert_frame  # torch imports it at the first step: better once than in every fork
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.distributed.tensor.parallel.style import ParallelStyle
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from foretell import modules
from foretell.model import zoo
from foretell.model.zoo.bert import Bert
from foretell.modules.gpt import Alibi, FusedAttention
from foretell.modules.llama import GroupedQueryAttention
from judge.cases import Case, Collective, Observed

KINDS = {
    "all_reduce": "all-reduce",
    "all_reduce_": "all-reduce",
    "allreduce_": "all-reduce",
    "all_gather_into_tensor": "all-gather",
    "all_gather_into_tensor_out": "all-gather",
    "_allgather_base_": "all-gather",
    "reduce_scatter_tensor": "reduce-scatter",
    "reduce_scatter_tensor_out": "reduce-scatter",
    "_reduce_scatter_base_": "reduce-scatter",
    "all_to_all_single": "all-to-all",
    "alltoall_base_": "all-to-all",
    "shard_dim_alltoall": "all-to-all",
}
"""Torch's operators by what they do. One that is missing here stops the recording."""

OUTPUT_FIRST = ("_allgather_base_", "_reduce_scatter_base_", "alltoall_base_")
SILENT = ("wait_tensor", "barrier", "_wrap_tensor_autograd")
NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor")


class Recorder(TorchDispatchMode):
    """Counts the collectives of each phase with the axis they run along and the bytes of one rank."""

    def __init__(self, axes: dict[str, str]) -> None:
        super().__init__()
        self.axes = axes
        self.phase = ""
        self.seen: Counter[tuple[str, str, str, int, int]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # its local tensors come by next
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if func.namespace in NAMESPACES and name not in SILENT:
            self._count(name, args, result)
        return result

    def _count(self, name: str, args: Any, result: Any) -> None:
        given, made = (args[1], args[0]) if name in OUTPUT_FIRST else (args[0], result)
        if name == "allreduce_":
            made = given
        axis = self.axes[_group(args)]
        self.seen[self.phase, KINDS[name], axis, _bytes(given), _bytes(made)] += 1


def _group(args: Any) -> str:
    """The name of the process group among an operator's arguments."""
    for arg in args:
        if isinstance(arg, torch.ScriptObject):
            return dist.ProcessGroup.unbox(arg).group_name
    return next(arg for arg in reversed(args) if isinstance(arg, str))


def _bytes(tensors: Any) -> int:
    if isinstance(tensors, torch.Tensor):
        return tensors.numel() * tensors.element_size()
    return sum(_bytes(tensor) for tensor in tensors if isinstance(tensor, torch.Tensor))


@contextmanager
def _mesh(case: Case) -> Generator[DeviceMesh]:
    """A mesh with every axis that has more than one rank, outermost first, on rank 0 of a world that is not there."""
    sizes = case.axes()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=case.world)
    try:
        yield init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    finally:
        dist.destroy_process_group()


def observe(case: Case) -> tuple[Collective, ...]:
    """What one training step of this case says to the other ranks."""
    _check(case)
    with _mesh(case) as mesh:
        with torch.device("meta"):
            module = modules.build(case.model)
        if case.tensor > 1:
            _split_tensors(module, mesh["tensor"], case)
        if case.shard * case.replicate > 1:
            _shard_weights(module, mesh, case)
        recorder = Recorder({mesh.get_group(name).group_name: name for name in case.axes()})
        with FakeTensorMode(allow_non_fake_inputs=True):
            module.to_empty(device="cpu")
            _step(module, case, recorder)
    return tuple(Collective(*key, count) for key, count in sorted(recorder.seen.items()))


def _check(case: Case) -> None:
    """Refuse what torch's styles cannot say about our modules."""
    _, fields = zoo.parse(case.model)
    tied = getattr(fields, "tied", getattr(fields, "objective", "") == "mlm")
    if case.tensor > 1 and tied and (case.embedding == "rows") != (case.logits != "replicated"):
        raise ValueError("a table that is the head too is split in both places or in none")
    if case.sequence and (case.tensor == 1 or case.embedding != "rows" or case.logits == "replicated"):
        raise ValueError("sequence parallelism is for a tensor axis with a split table and head")
    if case.sequence and (isinstance(fields, Bert) or getattr(fields, "positions", "") == "alibi"):
        raise ValueError("this module adds a tensor of the whole sequence to the share of it")


def _step(module: nn.Module, case: Case, recorder: Recorder) -> None:
    example = modules.example(case.model, case.batch)
    optimizer = torch.optim.AdamW(module.parameters())
    with loss_parallel() if case.tensor > 1 and case.logits == "parallel" else nullcontext(), recorder:
        recorder.phase = "forward"
        loss = example.loss(module(*example.inputs), example.target)
        recorder.phase = "backward"
        loss.backward()
        if case.settled:
            recorder.phase = "settling"
            _settle_gradients(module)
        recorder.phase = "optimizer"
        optimizer.step()


def _settle_gradients(module: nn.Module) -> None:
    """Sum up gradients that are still summands. FSDP2 does; without it each operator of the optimizer would."""
    for weight in module.parameters():
        gradient = weight.grad
        if isinstance(gradient, DTensor) and any(placement.is_partial() for placement in gradient.placements):
            weight.grad = gradient.redistribute(placements=weight.placements)


def _shard_weights(module: nn.Module, mesh: DeviceMesh, case: Case) -> None:
    """FSDP2 by block, and the rest of the model as one more group; over two axes it shards along the second."""
    types = {"bf16": torch.bfloat16, "fp32": torch.float32}
    policy = MixedPrecisionPolicy(types.get(case.compute), types.get(case.reduce))
    over = mesh["replicate", "shard"] if case.replicate > 1 else mesh["shard"]
    for layer in module.layers:
        fully_shard(layer, mesh=over, mp_policy=policy, reshard_after_forward=case.reshard)
    fully_shard(module, mesh=over, mp_policy=policy)


# Tensor parallelism by the names that our modules have. -------------------------------------------


def _split_tensors(module: nn.Module, mesh: DeviceMesh, case: Case) -> None:
    tied = _tied(module)
    _share_heads(module, case.tensor)
    for layer in module.layers:
        parallelize_module(layer, mesh, _layer_styles(layer, case))
    parallelize_module(module, mesh, _ends(module, case))
    for owner, other in tied:  # torch splits each use of a shared weight on its own
        owner.weight = other.weight


def _tied(module: nn.Module) -> list[tuple[nn.Module, nn.Module]]:
    """Pairs of modules that have the same weight."""
    first: dict[nn.Parameter, nn.Module] = {}
    pairs: list[tuple[nn.Module, nn.Module]] = []
    for part in module.modules():
        weight = part._parameters.get("weight")
        if weight is not None and first.setdefault(weight, part) is not part:
            pairs.append((part, first[weight]))
    return pairs


def _share_heads(module: nn.Module, ranks: int) -> None:
    """What cuts one product into heads, or has a slope for each, must know how many of them this rank has."""
    for part in module.modules():
        if isinstance(part, FusedAttention):
            part.heads = tuple(heads // ranks for heads in part.heads)
        if isinstance(part, Alibi):
            part.slopes = part.slopes[: len(part.slopes) // ranks]


def _layer_styles(layer: nn.Module, case: Case) -> dict[str, ParallelStyle]:
    """Columns first, rows second, in attention and feed-forward alike."""
    between = Shard(1) if case.sequence else Replicate()
    columns = ("attention.query", "attention.key", "attention.value", "attention.qkv")
    columns += ("feed_forward.gate", "feed_forward.up")
    names = {name for name, _ in layer.named_modules()}
    styles: dict[str, ParallelStyle] = {name: ColwiseParallel() for name in columns if name in names}
    styles |= {name: RowwiseParallel(output_layouts=between) for name in ("attention.output", "feed_forward.down")}
    if case.sequence:
        styles |= {name: SequenceParallel() for name in ("attention_norm", "feed_forward_norm")}
    for name in ("attention.query_norm", "attention.key_norm"):  # of [sample, sequence, head, head_dim]
        if name in names and not isinstance(layer.get_submodule(name), nn.Identity):
            styles[name] = SequenceParallel(sequence_dim=2, use_local_output=True)
    if case.sequence or case.shared_input:
        inputs = {"attention": _attention_inputs(layer.attention), "feed_forward": 1}
        styles |= {
            name: PrepareModuleInput(
                input_layouts=(between, *[None] * (count - 1)),
                desired_input_layouts=(Replicate(), *[None] * (count - 1)),
            )
            for name, count in inputs.items()
        }
    return styles


def _attention_inputs(attention: nn.Module) -> int:
    """How many arguments a layer calls its attention with: decoders add angles and a bias."""
    return 3 if isinstance(attention, GroupedQueryAttention | FusedAttention) else 1


def _ends(module: nn.Module, case: Case) -> dict[str, ParallelStyle]:
    """What comes before the first layer and after the last."""
    names = {name for name, _ in module.named_modules()}
    table, head = ("token", "token_head.decoder") if "token" in names else ("embedding", "head")
    between = Shard(1) if case.sequence else Replicate()
    gathered = case.logits == "gathered"
    styles: dict[str, ParallelStyle] = {}
    if case.embedding == "rows":
        styles[table] = RowwiseParallel(input_layouts=Replicate(), output_layouts=between)
    if head in names and case.logits != "replicated":
        styles[head] = ColwiseParallel(
            input_layouts=between, output_layouts=Replicate() if gathered else Shard(-1), use_local_output=gathered
        )
    if case.sequence:
        styles |= {name: SequenceParallel() for name in ("norm", "embedding_norm") if name in names}
        if "position" in names:  # every rank looks all places up and goes on with its share of them
            styles["position"] = PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(0))
    return styles


def _answer(line: bytes) -> None:
    """Record one case and print what was seen, or why it could not be."""
    try:
        found = Observed(observe(msgspec.json.decode(line, type=Case)))
    except Exception:
        found = Observed(failure=traceback.format_exc(limit=-6))
    print(msgspec.json.encode(found).decode(), flush=True)


def main() -> None:
    """Answer every line in a fork of this process, which itself only imports.

    Torch remembers meshes by their ranks and names: in one process, a second mesh of as many ranks was
    given the process group of the first for its tensor axis.
    """
    zoo.names()  # imports the families
    for line in sys.stdin.buffer:
        child = os.fork()
        if child == 0:
            _answer(line)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            failure = f"the process ended with {os.waitstatus_to_exitcode(status)}"
            print(msgspec.json.encode(Observed(failure=failure)).decode(), flush=True)


if __name__ == "__main__":
    main()
