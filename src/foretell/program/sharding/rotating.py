"""Messages of keys and values that go round among ranks with shares of the positions, as a trainer does it.

PyTorch's context parallelism gathers keys and values at once, in one message in each pass, sends their gradients round
in fp32, and puts partial results together by kernels of their own, turn by turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretell.model.graph import Node
from foretell.program.action import Communicate, TrafficKind
from foretell.units import Quantity

if TYPE_CHECKING:
    from foretell.plan.strategy import MeshAxis
    from foretell.program.sharding.layout import Layout, TrafficMoment


def rotating(
    bare: Layout, at: int, moment: TrafficMoment, number: int, axis: MeshAxis, messages: int
) -> Communicate | None:
    """What goes round because of an operand of attention; None: it goes with the keys."""
    node, rule = bare.graph.blocks[at].nodes[moment.node], bare.rotation
    gathers = rule.turns == "gather"
    if gathers and _operand(node, "v") == number:
        return None
    numbers = (number, _operand(node, "v")) if gathers else (number,)
    copies = bare.sizes(at, moment.node)["share"] if rule.heads == "query" else 1

    def sent(one: int) -> Quantity:
        if moment.gradient and rule.gradient:
            return bare.elements_of(at, one) * rule.gradient
        return bare.wire_bytes(at, one)

    elements = copies * sum(bare.elements_of(at, one) for one in numbers)
    queries = bare.elements_of(at, _operand(node, "q")) * len(numbers) / 2  # half of it for each of keys and values
    once = moment.gradient or moment.phase == "forward"  # what comes once more in the backward pass is gradients' work
    turn = rule.traffic("backward" if moment.gradient else "forward", bare.execution, queries, elements)
    whole = gathers and not moment.gradient
    return Communicate(
        kind="all-gather" if whole else "shift",
        axes=(axis.name,),
        ranks=axis.ranks,
        payload=copies * sum(map(sent, numbers)),
        what=TrafficKind.GRADIENTS if moment.gradient else TrafficKind.ACTIVATIONS,
        path=node.path,
        messages=1 if whole else messages,
        around=turn * messages if once else 0.0,
    )


def _operand(node: Node, name: str) -> int:
    return next(one.tensor for one in node.inputs if one.name == name)
