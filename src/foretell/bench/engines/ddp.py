"""PyTorch's DistributedDataParallel: every rank has all weights, gradients are averaged in buckets."""

from foretell.bench.engine import Engine

ENGINE = Engine(title="PyTorch DDP", plan="dp{n}")
