"""The model as a plan trains it: with adapters beside some of its weights, the others frozen, perhaps in few bits."""

from __future__ import annotations

from typing import NamedTuple

from foretell.model.adapters import EMBEDDINGS, adapted
from foretell.model.graph import Graph
from foretell.model.partly import partly_trained
from foretell.model.prompts import prompted
from foretell.plan.plan import Plan
from foretell.plan.policies.base import Base
from foretell.plan.policies.lora import Lora
from foretell.plan.policies.precision import Precision
from foretell.plan.policies.prompt import Prompt
from foretell.plan.policies.targets import Targets
from foretell.plan.policies.train import Train
from foretell.plan.policies.variant import Variant
from foretell.plan.policies.wide_adapters import WideAdapters


class TrainedWeights(NamedTuple):
    """All that a plan says of which weights are trained."""

    rank: int
    where: tuple[str, ...]
    base: str
    wide: bool = False
    magnitudes: bool = False
    alone: Train = Train()
    prompt: Prompt = Prompt()

    def of(self, graph: Graph) -> Graph:
        """The model with its adapters or prompts, partly frozen, or as it is."""
        if self.prompt.tokens or self.prompt.prefix:
            return prompted(graph, self.prompt.tokens or self.prompt.prefix, bool(self.prompt.prefix))
        if self.alone.last or self.alone.parts:
            return partly_trained(graph, self.alone.parts, self.alone.last)
        if not self.rank:
            return graph
        only = tuple(word for word in self.where if word != EMBEDDINGS)
        return adapted(graph, self.rank, only, self.base, EMBEDDINGS in self.where, self.wide, self.magnitudes)


def trained_weights(plan: Plan) -> TrainedWeights:
    """What a plan says of them."""
    wide = plan.policy(WideAdapters).wide and not plan.policy(Precision).format.autocast
    magnitudes = "dora" in plan.policy(Variant).how
    where, alone, prompt = plan.policy(Targets).where, plan.policy(Train), plan.policy(Prompt)
    return TrainedWeights(plan.policy(Lora).rank, where, plan.policy(Base).form, wide, magnitudes, alone, prompt)


def as_trained_by(plan: Plan, graph: Graph) -> Graph:
    """The model as a plan trains it."""
    return trained_weights(plan).of(graph)
