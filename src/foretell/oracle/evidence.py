"""How far an answer can be trusted: what each part of it rests on, and the band that follows (`bands.py`)."""

from __future__ import annotations

import functools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from foretell.caches import forgettable
from foretell.cost.collectives import collective_seconds
from foretell.cost.fabric import Group, sharing
from foretell.cost.kernels import kernel_seconds, timed
from foretell.hardware.cluster import Cluster, Device, StackSays
from foretell.oracle.bands import ALWAYS, LeftOpen, bands
from foretell.oracle.carried import HOST, alike_deviation, left_open, seconds_of
from foretell.oracle.similar import seen
from foretell.plan.lacking import split
from foretell.plan.policies.precision import Precision
from foretell.plan.trainer import Trainer, era, names
from foretell.plan.trainer_levels import levels
from foretell.program.action import Compute
from foretell.program.expanded import Axis
from foretell.program.program import Program
from foretell.program.rank_program import BlockKind, RankProgram, kind_of
from foretell.units import show_factor

MEASURED: Final = "measured"
CARRIED: Final = "carried over"
SHEET: Final = "data sheet"

WORDS: Final = {"measured": MEASURED, "measured sweeps": MEASURED, "carried over": CARRIED, "datasheet": SHEET}
"""What prices say of themselves, in the words of an answer."""

RANKED: Final = (MEASURED, CARRIED, SHEET)
"""Kinds of evidence, best first."""

HERE: Final = "measured here"
"""How the source of a constant begins that a calibration replaced."""

PUBLISHED: Final = "fitted to published runs of it"
"""How a trainer's own constants were found, unless they were measured here."""

VARIANTS: Final = 3
"""Of a kind of kernels in all its variants: operator, part, precision."""

TYPICAL: Final = float(2**26)
"""Bytes of the message that a fabric is asked about: about what a bucket of gradients has."""

KINDS: Final = {"pp": "send", "ep": "all-to-all", "spatial": "send"}
"""The collective that an axis lives by, where it is not the sum of an all-reduce."""

PROCESSOR: Final = 2.0
"""A factor for processors that were not calibrated, which no published run is on: it is set, not learnt. Steps of nine
small models were 6 to 90 % off without a calibration (docs/measure.md)."""

NARROWER: Final = (
    (("kernels", "software", "processor"), "`foretell calibrate` on one {device}"),
    (("links",), "nccl-tests over these links (--anchor)"),
)
"""What takes reasons away."""

SHOWN: Final = 1.005
"""A reason is told that adds more than half a per cent."""

NOTABLE: Final = 0.98
"""A way is told that narrows the band to this share of it."""

TRAINER: Final = "trainer"
"""The reason to doubt a prediction of a trainer of which no run was measured."""

BRIEFLY: Final = {
    ALWAYS: "for any run",
    "kernels": "kernels not timed on this device",
    "convolutions": "convolutions",
    "software": "trainer's constants not fitted",
    "links": "links not timed",
    "ranks": "several GPUs",
    "nodes": "several nodes",
    "messages": "messages between convolutions",
    TRAINER: "no measured runs of the trainer",
    "processor": "CPU not calibrated",
    "calibration": "spread of the calibration",
}
"""Reasons in few words, as they stand behind an interval."""

FITTED: Final = ("fit to", "fits to", "one set of constants")
"""How the source of a constant begins that was chosen with measured runs of the trainer in view."""


