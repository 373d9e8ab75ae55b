"""Megatron-core's tensor parallelism: it asks CUDA for a device and for random numbers, and does not start without."""

from foretell.bench.engine import Engine

ENGINE = Engine(title="Megatron-core tensor parallel", plan="tp{n}", least=2, package="megatron-core", gpu=True)
