"""What each rank holds in memory at its fullest moment, from the lifetimes of its program.

What is there for the whole step (weights, gradients, states) and, slot by slot, the activations of
the micro-batches in flight with what the slot itself needs. Then from tensors to what is reserved and
what the device reports. The terms and their constants are those of the trainer, with their sources.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import msgspec

from foretell.caches import forgettable
from foretell.cost.communicators import (
    Communicator,
    communicator_bytes,
    communicators,
    forwarding_bytes,
    registered_bytes,
)
from foretell.hardware.cluster import Cluster, Device
from foretell.hardware.members import architecture
from foretell.model.graph import Graph
from foretell.model.layers import layers
from foretell.model.matrices import one_of_each, trained_elements
from foretell.model.optimizer import optimizer
from foretell.model.resize import SAMPLE
from foretell.plan.axis_names import AxisName
from foretell.plan.facts import facts
from foretell.plan.figures import look_up, look_up_depth
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.precision import Precision
from foretell.plan.reach import reach, row_elements
from foretell.plan.setting import Setting
from foretell.plan.storage import STORAGES
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategies.tensor import Tensor
from foretell.plan.strategy import MeshAxis
from foretell.plan.together import storage
from foretell.plan.trainer import Trainer
from foretell.program.blocks import BLOCK
from foretell.units import WIDTH, Quantity, product, somewhere

MIB = 2**20


WORK = ("activations", "working")
"""Kinds of memory that come and go with micro-batches: tensors of their passes."""


class MemoryUse(msgspec.Struct, frozen=True):
    """Bytes of the worst rank, as tensors take them, as the allocator reserves them, as the device reports them."""

    allocated: float
    reserved: float
    device: float
    by_stage: tuple[float, ...]  # device bytes of each pipeline rank
    by_kind: dict[str, float]  # of the worst rank at its peak, adding up to `device`
    peak_moment: str


class MemoryConstants(NamedTuple):
    """What a trainer adds to the bytes of a program."""

    made: float  # 1 where a step of one micro-batch makes its gradients in the backward pass; 0: they rest
    # bytes for each parameter that a rank computes with and trains
    copies: float  # all the time: buckets of gradients, and copies of its own
    fresh: float  # of gradients, new in a backward pass
    cached: float  # of gradients, while working with weights in shares
    gathered: float  # in the update: of states, or of weights after their update in shares
    # other bytes
    workspace: float  # of libraries
    streams: Quantity  # buffers that communication streams have not given back
    limit: float  # bytes in tensors that a device has room for: streams hold nothing back beyond it
    reserved: float  # over what is allocated: a factor
    context: float  # of the device, of libraries, and of communicators
    communicators: float  # of these


def usable_bytes(trainer: Trainer, cluster: Cluster) -> float:
    """What a run can fill of a device."""
    return trainer.memory.usable * cluster.device.memory_bytes


def most_bytes(trainer: Trainer, cluster: Cluster) -> float:
    """What a process can hold of a device at all, with its context."""
    return max(trainer.memory.most, trainer.memory.usable) * cluster.device.memory_bytes


CONTEXT = 3 * MIB
"""Of a device's context for each multiprocessor: 555 MiB on an RTX PRO 6000 of 188, 107 on an RTX 4060 Ti of 34
(github.com/ggml-org/llama.cpp/pull/23604, drivers of 2026). What a process loads is a trainer's constant."""


def device_context(device: Device) -> float:
    """What the driver takes of a device for a process, before any library is loaded."""
    return 0.0 if device.is_processor else CONTEXT * device.multiprocessors


def memory_constants(
    setting: Setting, axes: tuple[MeshAxis, ...], cluster: Cluster, samples: Quantity = 0
) -> MemoryConstants:
    """The constants of a trainer, as far as they are for this plan on this cluster.

    `samples`: those of a micro-batch over all ranks, if not those of the setting's graph.
    """
    stored, alive = setting.trainer.storage, setting.trainer.memory
    shares = _stored_in_shares(setting)
    data = product(axis.ranks for axis in axes if axis.name in ("dp", "shard", "ep", "cp"))
    talking = communicators(axes, cluster) if alive.communicators else ()
    some = samples if somewhere(samples) else setting.graph.batch
    buffers = float(sum(_buffers(setting, one, cluster, some) for one in talking))
    context = alive.context + device_context(cluster.device) + buffers
    found = MemoryConstants(
        made=float(alive.new_gradients),
        copies=_buckets(setting, data),
        fresh=stored.transient_gradient,
        cached=alive.cached_gradients if shares else 0.0,
        gathered=(alive.gather if shares else _update_copies(setting)) + _wide_gradients(setting, axes, data),
        workspace=look_up(alive.workspace, *architecture(cluster.device.architecture).words) * MIB
        + _dummies(setting, axes),
        streams=held_back(setting, some, setting.plan.axis(Pipeline)),
        limit=(usable_bytes(setting.trainer, cluster) - context) / alive.reserved,
        reserved=alive.reserved,
        context=context,
        communicators=buffers,
    )
    return _on_processor(setting, axes, cluster, found) if cluster.device.is_processor else found


