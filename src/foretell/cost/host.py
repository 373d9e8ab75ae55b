"""What the host costs: seconds to launch the work of one stage for one micro-batch."""

from __future__ import annotations

import math

import msgspec

from foretell.hardware.cluster import Cluster
from foretell.plan.policies.execution import Execution
from foretell.plan.policies.overlap import Overlap
from foretell.plan.setting import Setting
from foretell.plan.strategies.tensor import Tensor
from foretell.plan.trainer import Trainer
from foretell.units import Quantity, at_least

UPDATED = 3.9e9
"""Parameters that the processors of one node update with Adam in a second: ten billion in 2.57 s on two Xeon 8168
(unchecked: Ren et al. 2021, ZeRO-Offload, arXiv 2101.06840, Table 4, CPU-Adam). The ranks of a node share them."""

AGAIN = 4 / 3
"""Passes with recomputation over passes without: a second forward pass beside one forward and two backward."""


def as_executed(setting: Setting) -> Trainer:
    """The trainer as the plan has it run: how kernels are started (a recorded step costs the host nothing), and whether
    anything travels beside them."""
    found = setting.trainer
    if setting.plan.policy(Overlap).when == "never":
        tensor = msgspec.structs.replace(found.tensor, overlap=0.0, pieces=0.0)
        found = msgspec.structs.replace(found, tensor=tensor)
    mode = setting.plan.policy(Execution).mode
    if mode == "trainer":
        return found
    host = found.host
    if mode == "captured":
        host = msgspec.structs.replace(host, launch=0.0, layer=0.0)
    return msgspec.structs.replace(found, execution=mode, host=host)


def host_seconds(
    launches: Quantity, layers: int, again: bool, setting: Setting, cluster: Cluster, pipelined: bool
) -> Quantity:
    """Host seconds of a stage and micro-batch, forward and backward, by the trainer's constants."""
    constants = as_executed(setting).host
    tensor = setting.plan.axis(Tensor)
    ranks = tensor.ranks if tensor else 1
    by_layer = constants.layer * layers
    if again and not constants.layer_recomputes:
        by_layer *= AGAIN
    grown = (constants.launch * launches + by_layer) * (1 + constants.tensor_growth * math.log2(ranks))
    floor = constants.floor + constants.floor_tensor * ranks + constants.floor_pair * ranks**2
    floor = floor if pipelined and cluster.nodes > 1 else 0.0
    return at_least(grown + constants.microbatch, layers * floor)


def host_update_seconds(parameters: Quantity, cluster: Cluster) -> Quantity:
    """Seconds of an optimizer's step whose states lie in the host's memory."""
    return parameters * min(cluster.ranks_per_node, cluster.ranks) / UPDATED
