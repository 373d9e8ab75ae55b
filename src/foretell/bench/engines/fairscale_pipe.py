# pyright: basic
"""FairScale's Pipe: stages in one process, a thread for each (torchgpipe's heir). On a CPU all of them share it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from foretell.bench.engine import MICRO, Engine

if TYPE_CHECKING:
    from foretell.runtime.subject import Subject

STAGES = "FORETELL_BENCH_STAGES"

ENGINE = Engine(
    title="FairScale Pipe",
    plan="pp{n}:gpipe +m{m}",
    runs="dp1 +m{m}",
    batch_rule=MICRO,
    least=2,
    one_host=True,
    package="fairscale",
    settings={"processes": "1: its stages are threads"},
    environment={STAGES: "{n}"},
)


def apply(subject: Subject) -> None:
    import torch
    from fairscale.nn import Pipe  # pyright: ignore[reportMissingImports]
    from torch import nn

    from foretell.bench.wrapping import LossDriver
    from foretell.plan.text import parse
    from foretell.program.partition import pipeline_partition
    from foretell.runtime import stages
    from foretell.runtime.appliers import in_precision

    count = int(os.environ[STAGES])
    setting = subject.setting
    (axis,) = parse(f"pp{count}:gpipe").axes
    found: Any = pipeline_partition(setting.graph, axis, setting.trainer.pipeline.split)  # pyright: ignore[reportArgumentType]
    names = [frozenset(piece.layer for piece in own if piece.layer) for own in found.row.parts]
    cut = stages.cut(subject.parts[0], setting.graph, names, subject.sample)
    known = {id(weight): name for name, weight in subject.parts[0].named_parameters()}
    subject.parts = cut
    in_precision(subject)  # what was put on the whole model is none of its stages'
    devices = [torch.device("cpu")] * count if subject.device.type == "cpu" else list(range(count))
    pipe = Pipe(nn.Sequential(*cut), balance=[1] * count, devices=devices, chunks=setting.plan.microbatches)
    own = {name: known[id(weight)] for name, weight in pipe.named_parameters()}
    subject.parts, subject.averaged = [pipe], True
    subject.wholes.append(lambda name, share: (own[name], share))
    subject.driver = lambda subject: LossDriver(subject, lambda loss: loss.backward())