def _buffers(setting: Setting, own: Communicator, cluster: Cluster, samples: Quantity) -> float:
    """What a group of ranks holds to talk to one another: rows of experts may go by a library of their own.

    Where several numbers of samples are asked about at once, it is of the largest.
    """
    data = setting.plan.axis(Data)
    way = (data.dispatch if data else "") or setting.trainer.experts.dispatch
    if own.axis == AxisName.EP and own.kind == "exchange" and way == "deepep":
        return forwarding_bytes(own, row_elements(setting.graph))
    if own.axis == AxisName.EP and own.kind == "exchange" and way == "hybridep":
        elements, routed = row_elements(setting.graph), reach(setting.graph)
        most: float = max(samples) if hasattr(samples, "__len__") else samples
        return registered_bytes(
            own, _hidden_elements(setting, most) / elements, elements, routed.experts if routed else 0
        )
    return communicator_bytes(own, cluster)


def convolution_block(cluster: Cluster) -> int:
    """Channels that the library lays together for convolutions; a GPU's work space is a trainer's constant."""
    return BLOCK if cluster.device.is_processor else 0


SUMMED = ("dp", "shard", "spatial")
"""Axes along which DistributedDataParallel sums gradients, when `foretell run` runs a plan."""


NEXT = {"zero3": 2}
"""What FSDP2 has in the backward pass of its largest unit, beside the unit's weights and its gradients as they are
summed, where weights are in shares: the next unit as it was gathered, and gloo's own copy of that (PyTorch 2.13,
_fsdp_param_group.py and ProcessGroupGloo.cpp, where an all-gather is into tensors of its own)."""


def _on_processor(
    setting: Setting, axes: tuple[MeshAxis, ...], cluster: Cluster, found: MemoryConstants
) -> MemoryConstants:
    """What PyTorch holds where no GPU is: no device has a context, no allocator keeps what was given back, no library
    has work space of its own. Buckets are as wide as the gradients, also with states in shares
    (ZeroRedundancyOptimizer), and weights are updated one by one.

    Counted by the allocator in runs on gloo ranks (tests/torchrun/test_memory.py).
    """
    data = setting.plan.axis("dp")
    stored = STORAGES[getattr(data, "storage", "replicated")]
    buckets = any(axis.name.startswith(SUMMED) and axis.ranks > 1 for axis in axes) and not stored.gradients
    form = setting.plan.policy(Precision).format
    sizes = largest_units(setting.graph)
    lists = optimizer(setting.job.optimizer).rule.makes_lists
    ways = data.world if data is not None and stored.gradients else 1
    return found._replace(
        copies=form.gradient if buckets else 0.0,
        cached=form.gradient * (sizes.layer + NEXT.get(stored.name, 0) * sizes.next) if stored.gradients else 0.0,
        gathered=2 * form.state * sizes.weight / ways if lists else 0.0,
        workspace=0.0,
        limit=usable_bytes(setting.trainer, cluster),
        reserved=1.0,
        context=0.0,
        communicators=0.0,
    )


class LargestUnits(NamedTuple):
    """The largest weight, the largest layer, the one whose backward pass is next and the largest of all others, as
    shares of all weights."""

    weight: float
    layer: float
    next: float
    second: float


@forgettable
@functools.lru_cache(maxsize=256)
def largest_units(graph: Graph) -> LargestUnits:
    total, largest, units, repeated = 0.0, 0.0, dict[str, float](), set[str]()
    names = layers(graph)
    for block in graph.blocks:
        for one in (one for one in block.tensors if one.trainable):
            size = float(one.elements())
            total += block.times * size
            largest = max(largest, size)
            layer = next((name for name in names if one.name.startswith(f"{name}.")), "")
            units[layer] = units.get(layer, 0.0) + size
            repeated |= {layer} if block.times > 1 else set()
    if not total:
        return LargestUnits(0.0, 0.0, 0.0, 0.0)
    in_order = [name for name in ("", *names) if name in units]
    most = max(in_order, key=units.__getitem__)
    before = most if most in repeated else in_order[max(0, in_order.index(most) - 1)]
    others = [units[name] for name in in_order if name != most or most in repeated]
    return LargestUnits(largest / total, units[most] / total, units[before] / total, max(others, default=0.0) / total)


