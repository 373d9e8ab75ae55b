"""What a calibration timed: the raw samples, each with what it is a sample of.

A sample of a kernel holds the operator itself with its sizes, so that a later, better formula is corrected by old
samples as well as by new ones: nothing that was fitted is stored for use, only for people to read.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from foretell.cost.wrapped_timed import AGAIN, SPLIT_BACKWARD, SPLIT_FORWARD, UNIT
from foretell.errors import BadInput
from foretell.model.operator import Operator
from foretell.model.operators import any_operator
from foretell.plan.policies.precision import FORMATS, Format
from foretell.program.action import Compute
from foretell.records.record import Record

T = TypeVar("T", bound="Calibration | Profile")

TYPES: Final = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}
"""Precisions that kernels are timed in, with the bytes of an element."""

Size: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Precision: TypeAlias = Literal["fp32", "tf32", "bf16", "fp16"]
PartName: TypeAlias = Literal["forward", "input_gradient", "weight_gradient"]

BACKWARD: Final = ("input_gradient", "weight_gradient")


def form_of(precision: str) -> Format:
    """A precision as a whole step has it that keeps everything in it."""
    if precision == "fp16":
        return msgspec.structs.replace(FORMATS["bf16:pure"], activation="fp16", kernels="fp16", other_kernels="fp16")
    return FORMATS["bf16:pure" if precision == "bf16" else precision]


class Kernel(msgspec.Struct, frozen=True, kw_only=True, tag="kernel"):
    """One operator, some of its parts in one call."""

    operator: dict[str, Any]  # as graphs write it
    sizes: dict[str, Size]
    widths: dict[str, Count]  # bytes of an element of each operand
    parts: tuple[PartName, ...]
    precision: Precision
    layout: str = "first"  # of images: where their channels are
    density: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    autograd: bool = False  # called by autograd, which takes its own time
    sustained: bool = False  # among others that kept the device at its limit of power, rather than alone

    def actions(self) -> Iterator[Compute]:
        """What of it costs anything, as programs write it."""
        operator = _operator(msgspec.json.encode(self.operator))
        for part in self.parts:
            cost = operator.part(part, self.sizes, self.widths)
            if cost.launches or cost.read:
                tag = str(type(operator).__struct_config__.tag)
                yield Compute("layers.0", tag, part, self.sizes, cost, density=self.density)


class UpdateSample(msgspec.Struct, frozen=True, kw_only=True, tag="update"):
    """One step of an optimizer on some tensors."""

    rule: str
    parameters: Size
    tensors: Count
    precision: Precision
    way: str  # foreach, fused, one by one


class CollectiveSample(msgspec.Struct, frozen=True, kw_only=True, tag="collective"):
    """A collective among all ranks of this machine."""

    kind: str
    ranks: Size
    payload: Size  # bytes that one rank contributes
    worked: bool = False  # whether ranks came to it from computing, and it counts from the last one on
    row: bool = False  # one of many with computing between: what all together take longer, a message each


class Transfer(msgspec.Struct, frozen=True, kw_only=True, tag="copy"):
    """A copy between the host's memory and the device's."""

    bytes: Count
    to_device: bool
    pinned: bool


class StepSample(msgspec.Struct, frozen=True, kw_only=True, tag="step"):
    """A training step so small that starting its kernels is all that it costs."""

    model: str
    batch: Size
    launches: Annotated[float, msgspec.Meta(gt=0)]  # that the program counts
    cold: bool = False  # with other data going through the caches in between; those seconds do not count
    part: str = ""  # the pass that was timed, with other data before every operator; empty: both, and before each layer


class LayerSample(msgspec.Struct, frozen=True, kw_only=True, tag="layer"):
    """One pass through one layer of a model."""

    path: str  # as modules name it; empty for the update of all weights
    part: str  # forward, backward, update
    parameters: Count = 0


class FigureSample(msgspec.Struct, frozen=True, kw_only=True, tag="figure"):
    """A number that is no time: a factor, a share, bytes."""

    name: str
    unit: str = ""
    ranks: Count = 0  # that were busy; 0: all of the machine's, or it is no matter of ranks
    bytes: Count = 0  # that each of them moved; 0: it is no matter of bytes


About: TypeAlias = Kernel | UpdateSample | CollectiveSample | Transfer | StepSample | LayerSample | FigureSample


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What was timed, and every time it took, in seconds (of a figure: the number)."""

    probe: str
    about: About
    values: Annotated[tuple[float, ...], msgspec.Meta(min_length=1)]
    p10: float
    p50: float
    p90: float
    lengths: tuple[Count, ...] = ()  # how many of the values each pass of a calibration gave; empty: there was one

    @property
    def mean(self) -> float:
        return expected(self.values)

    @property
    def by_pass(self) -> Iterator[tuple[float, ...]]:
        """The values that were timed one soon after the other."""
        at = 0
        for length in self.lengths or (len(self.values),):
            yield self.values[at : at + length]
            at += length

    def and_again(self, other: Sample) -> Sample:
        """The same thing, timed in another pass as well."""
        lengths = (*(self.lengths or (len(self.values),)), len(other.values))
        both = sample(self.probe, self.about, (*self.values, *other.values))
        return msgspec.structs.replace(both, lengths=lengths)

    @property
    def key(self) -> bytes:
        """What tells samples apart: the same thing is not timed twice."""
        return msgspec.json.encode((self.probe, self.about), order="deterministic")


def sample(probe: str, about: About, values: Sequence[float]) -> Sample:
    """A sample with its spread."""
    ordered = sorted(values)
    return Sample(
        probe=probe,
        about=about,
        values=tuple(values),
        p10=_at(ordered, 0.1),
        p50=_at(ordered, 0.5),
        p90=_at(ordered, 0.9),
    )


