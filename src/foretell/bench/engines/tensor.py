"""Columns and rows of layers on every rank (Megatron's split), by PyTorch's plain collectives."""

from foretell.bench.engine import Engine

ENGINE = Engine(title="tensor parallel", plan="tp{n}", least=2)
