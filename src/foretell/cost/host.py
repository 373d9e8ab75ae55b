"""What the host costs: seconds to launch the work of one stage for one micro-batch."""

from __future__ import annotations

import msgspec

from foretell.model.optimizer import update_rule
from foretell.plan.facts import facts
from foretell.plan.figures import look_up
from foretell.plan.plan import Plan
from foretell.plan.policies.a2a_overlap import multiprocessors
from foretell.plan.policies.execution import Execution
from foretell.plan.policies.overlap import Overlap
from foretell.plan.policies.precision import Format
from foretell.plan.setting import Setting
from foretell.plan.trainer import Trainer
from foretell.plan.wrapped import in_one_graph
from foretell.program.action import Update
from foretell.units import Quantity

UPDATES = 1.09e11
"""Bytes of weights, gradients and states that the processors of one node read and write in a second while they update:
Adam on ten billion parameters, 28 bytes each, in 2.57 s on two Xeon 8168 (unchecked: Ren et al. 2021, ZeRO-Offload,
arXiv 2101.06840, Table 4, CPU-Adam). The ranks of a node share them."""

AGAIN = 4 / 3
"""Passes with recomputation over passes without: a second forward pass beside one forward and two backward."""

GRAPHS = 2
"""Of a layer that is recorded: one of its forward pass and one of its backward pass, each started by a single call
(Megatron-Core 0.15, megatron/core/transformer/cuda_graphs.py). What lies outside layers and the update are left out."""

FORWARD = 1 / 3
"""The forward pass of both, by the same count: of what a trainer's constants say of a layer and its two passes."""


def as_executed(setting: Setting) -> Trainer:
    """The trainer as the plan has it run: how kernels are started (a recorded step costs the host nothing), and whether
    anything travels beside them."""
    found = setting.trainer if facts(setting.graph).trains else _forward_alone(setting.trainer)
    if setting.plan.policy(Overlap).when == "never":
        tensor = msgspec.structs.replace(found.tensor, overlap=0.0, pieces=0.0)
        found = msgspec.structs.replace(found, tensor=tensor)
    experts = msgspec.structs.replace(found.experts, beside=multiprocessors(setting.plan, found))
    said = setting.plan.policy(Execution).mode
    mode = setting.plan.policy(Execution).of_kernels(found.execution)
    host, wrapped = found.host, in_one_graph(found.wrapped) if mode == "compiled" else found.wrapped
    if said in ("graphed", "captured"):
        layers = GRAPHS * host.launch if said == "graphed" else 0.0
        host = msgspec.structs.replace(host, launch=0.0, layer=layers, tensor=0.0)
    return msgspec.structs.replace(found, execution=mode, host=host, wrapped=wrapped, experts=experts)


def _forward_alone(trainer: Trainer) -> Trainer:
    """The trainer's host in a step without a backward pass."""
    names = ("layer", "microbatch", "floor", "floor_tensor", "floor_pair", "device_layer")
    less = {name: getattr(trainer.host, name) * FORWARD for name in names}
    return msgspec.structs.replace(trainer, host=msgspec.structs.replace(trainer.host, **less))


def host_update_seconds(moved: Quantity, ranks: int) -> Quantity:
    """Seconds of an optimizer's step that moves so many bytes in the host's memory, as so many ranks of a node do."""
    return moved * ranks / UPDATES


def host_of_update(action: Update, launches: Quantity, form: Format, trainer: Trainer, wrapped: bool) -> Quantity:
    """Seconds that the host needs to start an optimizer's step.

    One on plain weights goes through lists of tensors: of the weights, and of each state. A trainer's own fused kernel
    over a master copy has them flat. `wrapped`: weights are split or in shares, each a tensor of PyTorch's own kind.
    """
    lists = 0 if form.master else 1 + len(update_rule(action.rule).states)
    if wrapped:
        launches = launches + trainer.wrapped.update * action.tensors
    return trainer.host.launch * launches + trainer.host.tensor * lists * action.tensors


def overlap_share(plan: Plan, trainer: Trainer, pipelined: bool) -> float:
    """How fast messages for weights go while the rank computes; 0: they are waited for."""
    said = plan.policy(Overlap).when
    if said != "trainer":
        return 1.0 if said == "always" else 0.0
    gradients = trainer.gradients
    table = gradients.overlap_pipeline if pipelined else gradients.overlap
    return look_up(table, getattr(plan.axis("dp"), "storage", "replicated"))
