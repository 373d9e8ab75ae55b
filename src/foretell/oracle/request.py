"""One question: what is asked, as values, whichever door it came in by.

The command line, the Python package, the page, sweeps and configurations all make a `Request`, and `oracle.resolve`
loads what it names. Texts are read at the door, by `read`: inside, a plan is a `Plan` and a cluster a `Cluster`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike, fspath
from typing import Final, NamedTuple, TypedDict, Unpack

import msgspec

from foretell.errors import BadInput, unknown
from foretell.hardware import catalog, quantity
from foretell.hardware.cluster import Cluster
from foretell.hardware.disturbance import CALM, Disturbance
from foretell.model import source
from foretell.model.evaluated import evaluated
from foretell.model.graph import Graph
from foretell.model.optimizer import OPTIMIZERS
from foretell.oracle.training import STEP_ALONE, TrainingRun
from foretell.oracle.verdict import SURE, sure_bytes
from foretell.plan.members import policies, strategies
from foretell.plan.plan import Plan
from foretell.plan.policies.microbatches import Microbatches
from foretell.plan.policies.precision import FORMATS, Precision
from foretell.plan.synonyms import unknown_part
from foretell.plan.text import parse

TOP: Final = 10
"""Plans that a search prints."""


class SearchConstraints(msgspec.Struct, frozen=True, kw_only=True):
    """What the plans of a search have to be like."""

    only: tuple[str, ...] = ()  # strategies and policies; all that are searched if empty
    without: tuple[str, ...] = ()
    also: tuple[str, ...] = ()  # those that are not searched unasked
    fixed: str = ""  # a part of a plan's text that each plan must have: what it leaves out is free
    splits: int = 0  # ranks that split the batch; 0: any number of them

    def __post_init__(self) -> None:
        known = (*strategies(), *policies())
        for name in ("only", "without", "also"):
            for word in getattr(self, name):
                if word not in known:
                    raise unknown_part(word, known, strategies()).within(f"--{name}")
                if word == Precision.word:
                    raise BadInput("precision is given, not searched", where=f"--{name}", fix="--precision bf16")
        for name in ("only", "also"):
            both = sorted(set(getattr(self, name)) & set(self.without))
            if both:
                what = f"{both[0]} is wished for and ruled out"
                raise BadInput(what, where=f"--{name}, --without", fix="one of the two")
        for word in self.also:
            if word in policies() and len(policies()[word].choices()) == 1 and word != Microbatches.word:
                fix = f"--fix '{policies()[word].example}'"
                raise BadInput(f"the search has no choices of {word}", where="--also", fix=fix)


class SearchEffort(msgspec.Struct, frozen=True, kw_only=True):
    """How far a search goes."""

    exhaustive: bool = False  # price every plan, those that provably cannot win too
    seconds: float = float("inf")  # after which it ends with the best so far
    margin: float = 0.1  # plans up to this much slower than the fastest with head-room are priced, too
    chance: float = SURE  # with which plans that are recommended fit
    headroom: float | None = None  # of what a device may use, that they leave free instead

    def __post_init__(self) -> None:
        if not 0.5 <= self.chance < 1:
            raise BadInput(f"a chance of {self.chance:g}", where="--chance", fix="from 50% up to 99.9%: --chance 90%")
        if self.headroom is not None and not 0 <= self.headroom < 1:
            raise BadInput(f"a head-room of {self.headroom:g}", where="--headroom", fix="a share of memory: 0.08, 8%")
        if not self.seconds > 0:
            raise BadInput(f"{self.seconds:g} seconds", where="--seconds", fix="--seconds 20, or 0 for no limit")

    def shared(self, searches: int) -> SearchEffort:
        """That of each of several searches which together take as long as one may."""
        return msgspec.structs.replace(self, seconds=self.seconds / max(1, searches))

    def room(self, usable: float, most: float, spread: float) -> float:
        """Bytes that such plans fill at most, where a run fills so many with room to spare, and can hold so many;
        `spread`: how far memory can be off (`oracle.memory_band`)."""
        if self.headroom is not None:
            return (1 - self.headroom) * usable
        return min(usable, sure_bytes(most, self.chance, spread))


class MeasurementFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured, as files."""

    calibration: str = ""  # a file, none, or empty: the best of this device that is kept here
    profile: str = ""
    anchors: tuple[str, ...] = ()
    stack: str = ""  # the name of one that is kept


