"""PyTorch's fully_shard, weights whole from the first pass of a step to its last (ZeRO-2)."""

from foretell.bench.engine import Engine

ENGINE = Engine(title="PyTorch FSDP2 as ZeRO-2", plan="dp{n}:zero2")