CUT: Final = 10
"""Of so many values the highest and the lowest are left out of their mean."""


def expected(values: Sequence[float]) -> float:
    """What a call takes as one of many. A step is their sum, and the middle of a sum is the sum of means: where a few
    calls take much longer than the others, medians would leave these out."""
    ordered = sorted(values)
    out = len(ordered) // CUT
    return statistics.fmean(ordered[out : len(ordered) - out])


def _at(ordered: Sequence[float], share: float) -> float:
    """The value below which so large a share lies, between two by straight line."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


class MeasuredMachine(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured, as far as it can be told from outside."""

    device: str  # its name in the catalogue
    title: str
    kind: str  # cuda or cpu
    count: Size  # such devices, or cores, that one machine has
    memory_bytes: Count
    clocks: dict[str, float] = {}  # Hz, as reported before and after
    versions: dict[str, str] = {}
    host: str = ""  # what it calls itself; records of before do not say


class SampleFit(msgspec.Struct, frozen=True, kw_only=True):
    """How well samples of one kind are told by the others: for people to read."""

    samples: int
    factor: float  # measured over formula, in the median
    median: float  # of the errors of samples that were left out, one at a time
    p90: float


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a calibration's record."""

    machine: MeasuredMachine
    samples: tuple[Sample, ...]
    complete: bool  # whether every case of every probe was timed, and not in a hurry
    quick: bool = False
    date: str = ""  # UTC, ISO 8601: when it was finished
    fits: dict[str, SampleFit] = {}

    @property
    def under_power(self) -> bool:
        """Whether kernels were timed among others, too."""
        return any(isinstance(one.about, Kernel) and one.about.sustained for one in self.samples)

    def figures(self, name: str) -> list[FigureSample]:
        """What was measured under a name: of how many ranks, of how many bytes."""
        return [one.about for one in self._named(name) if isinstance(one.about, FigureSample)]

    def figure(self, name: str, otherwise: float = 0.0) -> float:
        """A measured number that is no time."""
        values = [one.p50 for one in self._named(name)]
        return statistics.median(values) if values else otherwise

    def among(self, name: str, ranks: int, alone: float, size: int = 0) -> float:
        """A figure as it is with so many ranks busy: between the two numbers that were tried, by straight line."""
        known: dict[int, list[float]] = {}
        for one in self._named(name):
            if isinstance(one.about, FigureSample) and one.about.bytes == size:
                known.setdefault(one.about.ranks or self.machine.count, []).append(one.mean)
        known.setdefault(1, [alone])
        below = max(count for count in known if count <= max(1, ranks))
        above = min((count for count in known if count >= ranks), default=below)
        low, high = (statistics.median(known[count]) for count in (below, above))
        return low if below == above else low + (high - low) * (ranks - below) / (above - below)

    def _named(self, name: str) -> list[Sample]:
        return [one for one in self.samples if isinstance(one.about, FigureSample) and one.about.name == name]


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a profile's record: one model on one device."""

    machine: MeasuredMachine
    model: str
    batch: Size
    precision: Precision
    samples: tuple[Sample, ...]
    peak_bytes: float  # tensors at the fullest moment of a step
    gamma: float  # that over the sum of all layers: what reuse of memory leaves (Kahira et al. 2021, section 4.5)
    date: str = ""


def profile(record: Record, where: str = "") -> Profile:
    """What a record holds, when it is one of a profile."""
    return _content(record, "profile", Profile, where)


def calibration(record: Record, where: str = "") -> Calibration:
    """What a record holds, when it is one of a calibration."""
    return _content(record, "calibration", Calibration, where)


def _content(record: Record, kind: str, form: type[T], where: str) -> T:
    if record.kind != kind:
        verb = {"calibration": "calibrate", "profile": "profile"}[kind]
        fix = f"a file that `foretell {verb} --out FILE` wrote"
        raise BadInput(f"this is the record of a {record.kind}", where=where, fix=fix)
    try:
        found = msgspec.convert(record.content, form)
    except msgspec.ValidationError as problem:
        raise BadInput(f"not the record of a {kind}: {problem}", where=where) from None
    for at, one in enumerate(found.samples):
        if wrong := _wrong_with(one):
            raise BadInput(f"not the record of a {kind}: sample {at} ({one.probe}): {wrong}", where=where)
    return found


MAY_BE_ZERO: Final = ("overlap", "late", "context", "communicator", UNIT, AGAIN, SPLIT_FORWARD, SPLIT_BACKWARD)
"""Figures that a machine may have none of, and differences of two times; all others are times and factors."""

LONGEST: Final = 1e15
"""Above every time in seconds, factor and number of bytes of one device."""


def _wrong_with(one: Sample) -> str:
    """What no measurement gives: factors are divided by it, and their logarithms are taken."""
    about = one.about
    row = isinstance(about, CollectiveSample) and about.row  # a difference of two times: it may be below zero
    least = -LONGEST if row else 0.0
    zero = row or (isinstance(about, FigureSample) and about.name in MAY_BE_ZERO)
    for value in (*one.values, one.p10, one.p50, one.p90):
        if not least <= value <= LONGEST or (value == 0 and not zero):
            return f"it has a value of {value}"
    if isinstance(about, Kernel):
        try:
            tuple(about.actions())
        except (ArithmeticError, LookupError, TypeError, ValueError) as problem:  # a ValidationError is a ValueError
            return f"its operator cannot be priced: {problem!r}"
    return ""


@functools.lru_cache(maxsize=4096)
def _operator(text: bytes) -> Operator:
    return _reader().decode(text)


@functools.cache
def _reader() -> Any:
    return msgspec.json.Decoder(any_operator())