class Upgrade(NamedTuple):
    """Better hardware than there is: what of it, how many times as good, and what that makes of a cluster."""

    what: str
    times: float
    change: Callable[[Cluster, float], Cluster]

    def of(self, cluster: Cluster) -> Cluster:
        """The better cluster, with a name of its own: nothing that was remembered of the old one is meant."""
        better = self.change(cluster, self.times)
        return msgspec.structs.replace(better, text=f"{cluster.text}, {self.times:g}x {self.what}")


SHARES: Final = {
    "chance": ("a chance", "0.9, or 90%"),
    "headroom": ("a head-room", "a share of memory: 0.08, or 8%"),
}

FREE: Final = SearchConstraints()
WHOLE: Final = SearchEffort()
UNMEASURED: Final = MeasurementFiles()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides an answer. 0, empty and None: nobody said."""

    model: str  # as it was written; the name of a graph
    graph: Graph | None = None  # the model itself, where it is no text
    cluster: Cluster | None = None
    plan: Plan | None = None
    batch: int = 0  # samples of a step, of all ranks together
    batch_per_rank: int = 0  # for each rank that splits them, instead
    seq: int = 0  # tokens of a sequence
    trainer: str = "pytorch"
    optimizer: str = ""  # the trainer's
    precision: str = ""  # of a search: bf16, or what the device and the trainer have instead
    search: SearchConstraints = FREE
    effort: SearchEffort = WHOLE
    max_memory: float = 0.0  # bytes of a device that may be used; 0: all that it has
    top: int = TOP
    measured: MeasurementFiles = UNMEASURED
    forward: bool = False  # a step is a forward pass: batch inference, evaluation
    run: TrainingRun = STEP_ALONE  # how much to train, and under which conditions
    disturbance: Disturbance = CALM
    upgrade: Upgrade | None = None  # of the hardware, after it was calibrated: corrections are those of the old one
    notes: tuple[str, ...] = ()  # on how it was read

    def __post_init__(self) -> None:
        for value, what, where in (
            (self.batch, "a batch of {}", "--batch"),
            (self.batch_per_rank, "a batch of {} per rank", "--batch-per-rank"),
            (self.top - 1, "a list of {}", "--top"),
        ):
            if value < 0:
                raise BadInput(what.format(value if where != "--top" else self.top), where=where, fix="1 or more")
        if self.seq < 0:
            raise BadInput(f"a sequence of {self.seq}", where="--seq", fix="1 or more tokens: --seq 4096")
        if self.batch and self.batch_per_rank:
            fix = "one of them: --batch 64, or --batch-per-rank 2"
            raise BadInput("a batch of all ranks, and one per rank", where="--batch", fix=fix)
        if self.forward and self.measured.anchors:
            what = "a forward pass alone, and a measured training step to correct it by"
            raise BadInput(what, where="--anchor", fix="one of them")
        if self.measured.stack and self.measured.anchors:
            fix = "one of them; foretell stack NAME --anchor FILE takes the measurement into the stack"
            raise BadInput("a kept stack, and measurements to correct by", where="--stack, --anchor", fix=fix)
        if self.optimizer and self.optimizer not in OPTIMIZERS:
            raise unknown("optimizer", self.optimizer, OPTIMIZERS).within("--optimizer")
        if self.precision and self.precision not in FORMATS:
            raise unknown("precision", self.precision, FORMATS).within("--precision")

    @property
    def place(self) -> Cluster:
        """The cluster, where the question needs one."""
        if self.cluster is None:
            raise BadInput("no cluster is given", where="--on", fix=f"foretell plan {self.model} --on 8xh100")
        return self.cluster

    def changed(self, **changes: object) -> Request:
        """The same question, with something else of it asked."""
        return msgspec.structs.replace(self, **changes)

    def searching(self, **changes: object) -> Request:
        """The same, with other constraints on plans."""
        return self.changed(search=msgspec.structs.replace(self.search, **changes))


class Words(TypedDict, total=False):
    """What a person writes, by the names of the command line's options. None and empty: not said."""

    model: str | PathLike[str] | Graph
    on: str | Cluster | None
    plan: str | Plan | None
    batch: int | None
    batch_per_rank: int | None
    seq: int | None
    trainer: str
    optimizer: str
    precision: str
    only: str | Sequence[str]
    without: str | Sequence[str]
    also: str | Sequence[str]
    fix: str
    max_memory: str | float | None
    chance: str | float | None
    headroom: str | float | None
    seconds: float | None
    exhaustive: bool
    top: int
    calibration: str | PathLike[str]
    profile: str | PathLike[str]
    anchor: Sequence[str | PathLike[str]]
    stack: str
    forward: bool
    run: TrainingRun
    disturbance: Disturbance | None
    notes: tuple[str, ...]


