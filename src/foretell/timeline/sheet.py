"""Plans as rows of the engine's tables: what is priced once, and which of it a plan is made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from foretell.cost.care import CareFigures, care_figures
from foretell.cost.host import as_executed, overlap_share
from foretell.cost.layers import LayerFigures, layer_figures
from foretell.cost.memory import Constants, convolution_block, memory_constants
from foretell.cost.stage import Prices
from foretell.hardware.cluster import Cluster
from foretell.plan.policies.precision import Precision
from foretell.plan.setting import Setting
from foretell.plan.strategies.tensor import Tensor
from foretell.program.action import Communicate
from foretell.program.cutting import Cutting, Shape
from foretell.program.holding import Passes, StageRuns
from foretell.program.local import Kind, Local
from foretell.program.outline import Outline, stage_passes
from foretell.timeline.columns import PLAN_COLUMNS, Plans, plan_rows
from foretell.timeline.order import Played, played
from foretell.timeline.tables import Sends, SignatureRow, TableBuilder
from foretell.units import Quantity


class Priced(NamedTuple):
    """One plan on one cluster, with the figures of its parts."""

    outline: Outline
    prices: Prices
    kinds: dict[Kind, LayerFigures]
    shapes: tuple[Shape, ...]
    stages: tuple[int, ...]  # the shape of each stage
    cares: tuple[CareFigures, ...]  # of each shape
    sends: tuple[Sends, ...]
    holds: tuple[Passes, ...]
    played: Played
    share: float
    constants: Constants


def priced(setting: Setting, cluster: Cluster) -> Priced:
    """Price the parts of a plan; those that others had too are not priced again."""
    outline = Outline(setting, convolution_block(cluster))
    trainer = as_executed(setting)
    prices = Prices(outline.mesh, cluster, setting.plan.policy(Precision).format, trainer)
    cutting, local, upkeep, plan = outline.cutting, outline.local, outline.upkeep, setting.plan
    cares = tuple(care_figures(cutting, shape, local, upkeep, prices) for shape in cutting.shapes)

    def held(own: StageRuns, gathered: tuple[float, ...], gradient: float) -> Passes:
        return stage_passes(local, own, plan, gathered, upkeep.reshards, cutting.ranks > 1, gradient)

    return Priced(
        outline,
        prices,
        layer_kinds(cutting, local, prices),
        tuple(cutting.shapes),
        cutting.stage_shapes,
        cares,
        stage_sends(cutting, local, prices),
        stage_holds(cutting, cares, trainer.memory.new_gradients, held),
        played(outline.schedule.name, outline.ranks, plan.microbatches, outline.chunks),
        overlap_share(plan, trainer, outline.ranks > 1),
        memory_constants(setting, outline.axes, cluster),
    )


def layer_kinds(cutting: Cutting, local: Local, prices: Prices) -> dict[Kind, LayerFigures]:
    """The figures of every kind of layer."""
    return {kind: layer_figures(local, kind, prices) for kind in cutting.kinds}


def stage_sends(cutting: Cutting, local: Local, prices: Prices) -> tuple[Sends, ...]:
    """For each shape."""
    return tuple(
        Sends(
            _seconds(prices.message, local, shape.sent),
            _seconds(prices.message, local, shape.back),
            _seconds(prices.asked, local, shape.received),
            _seconds(prices.asked, local, [crossing for crossing in shape.sent if crossing[2]]),
        )
        for shape in cutting.shapes
    )


Held: TypeAlias = Callable[[StageRuns, tuple[float, ...], float], Passes]
"""What a stage holds, with weights that are gathered for each of its runs, and bytes of a parameter's gradient."""


def stage_holds(cutting: Cutting, cares: Sequence[CareFigures], made: bool, held: Held) -> tuple[Passes, ...]:
    """For each shape what a micro-batch holds, weights that are gathered for it included.

    `made`: gradients of weights are new in each step, and begin when the backward pass makes them.
    """
    found: list[Passes] = []
    for own, care in zip(cutting.shape_runs, cares, strict=True):
        gradient = care.resting.gradients / care.resting.trained if made and care.resting.trained else 0.0
        kept, *peaks = held(own, care.gathered, gradient)
        found.append(
            Passes(kept, *(peak + care.root_bytes for peak in peaks)) if care.root_bytes else Passes(kept, *peaks)
        )
    return tuple(found)


def add_cut(builder: TableBuilder, cutting: Cutting, kinds: Sequence[Kind], stages: Sequence[int] = ()) -> int:
    """Add a cut of a model whose kinds of layers are numbered like this; `stages`: their shapes, if others."""
    place = {kind: at for at, kind in enumerate(kinds)}
    shapes = [
        SignatureRow(
            [(place[kind], times) for kind, times, *_ in shape.layers], layers, bool(shape.received), shape.gets_back
        )
        for shape, layers in zip(cutting.shapes, cutting.layers, strict=True)
    ]
    return builder.partition(shapes, stages or cutting.stage_shapes)


def _seconds(
    price: Callable[[Communicate], Quantity], local: Local, tensors: Sequence[tuple[int, int, bool]]
) -> Quantity:
    sizes = (local.bytes((block, tensor)) for block, tensor, _ in tensors)
    return sum(price(Communicate("send", ("pp",), 2, size, "activations", "")) for size in sizes)


class Sheet:
    """Rows of plans on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.builder = TableBuilder([level.name for level in cluster.levels])
        self.columns: dict[str, list[Any]] = defaultdict(list)

    def add(self, plan: Priced) -> int:
        """Add a plan; its row."""
        outline, builder = plan.outline, self.builder
        tensor = outline.plan.axis(Tensor)
        ranks = tensor.ranks if tensor else 1
        trainer, across = plan.prices.trainer, outline.ranks > 1 and self.cluster.nodes > 1
        row = {
            "program": builder.program(list(plan.kinds.values())),
            "partition": add_cut(builder, outline.cutting, tuple(plan.kinds), plan.stages),
            "sends": builder.sends(plan.sends),
            "peaks": builder.peaks((plan.holds, 0)),
            "traffic": builder.traffic(plan.cares),
            "launch_profile": builder.launch_profile(
                (trainer, ranks, across), trainer.host, ranks, across, trainer.storage.prefetch
            ),
            **builder.unrolled(plan.played),
            "splits": outline.schedule.splits_backward,
            "overlap": plan.share,
            **plan.constants._asdict(),
        }
        for name in PLAN_COLUMNS:
            self.columns[name].append(row[name])
        return len(self.columns["program"]) - 1

    def plans(self, compiled: bool) -> Plans:
        """The rows, for Python or for a compiler."""
        return plan_rows(self.columns, compiled)
