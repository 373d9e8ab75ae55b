"""The weights of a stage: the bytes that are there for the whole step, and what is done for them in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from foretell.model.layers import EqualLayers
from foretell.program.action import Action, Allocate, Communicate, Free
from foretell.program.updates import Updated
from foretell.program.weights import Weight


@dataclass(frozen=True)
class PersistentBytes:
    """Bytes that are there for the whole step, and how many parameters they are for."""

    weights: float
    gradients: float
    states: float
    parameters: int
    trained: int
    updates: tuple[Updated, ...]

    @property
    def updated(self) -> int:
        """Parameters whose states are here."""
        return sum(one.elements for one in self.updates)


class UnitMessages(NamedTuple):
    """Bytes of the messages of one layer's weights, where these are memory of their own."""

    gather: float = 0.0  # what its weights are gathered into, before each is copied out of it
    sums: float = 0.0  # what its gradients are copied into, to be summed


class UnitBytes(NamedTuple):
    """What the weights of a run's layers take while one of them runs."""

    own: float = 0.0  # its weights, gathered or from the host
    ahead: float = 0.0  # in the forward pass: the message that its weights came in
    next: float = 0.0  # in the backward pass: the message of the layer whose turn is next
    sums: float = 0.0  # and that of the gradients of the layer whose turn was before


def beside(actions: Sequence[Action], name: str, gather: float, sums: float) -> list[Action]:
    """A pass of a layer, with the messages of weights and of gradients whose memory is held meanwhile."""
    held = {f"{name}, gathered": (gather, "message"), f"{name}, summed": (sums, "gradient")}
    begin = [Allocate(one, size, kind) for one, (size, kind) in held.items() if size]
    return [*begin, *actions, *(Free(one.name, one.bytes) for one in begin)]


@dataclass(frozen=True)
class StageWeights:
    """The care of one stage's weights."""

    units: dict[str, list[Weight]]  # weights that are gathered for each use, by their layer
    sizes: dict[str, float]  # bytes that each layer's weights take while it runs, gathered or from the host
    messages: dict[str, UnitMessages]  # and what they travel in, where that is memory of its own
    again: bool  # whether weights are let go between the passes, and gathered once more
    loss_inside: bool  # whether the message of the last layer's weights is there until the loss is made, and from then
    root: list[Weight]  # those of no layer, gathered at the start of a pass
    twice: list[Weight]  # and of the backward pass once more
    host: dict[str, list[Weight]]  # weights that come from the host for each use, by their layer
    stays: list[Weight]  # those of no layer, which come for both passes
    root_bytes: float
    reduces: tuple[Action, ...]  # after each micro-batch's backward pass
    sums: tuple[Communicate, ...]  # once a step: of gradients, and gathers of weights where these are used whole
    ending: tuple[Action, ...]  # and what waits for them: sums among stages, and the update

    @property
    def finish(self) -> tuple[Action, ...]:
        """All that is done once a step."""
        return (*self.sums, *self.ending)

    def gathered_for(self, runs: Sequence[EqualLayers], messages: bool = True) -> tuple[UnitBytes, ...]:
        """Bytes for the weights of each run of layers; empty where none are gathered.

        FSDP2 frees what a layer's weights were gathered into when the next layer's have come, in the forward pass. In
        the backward pass it is free as soon as they are copied out, and the next layer's are asked for; the message of
        gradients stays until the next layer has made its own.
        """
        if not self.sizes:
            return ()
        first = {run.layer: at for at, run in reversed([*enumerate(runs)]) if run.layer in self.sizes}
        own = sorted(first.values())
        found = [UnitBytes()] * len(runs)
        for place, at in enumerate(own):
            size, name = self.sizes[runs[at].layer], runs[at].layer
            mine = self.messages.get(name) if messages else None
            if mine is None:
                found[at] = UnitBytes(size)
                continue
            alike = runs[at].times > 1
            before = name if alike else runs[own[place - 1]].layer if place else ""
            after = name if alike else runs[own[place + 1]].layer if place + 1 < len(own) else ""
            coming, summed = (self.messages.get(one, UnitMessages()) for one in (before, after))
            found[at] = UnitBytes(size, mine.gather, coming.gather if self.again else 0.0, summed.sums)
        if messages and own:
            first_layer, last_layer = (self.messages.get(runs[at].layer, UnitMessages()) for at in (own[0], own[-1]))
            for at in range(own[0]):  # the first layer's gradients are on their way
                found[at] = UnitBytes(sums=first_layer.sums)
            held = last_layer.gather if self.loss_inside else 0.0
            for at in range(own[-1] + 1, len(runs)):
                found[at] = UnitBytes(ahead=held, next=held if self.again else 0.0)
        return tuple(found)