class Evidence(NamedTuple):
    """What the parts of one prediction rest on: words of RANKED."""

    device: str  # its name
    products: str  # the operators that most of the matrix work is in: matmul, convolution ...
    compute: str
    communication: dict[str, str]  # by axis
    software: str
    trainer: str  # its name
    levels: tuple[str, ...]  # it, and the software that it is based on but PyTorch
    nodes: int  # that the plan takes
    waits: float  # share of the step that is messages which nothing hides
    spread: float = 0.0  # of a calibration: how far its samples are from what the others say of them
    measured: str = ""  # when and with what it was made
    constants: str = PUBLISHED  # how the trainer's were found, where they are its own
    stack: StackSays | None = None  # measured steps that correct it
    seconds: tuple[float, float, float] = (1.0, 0.0, 0.0)  # of the step: what computes, messages, the host

    @property
    def network(self) -> str:
        """The weakest of what axes rest on; empty where nothing travels."""
        return max(self.communication.values(), key=RANKED.index, default="")

    @property
    def reasons(self) -> Iterator[tuple[str, float]]:
        """Why the prediction can be wrong: words of `bands.REASONS`, and how much of each applies.

        That is two where nothing but a data sheet is known.
        """
        convolutions = ["convolutions"] if self.products == "convolution" else []
        fitted_elsewhere = self.constants == PUBLISHED and not seen(self.trainer, convolutions)
        told = {
            ALWAYS: 1.0,
            "kernels": RANKED.index(self.compute),
            "convolutions": len(convolutions),
            "software": self.software != MEASURED or fitted_elsewhere,
            "links": RANKED.index(self.network) if self.network else 0,
            "ranks": bool(self.communication),
            "nodes": self.nodes > 1,
            "messages": self.waits * len(convolutions),
        }
        yield from ((reason, float(much)) for reason, much in told.items() if much)

    def factors(self, without: Collection[str] = ()) -> dict[str, float]:
        """What each reason adds to the band; `without` are reasons that are gone."""
        found: dict[str, float] = {}
        learnt, width = bands().predicted, 0.0
        own = learnt.of_software(self.levels)
        for reason, much in self.reasons:
            if reason not in without:
                width += much * learnt.widths[reason]
                found[reason] = math.exp(learnt.stretch * own * much * learnt.widths[reason])
        if not seen(self.trainer, found) and learnt.unseen > learnt.stretch:
            found[TRAINER] = math.exp((learnt.unseen - learnt.stretch) * own * width)
        if self.device == "cpu-core" and self.compute == SHEET and "processor" not in without:
            found["processor"] = PROCESSOR
        if self.spread:
            found["calibration"] = math.exp(self.spread)
        return found

    def band(self) -> float:
        """The factor, either way, that nine runs in ten lie within."""
        plain = math.prod(self.factors().values())
        return plain if self.stack is None else self._after(self.stack)

    def _after(self, stack: StackSays) -> float:
        """The same after measured steps: learnt from pairs of published runs, one of which corrected the other."""
        unlike = left_open(stack.between, stack.own, self.seconds)
        left = LeftOpen(unlike, stack.surprise, stack.elsewhere, self._waiting)
        return left.band(math.prod(self.factors().values()), self.factors(), self.levels)

    @property
    def _waiting(self) -> float:
        """Share of the step that waits for the host."""
        return self.seconds[HOST] / sum(self.seconds)

    def reasons_told(self) -> dict[str, float]:
        """Factors by reason, whose product is the band."""
        found = self.factors()
        return found if self.band() == math.prod(found.values()) else {"stack": self.band()}

    def interval(self, seconds: float) -> tuple[float, float]:
        """From the shortest to the longest time that would be no surprise."""
        return seconds / self.band(), seconds * self.band()

    def narrower(self) -> tuple[str, ...]:
        """What would narrow the band, the most helpful first."""
        factors, band = self.factors(), self.band()
        if self.stack is not None:
            return ()
        alike = LeftOpen(*alike_deviation(bands().carried), elsewhere=False, host=self._waiting)
        same = alike.band(math.prod(factors.values()), factors, self.levels)
        ways = [(same, "a measured step of this model on as many GPUs (--anchor)")]
        for reasons, what in NARROWER:
            left = math.prod(self.factors(reasons).values())
            ways.append((left, what.format(device=self.device)))
        return tuple(f"{show_factor(left)} with {what}" for left, what in sorted(ways) if left < band * NOTABLE)

    def provenance(self) -> dict[str, str]:
        """How each part of the answer was obtained: measured, carried over or data sheet, and from what."""
        kernels = {
            MEASURED: f"kernels of the {self.device}" + (f", {self.measured}" if self.measured else ""),
            CARRIED: f"kernels of devices like the {self.device}, scaled by the ratio of their peaks",
            SHEET: f"what other devices reach of their peaks, for those of the {self.device}",
        }
        links = {
            MEASURED: "sweeps of collectives over these links",
            CARRIED: "sweeps of collectives over links like these",
            SHEET: "nominal bandwidth and latency of the links",
        }
        fitted = {
            MEASURED: f"constants of {self.trainer}, {self.constants}",
            CARRIED: f"constants of {self.trainer}, from its source code or from other trainers",
        }
        found = {"compute": f"{self.compute}: {kernels[self.compute]}"}
        found |= {f"exposed.{axis}": f"{word}: {links[word]}" for axis, word in self.communication.items()}
        found["host"] = f"{self.software}: {fitted[self.software]}"
        found["memory"] = f"{self.software}: lifetimes of tensors in the step, {fitted[self.software]}"
        learnt = bands().predicted
        found["interval"] = (
            self._after_told(self.stack)
            if self.stack is not None
            else (
                f"{show_factor(self.band())} (90 % interval), "
                f"from {learnt.runs:,} measured runs of {learnt.sources} studies: "
                + ", ".join(
                    f"x{factor:.2f} {BRIEFLY[reason]}" for reason, factor in self.factors().items() if factor > SHOWN
                )
            )
        )
        return found

    def _after_told(self, stack: StackSays) -> str:
        before = math.prod(self.factors().values())
        return (
            f"{show_factor(self.band())} (90 % interval), by measured steps of stack {stack.name}: {stack.runs}; "
            f"{show_factor(before)} without them"
        )


