"""Filters (output channels) of every layer in shares."""

from foretell.bench.engine import Engine

ENGINE = Engine(title="filter", plan="filter{n}", least=2)
