# pyright: basic
"""Lightning Fabric with its DDP strategy. (Its Trainer owns the loop, so that steps could not be measured alike.)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretell.bench.engine import Engine

if TYPE_CHECKING:
    from foretell.runtime.subject import Subject

ENGINE = Engine(title="Lightning Fabric, DDP", plan="dp{n}", package="lightning")


def apply(subject: Subject) -> None:
    import torch.distributed as dist
    from lightning.fabric import Fabric  # pyright: ignore[reportMissingImports]
    from lightning.fabric.plugins.environments import (  # pyright: ignore[reportMissingImports]
        LightningEnvironment,
    )

    from foretell.bench.wrapping import in_buckets, optimizer_of, wrap

    place: Any = LightningEnvironment()  # our ranks are there already: it has nothing to start
    place.set_world_size(dist.get_world_size())
    place.set_global_rank(dist.get_rank())
    place._node_rank, place.local_rank = (lambda: 0), dist.get_rank
    fabric: Any = Fabric(
        accelerator=subject.device.type, devices=dist.get_world_size(), strategy="ddp", plugins=[place]
    )
    fabric._launched = True
    module, optimizer = fabric.setup(subject.parts[0], optimizer_of(subject))
    wrap(subject, module, optimizer, fabric.backward, "_forward_module.module.", "_forward_module.", "module.")
    in_buckets(subject)
