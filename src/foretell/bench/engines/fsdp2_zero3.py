"""PyTorch's fully_shard, weights gathered for each pass of each layer (ZeRO-3)."""

from foretell.bench.engine import Engine

ENGINE = Engine(title="PyTorch FSDP2 as ZeRO-3", plan="dp{n}:zero3")