def evidence(program: Program, cluster: Cluster, breakdown: Mapping[str, float], step: float) -> Evidence:
    """What a prediction of this plan rests on; `breakdown` is that of its step."""
    waits = sum(seconds for part, seconds in breakdown.items() if part.startswith("exposed.")) / step
    setting = program.setting
    form = setting.plan.policy(Precision).format
    main = _main(program)
    device = cluster.device
    known = kernel_seconds(main, device, form, setting.trainer).provenance if main else "datasheet"
    return Evidence(
        device=device.name,
        products=main.operator if main else "",
        compute=WORDS[known],
        communication={axis.name: _fabric(axis, cluster) for axis in program.mesh},
        software=software(setting.trainer),
        trainer=setting.trainer.name,
        levels=software_levels(setting.trainer),
        nodes=-(-setting.plan.ranks // cluster.ranks_per_node),
        waits=waits,
        spread=spread(device, main.operator) if main and device.measured else 0.0,
        measured=device.sources.get("measured", "") if main and timed(main, device, form, setting.trainer) else "",
        constants=_host_source(setting.trainer) if _is_measured_here(setting.trainer) else PUBLISHED,
        stack=cluster.stack,
        seconds=seconds_of(breakdown),
    )


def spread(device: Device, operator: str) -> float:
    """How far samples of an operator are from what the others say of them, in the middle: errors of single kernels."""
    kinds = [kind for kind in device.measured if kind.split()[0] == operator and len(kind.split()) == VARIANTS]
    errors = [abs(log) for kind in kinds for log in device.measured[kind].residuals()]
    return statistics.median(errors) if errors else 0.0


def _main(program: Program) -> Compute | None:
    """The largest forward computation of the kind of operators that has most matrix work."""
    times: Counter[BlockKind] = Counter()
    for run in (run for runs in program.partition.row.runs for run in runs):
        times[kind_of(run)] += run.times
    work: dict[str, float] = defaultdict(float)
    largest: dict[str, Compute] = {}
    for kind, count in times.items():
        for operator, (matrix, action) in _products(program.rank_program, kind).items():
            work[operator] += matrix * count
            if operator not in largest or action.cost.matrix > largest[operator].cost.matrix:
                largest[operator] = action
    return largest[max(work, key=work.__getitem__)] if work else None


def _products(local: RankProgram, kind: BlockKind) -> dict[str, tuple[float, Compute]]:
    """Of each operator of a kind of layer its matrix work in all, and the largest computation; found once."""
    key = ("products", kind)
    if key not in local.priced:
        found: dict[str, tuple[float, Compute]] = {}
        for action in local.actions(kind)[0]:
            if isinstance(action, Compute):
                work, largest = found.get(action.operator, (0.0, action))
                more = action if action.cost.matrix > largest.cost.matrix else largest
                found[action.operator] = (work + float(action.cost.matrix), more)
        local.priced[key] = found
    return local.priced[key]


@forgettable
@functools.lru_cache(maxsize=4096)
def _fabric(axis: Axis, cluster: Cluster) -> str:
    """How the figures of the links were obtained that an axis crosses."""
    group = Group(min(axis.ranks, max(1, cluster.ranks // axis.stride)), axis.stride)
    kind = KINDS.get(axis.name.partition(".")[0], "all-reduce")
    price = collective_seconds(kind, TYPICAL, group, cluster, sharing=sharing(group, cluster))
    return WORDS[str(price.provenance)]


def software(found: Trainer) -> str:
    """Measured where constants of the trainer were fitted to published runs of it, or here; else they are another's.

    Runs of the software that it is based on count, unless that is PyTorch, or a version of another year.
    """
    same = (level for level in levels(found) if level.based_on and _era(level.name) == _era(found.name))
    own = any(source.startswith(FITTED) for level in same for _, source in level.sources)
    return MEASURED if own or _is_measured_here(found) else CARRIED


def software_levels(found: Trainer) -> tuple[str, ...]:
    """The trainer and the software that it is based on, whose runs say how far it is off; PyTorch is below all."""
    return tuple(level.name for level in levels(found) if level.based_on) or (found.name,)


@functools.cache
def _era(name: str) -> str:
    """A trainer of one's own is of today."""
    return era(name) if split(name)[0] in names() else ""


def _host_source(found: Trainer) -> str:
    return dict(found.sources).get("host.launch", "")


def _is_measured_here(found: Trainer) -> bool:
    """Whether a calibration replaced the host's time."""
    return _host_source(found).startswith(HERE)
