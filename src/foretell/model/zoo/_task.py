"""What a model of the zoo is trained on, as operators: the counterpart of `foretell.modules.task`."""

from __future__ import annotations

from foretell.model.build import Builder, Value, dims
from foretell.model.dims import Dims
from foretell.model.operators.cross_entropy import cross_entropy
from foretell.model.operators.elementwise import cast


def images(g: Builder, batch: int, size: int, channels: int = 3) -> Value:
    """Square images."""
    return g.input("image", dims(sample=batch, channel=channels, height=size, width=size))


def tokens(g: Builder, batch: int, sequence: int) -> Value:
    """Sequences of tokens."""
    return g.input("tokens", dims(sample=batch, sequence=sequence), "int64")


def targets(g: Builder, places: Dims) -> Value:
    """The right class at every place."""
    return g.input("target", places, "int64")


def class_loss(g: Builder, x: Value, target: Value | None = None) -> Value:
    """Cross-entropy of logits x[..., class] in fp32, as mixed-precision training has it."""
    with g.scope("loss"):
        return cross_entropy(g, cast(g, x, "fp32"), target or targets(g, x.dims[:-1]))