def read(**words: Unpack[Words]) -> Request:
    """The question that a person's words stand for."""
    strange = sorted(words.keys() - Words.__annotations__.keys())
    if strange:
        raise TypeError(f"a request has no word {strange[0]!r}")
    model, plan, seq = words.get("model", ""), words.get("plan"), words.get("seq")
    graph = model if isinstance(model, Graph) else None
    if graph is not None and seq is not None:
        fix = "1 or more tokens, for a model that is named: --seq 4096"
        raise BadInput("a graph has its own sequence", where="--seq", fix=fix)
    named, text = _cluster(words.get("on")), model.name if isinstance(model, Graph) else fspath(model)
    own = text if graph is not None else source.named(text)
    return Request(
        model=own,
        graph=evaluated(graph) if graph is not None and words.get("forward") else graph,
        cluster=named.cluster if named else None,
        plan=read_plan(plan) if plan is not None else None,
        batch=_count(words.get("batch"), "a batch of {}", "--batch", "1 or more, for all ranks together"),
        batch_per_rank=_count(words.get("batch_per_rank"), "a batch of {} per rank", "--batch-per-rank", "1 or more"),
        seq=_count(seq, "a sequence of {}", "--seq", "1 or more tokens: --seq 4096"),
        trainer=words.get("trainer", "pytorch"),
        optimizer=words.get("optimizer", ""),
        precision=words.get("precision", ""),
        search=SearchConstraints(
            only=_several(words.get("only", ()), "only"),
            without=_several(words.get("without", ()), "without"),
            also=_several(words.get("also", ()), "also"),
            fixed=words.get("fix", "").strip(),
        ),
        effort=SearchEffort(
            exhaustive=words.get("exhaustive", False),
            seconds=words.get("seconds") or float("inf"),
            chance=SURE if (said := _share(words.get("chance"), "chance")) is None else said,
            headroom=_share(words.get("headroom"), "headroom"),
        ),
        max_memory=_bytes(words.get("max_memory")),
        top=words.get("top", TOP),
        measured=MeasurementFiles(
            calibration=fspath(words.get("calibration", "")),
            profile=fspath(words.get("profile", "")),
            anchors=tuple(fspath(one) for one in words.get("anchor", ())),
            stack=words.get("stack", ""),
        ),
        forward=words.get("forward", False),
        run=words.get("run", STEP_ALONE),
        disturbance=words.get("disturbance") or CALM,
        notes=(
            *words.get("notes", ()),
            *([f"{text} is {own} of the zoo"] if own != text else []),
            *(named.notes if named else ()),
        ),
    )


def _several(words: str | Sequence[str], name: str) -> tuple[str, ...]:
    if not isinstance(words, str):
        return tuple(words)
    found = tuple(words.replace(",", " ").split())
    if not found:
        raise BadInput(f"{name} names nothing", where=name, fix=f'{name}=["dp", "tp"]')
    return found


def _cluster(on: str | Cluster | None) -> catalog.NamedCluster | None:
    if on is None:
        return None
    return catalog.named(on) if isinstance(on, str) else catalog.NamedCluster(on, ())


def read_plan(plan: str | Plan, where: str = "plan") -> Plan:
    """The plan that a text says."""
    if not isinstance(plan, str):
        return plan
    if not plan.strip():
        raise BadInput("no plan is given", where=where, fix="'dp8:zero3 +bf16'; one rank alone is dp1")
    return parse(plan, where)


def _count(value: int | None, what: str, where: str, fix: str) -> int:
    if value is not None and value < 1:
        raise BadInput(what.format(value), where=where, fix=fix)
    return value or 0


def _bytes(size: str | float | None) -> float:
    return quantity.parse(size, "memory", "--max-memory") if isinstance(size, str) else size or 0.0


def _share(text: str | float | None, name: str) -> float | None:
    """A share: 0.08, or 8 %."""
    if text is None or not isinstance(text, str):
        return text
    number, percent, rest = text.partition("%")
    try:
        found = float(number) / (100 if percent else 1)
    except ValueError:
        found = -1.0
    if rest.strip() or found < 0:
        what, fix = SHARES[name]
        raise BadInput(f"{what} of {text!r}", where=f"--{name}", fix=fix)
    return found
