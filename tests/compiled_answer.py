"""What kernels that take seconds to compile answer, and how many of them were found on disk.

python compiled_answer.py answer
python compiled_answer.py zeros whole_zeros
"""

from __future__ import annotations

import json
import sys
from typing import Any

from foretell.compiling import compiled
from foretell.cost.price import priced
from foretell.hardware.catalog import cluster
from foretell.model.source import load
from foretell.plan.job import Job
from foretell.plan.schedule import find
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.timeline import engine, unroll
from foretell.timeline.memory_timeline import memory_timeline

MODULES = ("foretell.plan.unroll", "foretell.timeline.slot_order", "foretell.timeline.peak_memory")
ZEROS = {"zeros": "foretell.timeline.peak_memory", "whole_zeros": "foretell.timeline.slot_order"}


def answer() -> list[Any]:
    """An order of slots, and memory slot by slot: rows of numbers that kernels return or write to."""
    order = unroll.order(find("interleaved"), 2, 4, 2)
    rows = [[int(number) for number in row] for row in (order.rank, order.kind, order.stage, order.takes, order.puts)]
    graph = load("gpt:layers=4,hidden=64,heads=4,vocab=128,seq=32", 8)
    setting = Setting(graph, Job(batch=32), parse("pp2:zb-h1 dp2:zero1 +m4"), trainer("pytorch"))
    timeline = memory_timeline(priced(setting, cluster("4xh100")), cluster("4xh100"))
    return [rows, [[moment.name, moment.allocated.hex(), moment.parts] for moment in timeline.moments]]


def kinds(names: list[str]) -> list[str]:
    """Of what rows are that compiled functions of these names make."""
    return [str(getattr(compiled(ZEROS[name]), name)(3).dtype) for name in names]


if __name__ == "__main__":
    if sys.argv[1:] == ["answer"]:
        unroll.load()
        engine.kernels(fast=True)
        said = answer()
    else:
        said = kinds(sys.argv[1:])
    kernels = [value for name in MODULES for value in vars(compiled(name)).values() if hasattr(value, "stats")]
    found, made = (sum(getattr(one.stats, name).total() for one in kernels) for name in ("cache_hits", "cache_misses"))
    print(json.dumps({"said": said, "found": found, "made": made}))
