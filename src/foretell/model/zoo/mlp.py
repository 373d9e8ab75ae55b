"""Multilayer perceptron: dense layers, each followed by an activation, and a dense output layer."""

from __future__ import annotations

from typing import ClassVar

from foretell.errors import unknown
from foretell.model.build import Builder, dims
from foretell.model.family import Count, Family
from foretell.model.operators.elementwise import activation
from foretell.model.operators.matmul import linear
from foretell.model.zoo import _task as task

ACTIVATIONS = ("relu", "gelu", "silu", "tanh", "sigmoid")


class Mlp(Family, frozen=True, kw_only=True):
    """`layers` hidden layers of `hidden` features between `inputs` and `classes`."""

    references: ClassVar[tuple[str, ...]] = ("Rumelhart, Hinton, Williams 1986, doi 10.1038/323533a0",)

    layers: Count = 2
    hidden: Count = 512
    inputs: Count = 784
    classes: Count = 10
    activation: str = "relu"

    def check(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise unknown("activation", self.activation, ACTIVATIONS)

    def build(self, g: Builder, batch: int) -> None:
        x = g.input("features", dims(sample=batch, feature=self.inputs))
        for layer in range(self.layers):
            with g.scope(f"layers.{layer}.linear"):
                x = linear(g, x, dims(feature=self.hidden))
            with g.scope(f"layers.{layer}.activation"):
                x = activation(g, x, self.activation)
        with g.scope("output"):
            x = linear(g, x, dims(class_=self.classes))
        task.class_loss(g, x)


PRESETS = {"mlp": Mlp()}
