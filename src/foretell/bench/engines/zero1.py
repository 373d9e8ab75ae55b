"""PyTorch's ZeroRedundancyOptimizer: states of the optimizer in shares (ZeRO-1)."""

from foretell.bench.engine import Engine

ENGINE = Engine(title="PyTorch ZeroRedundancyOptimizer", plan="dp{n}:zero1")
