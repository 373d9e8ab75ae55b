"""Plans as rows of the recurrence's tables: what is priced once, and which of it a plan is made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from foretell.cost.care import CareFigures, care_figures
from foretell.cost.host import as_executed, overlap_share
from foretell.cost.layers import LayerFigures, layer_figures
from foretell.cost.memory import Constants, memory_constants
from foretell.cost.stage import Prices
from foretell.hardware.cluster import Cluster
from foretell.plan.plan import Plan
from foretell.plan.policies.precision import Precision
from foretell.plan.setting import Setting
from foretell.plan.strategies.tensor import Tensor
from foretell.program.action import Communicate
from foretell.program.cutting import Cutting, Shape
from foretell.program.holding import Passes
from foretell.program.local import Kind, Local
from foretell.program.outline import Outline, stage_passes
from foretell.timeline.order import Played, played
from foretell.timeline.tables import PLAN_COLUMNS, Builder, Plans, joined, real_array, whole_array


class Priced(NamedTuple):
    """One plan on one cluster, with the figures of its parts."""

    outline: Outline
    prices: Prices
    kinds: dict[Kind, LayerFigures]
    shapes: tuple[Shape, ...]
    stages: tuple[int, ...]  # the shape of each stage
    cares: tuple[CareFigures, ...]  # of each shape
    passes: tuple[Passing, ...]
    played: Played
    share: float
    constants: Constants


def priced(setting: Setting, cluster: Cluster) -> Priced:
    """Price the parts of a plan; those that others had too are not priced again."""
    outline = Outline(setting)
    trainer = as_executed(setting)
    prices = Prices(outline.mesh, cluster, setting.plan.policy(Precision).format, trainer)
    cutting, local, upkeep, plan = outline.cutting, outline.local, outline.upkeep, setting.plan
    cares = tuple(care_figures(cutting, shape, local, upkeep, prices) for shape in cutting.shapes)
    return Priced(
        outline,
        prices,
        layer_kinds(cutting, local, prices),
        tuple(cutting.shapes),
        cutting.stage_shapes,
        cares,
        passing(cutting, local, plan, upkeep.reshards, prices, cares),
        played(outline.schedule.name, outline.ranks, plan.microbatches, outline.chunks),
        overlap_share(setting, trainer, outline.ranks > 1),
        memory_constants(setting, outline.axes, cluster),
    )


def layer_kinds(cutting: Cutting, local: Local, prices: Prices) -> dict[Kind, LayerFigures]:
    """The figures of every kind of layer."""
    return {kind: layer_figures(local, kind, prices) for kind in cutting.kinds}


class Passing(NamedTuple):
    """What crosses the ends of a stage, and what a micro-batch holds on it."""

    sent_forward: float  # seconds
    sent_back: float
    gets_forward: bool
    gets_back: bool
    held: Passes


def passing(
    cutting: Cutting, local: Local, plan: Plan, reshards: bool, prices: Prices, cares: Sequence[CareFigures]
) -> tuple[Passing, ...]:
    """For each shape."""
    found: list[Passing] = []
    for shape, own, care in zip(cutting.shapes, cutting.shape_runs, cares, strict=True):
        held = stage_passes(local, own, plan, care.gathered, reshards, cutting.ranks > 1)
        root = care.root_bytes
        found.append(
            Passing(
                _sends(local, shape.sent, prices),
                _sends(local, [crossing for crossing in shape.received if crossing[2]], prices),
                bool(shape.received),
                any(trained for *_, trained in shape.sent),
                Passes(held.kept, held.forward_peak + root, held.backward_peak + root),
            )
        )
    return tuple(found)


def _sends(local: Local, tensors: Sequence[tuple[int, int, bool]], prices: Prices) -> float:
    sizes = (local.bytes((block, tensor)) for block, tensor, _ in tensors)
    return sum(prices.message(Communicate("send", ("pp",), 2, size, "activations", "")) for size in sizes)


class Sheet:
    """Rows of plans on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.builder = Builder([level.name for level in cluster.levels])
        self.columns: dict[str, list[Any]] = defaultdict(list)

    def add(self, plan: Priced) -> int:
        """Add a plan; its row."""
        outline, builder = plan.outline, self.builder
        kinds = {kind: number for number, kind in enumerate(plan.kinds)}
        spans = [[(kinds[kind], times) for kind, times, *_ in shape.layers] for shape in plan.shapes]
        tensor = outline.plan.axis(Tensor)
        ranks = tensor.ranks if tensor else 1
        trainer, across = plan.prices.trainer, outline.ranks > 1 and self.cluster.nodes > 1
        how = (outline.schedule.name, outline.ranks, outline.plan.microbatches, outline.chunks)
        order, before = plan.played.order, plan.played.before
        row = {
            "local": builder.local(object(), list(plan.kinds.values())),
            "cut": builder.cut(
                object(),
                list(zip(spans, outline.cutting.layers, strict=True)),
                plan.stages,
            ),
            "passes": builder.passes(object(), plan.passes),
            "care": builder.care(object(), plan.cares),
            "manner": builder.manner((trainer, ranks, across), trainer.host, ranks, across, trainer.storage.prefetch),
            "order": builder.order(how, order, plan.played.moments),
            "before": builder.order((*how, "before"), before, ()) if before else -1,
            "rounds": plan.played.rounds,
            "splits": outline.schedule.splits_backward,
            "share": plan.share,
            **plan.constants._asdict(),
        }
        for name in PLAN_COLUMNS:
            self.columns[name].append(row[name])
        return len(self.columns["local"]) - 1

    def plans(self) -> Plans:
        """The rows for Python."""
        places, real, whole = joined(self.columns)
        return Plans(f=real, i=whole, **places)

    def plan_arrays(self) -> Plans:
        """The rows for a compiler."""
        places, real, whole = joined(self.columns)
        return Plans(f=real_array(real), i=whole_array(whole), **places)
