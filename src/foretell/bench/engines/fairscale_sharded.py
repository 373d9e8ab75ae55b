# pyright: basic
"""FairScale's OSS and ShardedDDP: states in shares, and each gradient goes to the rank that updates its weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretell.bench.engine import Engine

if TYPE_CHECKING:
    from foretell.runtime.subject import Subject

ENGINE = Engine(title="FairScale OSS + ShardedDDP", plan="dp{n}:zero1", package="fairscale")


def apply(subject: Subject) -> None:
    from fairscale.nn.data_parallel import ShardedDataParallel  # pyright: ignore[reportMissingImports]
    from fairscale.optim.oss import OSS  # pyright: ignore[reportMissingImports]

    from foretell.bench.wrapping import wrap

    rule = subject.rule
    optimizer: Any = OSS(subject.weights(), optim=rule.kind, **rule.arguments)
    module = ShardedDataParallel(subject.parts[0], optimizer)
    optimizer.zero_grad = module.zero_grad  # gradients lie in buckets, which only the wrapper can empty
    wrap(subject, module, optimizer, lambda loss: loss.backward(), "module.")
