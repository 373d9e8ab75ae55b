"""The matrix work of a step, as MFU and HFU count it, and the peak that it is a share of.

MFU counts what the model needs (Chowdhery et al. 2022, PaLM, appendix B): a backward pass is twice the forward one, and
of attention only the scores that its mask leaves, as Megatron-LM counts them (6 L h s a token of a causal model, where
formulas that ignore the mask have 12). HFU also counts what runs again: by the plan's recompute policy, and the scores
that fused attention makes anew in its backward pass (Korthikanti et al. 2022, section 6.3; Dao et al. 2022).

Work is what kernels do: of a convolution by Winograd's algorithm the products that are left. So neither can be above 1.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import NamedTuple

from foretell.caches import forgettable
from foretell.cost.kernels import arithmetic, unit_rate
from foretell.hardware.cluster import Device
from foretell.model.graph import Graph, Node
from foretell.model.layers import pieces
from foretell.model.operator import Widths
from foretell.model.resize import skeleton
from foretell.model.totals import multiplying
from foretell.plan.policies.precision import Format
from foretell.plan.recomputation import Recomputation
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute
from foretell.program.recomputed import recomputed


class StepFlops(NamedTuple):
    """Of one micro-batch on all ranks."""

    model: float
    hardware: float
    peak: float  # flop/s of a device, of the units that its kernels run on
    faster: bool  # whether some of them run on faster units than those of the plan's precision


@forgettable
@functools.lru_cache(maxsize=256)
def step_flops(
    graph: Graph,
    rule: Recomputation,
    device: Device,
    form: Format,
    trainer: Trainer,
    spared: frozenset[str] = frozenset(),
) -> StepFlops:
    """What a forward and a backward pass of a model need, and what they do under a rule of recomputation.

    `spared` names the layers that the rule leaves as they are.
    """
    known = recomputed(skeleton(graph), rule)
    again = known.again | known.inside
    peak = device.matrix_rate(form.kernels)
    saving = _saving(graph, spared)
    stores = trainer.attention.kernel == "unfused"
    model, hardware, least = 0.0, 0.0, 0.0
    for at, index, parts in multiplying(skeleton(graph)):
        block = graph.blocks[at]
        node = block.nodes[index]
        widths, sizes = graph.widths(block, node), node.sizes()
        for part in parts:
            action = _action(node, part, widths)
            work = block.times * float(arithmetic(action, device, form))
            anew = 0.0 if part == "forward" or stores else block.times * float(node.operator.made_again(sizes))
            twice = work if part == "forward" and (at, index) in again else 0.0
            if twice and spared:
                twice *= 1 - saving[at, index] / block.times
            model += work - anew * action.density
            hardware += work + twice
            least += (work + twice) / max(peak, unit_rate(action, device, form))
    faster = least * peak < hardware * (1 - 1e-9)
    return StepFlops(model, hardware, hardware / least if faster else peak, faster)


def _saving(graph: Graph, spared: frozenset[str]) -> Counter[tuple[int, int]]:
    """For each operator how many of its repetitions lie in these layers."""
    own = (piece for piece in pieces(graph) if piece.layer in spared)
    return Counter((piece.block, index) for piece in own for index in range(piece.start, piece.stop))


def _action(node: Node, part: str, widths: Widths) -> Compute:
    sizes = node.sizes()
    cost = node.cost_at(part, widths, sizes)
    return Compute(node.path, node.operator.priced_as, part, sizes, cost, density=float(node.operator.density(sizes)))
