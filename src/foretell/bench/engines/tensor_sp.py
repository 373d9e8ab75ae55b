"""Columns and rows of layers, and places of the sequence between them."""

from foretell.bench.engine import Engine

ENGINE = Engine(title="tensor and sequence parallel", plan="tp{n}:sp", least=2)
