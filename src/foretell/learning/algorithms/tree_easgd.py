"""Elastic averaging in a tree: models go up and down, and everybody moves towards what comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from foretell.learning.algorithm import Decentral
from foretell.learning.option import option
from foretell.learning.topologies.tree import Tree

if TYPE_CHECKING:
    from foretell.learning.world import Worker, World


@dataclass
class TreeEasgd(Decentral):
    paper: ClassVar[str] = "Zhang 2016 (distributed stochastic optimization for deep learning), arXiv 1605.02216"
    summary: ClassVar[str] = "models go to parent and children; receivers move towards them"
    invariant: ClassVar[str] = "what is received lies between: weights stay inside the hull of all copies"
    topology: ClassVar[str] = "tree"
    elastic: ClassVar[bool] = False

    up: int = option(2, 1)
    down: int = option(4, 1)
    alpha: float = option(0.3, 0, 1)

    def stepped(self, world: World, worker: Worker) -> None:
        tree = world.topology
        assert isinstance(tree, Tree)
        if worker.clock % self.up == 0:
            for parent in tree.parents(worker.number):
                world.send(worker, parent, worker.weights)
        if worker.clock % self.down == 0:
            for child in tree.children(worker.number, world.count):
                world.send(worker, child, worker.weights)
        world.compute(worker)

    def on_message(self, world: World, worker: Worker, sender: int, said: Any) -> None:
        worker.weights = worker.weights + self.alpha * (said - worker.weights)
