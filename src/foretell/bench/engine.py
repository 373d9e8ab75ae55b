"""What trains: a strategy of ours, or somebody else's framework.

One of ours is a plan and nothing more, a line of `OWN`: the runtime's appliers do the rest. One of another framework is
a file in `engines`, found by its name. It has an `ENGINE`, and functions that run inside the ranks
(`runtime/fork_server.py` calls them):

    apply(subject)                       put the framework on a module: its parts, its driver, its optimizer
    begin(device, place, meeting)        join the ranks' group, where the framework has its own way, at torch's address
    outcome(assignment, folder)          do all of it, where the framework starts the ranks itself

Packages add engines of their own by the entry point `foretell.engines`: a name, and a module like these.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from importlib import metadata
from types import ModuleType
from typing import Final, NamedTuple

import msgspec

from foretell.errors import unknown
from foretell.registry import OpenSet

FRAMEWORKS = OpenSet("foretell.bench.engines", "engine")
PLUG_INS = "foretell.engines"

DATA = "survey: so many samples for each rank"
MICRO = "survey: micro-batches of a fixed size, four for each rank"
STALE = "survey: every mini-batch of a fixed size is an update"

PER_RANK = 4
"""Micro-batches for each rank of a pipeline that is flushed (survey, section 4.2)."""


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """A member. In texts {n} are the ranks, {half} half of them, {m} micro-batches, {region}, {device} the pair's."""

    title: str
    plan: str  # what it does, in foretell's words: so it can be predicted
    runs: str = ""  # the plan that ranks are told, where the framework itself does the rest
    batch_rule: str = DATA
    synchronous: bool = True
    least: int = 1  # ranks
    package: str = ""  # what is to be installed; empty: torch's own, or ours
    extras: tuple[str, ...] = ()  # packages besides
    tools: tuple[str, ...] = ()  # programs that it calls
    gpu: bool = False  # needs CUDA
    one_host: bool = False  # starts what it needs itself, where it is
    whole_weights: bool = True  # whether an optimizer sees whole weights, as norms and matrices need
    settings: Mapping[str, str] = {}
    environment: Mapping[str, str] = {}  # variables of the ranks


OWN: Final = {
    # PyTorch's ways. ZeRO-2 of FSDP2 keeps weights whole from a step's first pass to its last, ZeRO-3 gathers them.
    "ddp": Engine(title="PyTorch DDP", plan="dp{n}"),
    "zero1": Engine(title="PyTorch ZeroRedundancyOptimizer", plan="dp{n}:zero1"),
    "fsdp2_zero2": Engine(title="PyTorch FSDP2 as ZeRO-2", plan="dp{n}:zero2"),
    "fsdp2_zero3": Engine(title="PyTorch FSDP2 as ZeRO-3", plan="dp{n}:zero3"),
    "gpipe": Engine(title="PyTorch pipelining, GPipe", plan="pp{n}:gpipe +m{m}", batch_rule=MICRO, least=2),
    "one_f_one_b": Engine(title="PyTorch pipelining, 1F1B", plan="pp{n}:1f1b +m{m}", batch_rule=MICRO, least=2),
    # Layers in shares: columns and rows (Megatron's split), channels, filters, parts of images.
    "tensor": Engine(title="tensor parallel", plan="tp{n}", least=2),
    "tensor_sp": Engine(title="tensor and sequence parallel", plan="tp{n}:sp", least=2),
    "channel": Engine(title="channel", plan="channel{n}", least=2),
    "filter": Engine(title="filter", plan="filter{n}", least=2),
    "spatial": Engine(title="spatial", plan="spatial{n}{region}", least=2),
    # Replicas of two ranks that share something.
    "data_tensor": Engine(title="data x tensor", plan="dp{half} tp2", least=4),
    "data_filter": Engine(title="data x filter", plan="dp{half} filter2", least=4),
    "data_spatial": Engine(title="data x spatial", plan="dp{half} spatial2{region}", least=4),
    "data_pipeline": Engine(title="data x pipeline", plan="pp2:1f1b dp{half} +m8", batch_rule=MICRO, least=4),
    # A pipeline that never runs empty: every mini-batch updates, old weights are kept for it (PipeDream).
    "stash": Engine(
        title="pipeline with stashed weights", plan="pp{n}:stash +m{n}", batch_rule=STALE, synchronous=False, least=2
    ),
}


class EngineTexts(NamedTuple):
    """An engine's texts for so many ranks."""

    plan: str
    runs: str
    environment: dict[str, str]


def written(engine: Engine, ranks: int, region: str, policies: str, device: str = "cpu") -> EngineTexts:
    """The plan of an engine for so many ranks, with the policies of the pair."""
    words = {"n": ranks, "half": ranks // 2, "m": PER_RANK * ranks, "region": region, "device": device}
    plan, runs = (f"{text} {policies}".strip() for text in (engine.plan, engine.runs or engine.plan))
    environment = {name: text.format(**words) for name, text in engine.environment.items()}
    return EngineTexts(plan.format(**words), runs.format(**words), environment)


def names() -> tuple[str, ...]:
    """Ours, those of other frameworks, and those of plug-ins."""
    return tuple(sorted({*OWN, *FRAMEWORKS, *_plug_ins()}))


def engine(name: str) -> Engine:
    """The engine of a name."""
    name = name.replace("-", "_")
    found: Engine = OWN[name] if name in OWN else _module(name).ENGINE
    return found


def trained_by(name: str) -> str:
    """The module whose functions train in the place of our appliers; empty: nobody's."""
    name = name.replace("-", "_")
    if name in OWN:
        return ""
    found = _module(name)
    return found.__name__ if hasattr(found, "apply") or hasattr(found, "outcome") else ""


def _module(name: str) -> ModuleType:
    """The file of an engine."""
    if name in FRAMEWORKS:
        return FRAMEWORKS[name]
    plugged = _plug_ins()
    if name not in plugged:
        raise unknown("engine", name, names(), "foretell bench --list")
    found: ModuleType = plugged[name].load()
    return found


def _plug_ins() -> dict[str, metadata.EntryPoint]:
    return {one.name: one for one in metadata.entry_points(group=PLUG_INS)}


def missing_tools(found: Engine) -> list[str]:
    """Programs that an engine calls and this machine does not have."""
    return [name for name in found.tools if shutil.which(name) is None]