def _update_copies(setting: Setting) -> float:
    """Bytes for each parameter that are made for the update and gone after it: lists of all, or gradients as wide as
    their master copies, of as many weights at a time as the largest one takes (runtime/appliers/_master.py)."""
    form, times = setting.plan.policy(Precision).format, setting.trainer.memory.update_copies
    if setting.plan.policy(Offload).optimizer or not optimizer(setting.job.optimizer).rule.makes_lists:
        return 0.0
    return times * (form.master * largest_units(setting.graph).weight if form.master else form.state)


def _wide_gradients(setting: Setting, axes: tuple[MeshAxis, ...], data: int) -> float:
    """Bytes for each parameter of gradients laid flat and made wide for the update of a master copy on the device."""
    alive, mixed = setting.trainer.memory, setting.plan.policy(Precision).format.master > 0
    if not mixed or not alive.update_shared or setting.plan.policy(Offload).optimizer:
        return 0.0
    share = 1 / data
    if alive.update_group and storage(setting.plan).weights:
        held = trained_elements(setting.graph) / product(axis.ranks for axis in axes)
        share *= min(1.0, alive.update_group / max(1.0, held))
    return alive.update_shared * share


def _dummies(setting: Setting, axes: tuple[MeshAxis, ...]) -> float:
    """Tensors that autograd gets in place of gradients: those of experts and of what tensor ranks divide are shares."""
    each = setting.trainer.memory.dummy_gradients
    divided = product(axis.ranks for axis in axes if axis.name == AxisName.TP)
    return each * one_of_each(setting.graph) / divided if each else 0.0


def _buckets(setting: Setting, data: int) -> float:
    """Bytes for each parameter of gradients in buckets. Whoever gives states to ranks weight by weight leaves the
    gradients to those who sum them: they have their buckets all the same."""
    stored = setting.trainer.storage
    apart = stored.whole_states and not storage(setting.plan).gradients
    return stored.buckets if data > 1 and (apart or not _stored_in_shares(setting)) else 0.0


def _stored_in_shares(setting: Setting) -> bool:
    """Whether some ranks that hold the same weights have shares of the states: those of the batch or of a sequence."""
    return storage(setting.plan).states


def held_back(setting: Setting, samples: Quantity, pipeline: Pipeline | None) -> Quantity:
    """Buffers of tensor-parallel communication that streams have not given back (a trainer's constant), and those that
    gradients from the next stage come into."""
    tensor = setting.plan.axis(Tensor)
    held = _arrivals(setting, pipeline) if pipeline is not None and pipeline.ranks > 1 else 0.0
    if tensor is None or tensor.ranks == 1:
        return held
    each = look_up_depth(setting.trainer.memory.held, pipeline.ranks if pipeline else 1)
    return held + (each * _hidden_elements(setting, samples) if each else 0.0)


def _arrivals(setting: Setting, pipeline: Pipeline) -> float:
    """Bytes of buffers that a rank's stages keep for gradients of what they made, one for each micro-batch: those of a
    whole batch. Buffers for what a stage reads are the activations that it keeps."""
    if not setting.trainer.pipeline.keeps_buffers or not facts(setting.graph).trains:
        return 0.0
    width = WIDTH[setting.plan.policy(Precision).format.activation]
    return max(1, pipeline.chunks) * width * float(_hidden_elements(setting, setting.job.batch))


def _hidden_elements(setting: Setting, samples: Quantity) -> Quantity:
    """Tokens of a rank's micro-batch times hidden units: the elements that go from layer to layer."""
    graph = setting.graph
    repeated = [block for block in graph.blocks if block.times > 1 and any(e.carried >= 0 for e in block.imports)]
    if not repeated:
        return 0.0
    block = max(repeated, key=lambda one: one.times)
    number = next(entry.carried for entry in block.imports if entry.carried >= 0)
    split = product(axis.ranks for s in setting.plan.axes for axis in s.axes() if axis.splitting.dim)
    dims = graph.tensor(block, number).dims
    return product(samples if dim.name == SAMPLE else dim.size for dim in dims) / split
