"""How far an answer can be trusted: what each part of it rests on, and the band that follows.

Until bands are learnt the interval is a declared prior. Each part of a prediction rests on a kind of evidence, and each
kind has a factor: nine runs in ten are taken to lie within it, were everything else right. Errors of different parts
have different causes, so their factors come together as errors do that know nothing of each other: the logarithms
add up in squares.
"""

from __future__ import annotations

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from foretell.cost.collectives import collective_seconds
from foretell.cost.fabric import Group, sharing
from foretell.cost.kernels import kernel_seconds
from foretell.hardware.cluster import Cluster
from foretell.plan.policies.precision import Precision
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute
from foretell.program.local import Kind, Local, kind_of
from foretell.program.outline import Outline
from foretell.program.program import Axis

MEASURED: Final = "measured"
CARRIED: Final = "carried over"
SHEET: Final = "data sheet"

WORDS: Final = {"measured": MEASURED, "measured sweeps": MEASURED, "carried over": CARRIED, "datasheet": SHEET}
"""What prices say of themselves, in the words of an answer."""

RANKED: Final = (MEASURED, CARRIED, SHEET)
"""Kinds of evidence, best first."""

FACTORS: Final[Mapping[str, Mapping[str, float]]] = {
    "compute": {MEASURED: 1.15, CARRIED: 1.35, SHEET: 1.5},
    "operators": {"convolution": 1.8},
    "communication": {MEASURED: 1.15, CARRIED: 1.25, SHEET: 1.5},
    "nodes": {"several": 1.15},
    "software": {MEASURED: 1.1, CARRIED: 1.6},
}
"""The declared prior: a factor for each kind of evidence. They are rounded by hand so that about nine of ten runs of
the published studies lie inside, kind by kind, and a better kind is never wider than a worse one; so those runs are
no test of it. The 90th percentiles that they were chosen by (predicted over measured or its inverse, the scoreboard's
rows without those that met a fault of their cluster):

    kernels       operators     fabric        nodes  trainer         runs   90 %   band  inside
    measured      products      measured      one    fitted           459   1.20   1.25    92 %
    measured      products      measured      more   fitted           523   1.34   1.30    85 %
    measured      products      carried over  more   fitted            95   1.30   1.37    94 %
    measured      products      measured      more   carried over     194   1.52   1.70    96 %
    measured      products      carried over  more   carried over      67   1.61   1.74    91 %
    carried over  products      measured      one    carried over      38   1.86   1.78    84 %
    measured      convolutions  none          one    carried over      43   1.63   2.15   100 %
    carried over  convolutions  none          one    carried over      84   3.23   2.25    87 %

It is too narrow for products on one device under a trainer whose host constants are carried over (176 runs, 46 %
inside) and for convolutions on several nodes under Chainer (155 runs, 54 %). `foretell validate` prints the share."""

TYPICAL: Final = float(2**26)
"""Bytes of the message that a fabric is asked about: about what a bucket of gradients has."""

KINDS: Final = {"pp": "send", "ep": "all-to-all", "spatial": "send"}
"""The collective that an axis lives by, where it is not the sum of an all-reduce."""

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
    nodes: int  # that the plan takes

    @property
    def network(self) -> str:
        """The weakest of what axes rest on; empty where nothing travels."""
        return max(self.communication.values(), key=RANKED.index, default="")

    def band(self) -> float:
        """The factor that nine runs in ten are taken to lie within."""
        return math.exp(math.hypot(*(math.log(factor) for factor in self._factors())))

    def interval(self, seconds: float) -> tuple[float, float]:
        """From the shortest to the longest time that would be no surprise."""
        return seconds / self.band(), seconds * self.band()

    def _factors(self) -> Iterator[float]:
        yield FACTORS["compute"][self.compute]
        yield FACTORS["operators"].get(self.products, 1.0)
        yield FACTORS["communication"].get(self.network, 1.0)
        yield FACTORS["nodes"]["several"] if self.nodes > 1 else 1.0
        yield FACTORS["software"][self.software]

    def provenance(self) -> dict[str, str]:
        """How each part of the answer was obtained: measured, carried over or data sheet, and from what."""
        kernels = {
            MEASURED: f"kernels of the {self.device}",
            CARRIED: f"kernels of devices like the {self.device}, by the ratio of their peaks",
            SHEET: f"what any device reaches of the peaks of the {self.device}",
        }
        links = {
            MEASURED: "sweeps over these links",
            CARRIED: "sweeps over links or collectives like these",
            SHEET: "nominal figures of the links",
        }
        fitted = {
            MEASURED: f"constants of {self.trainer}, fitted to published runs of it",
            CARRIED: f"constants of {self.trainer}, read off its code or taken from other trainers",
        }
        found = {"compute": f"{self.compute}: {kernels[self.compute]}"}
        found |= {f"exposed.{axis}": f"{word}: {links[word]}" for axis, word in self.communication.items()}
        found["host"] = f"{self.software}: {fitted[self.software]}"
        found["memory"] = f"{self.software}: lifetimes of the program, {fitted[self.software]}"
        found["interval"] = f"a declared prior by kind of evidence: a factor of {self.band():.2f} either way"
        return found


def evidence(outline: Outline, cluster: Cluster) -> Evidence:
    """What a prediction of this plan rests on."""
    setting = outline.setting
    form = setting.plan.policy(Precision).format
    main = _main(outline)
    known = kernel_seconds(main, cluster.device, form, setting.trainer).provenance if main else "datasheet"
    return Evidence(
        device=cluster.device.name,
        products=main.operator if main else "",
        compute=WORDS[known],
        communication={axis.name: _fabric(axis, cluster) for axis in outline.mesh},
        software=software(setting.trainer),
        trainer=setting.trainer.name,
        nodes=-(-setting.plan.ranks // cluster.ranks_per_node),
    )


def _main(outline: Outline) -> Compute | None:
    """The largest forward computation of the kind of operators that has most matrix work."""
    times: Counter[Kind] = Counter()
    for run in (run for runs in outline.cutting.row.runs for run in runs):
        times[kind_of(run)] += run.times
    work: dict[str, float] = defaultdict(float)
    largest: dict[str, Compute] = {}
    for kind, count in times.items():
        for operator, (matrix, action) in _products(outline.local, kind).items():
            work[operator] += matrix * count
            if operator not in largest or action.cost.matrix > largest[operator].cost.matrix:
                largest[operator] = action
    return largest[max(work, key=work.__getitem__)] if work else None


def _products(local: Local, kind: Kind) -> dict[str, tuple[float, Compute]]:
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


@functools.lru_cache(maxsize=4096)
def _fabric(axis: Axis, cluster: Cluster) -> str:
    """How the figures of the links were obtained that an axis crosses."""
    group = Group(min(axis.ranks, max(1, cluster.ranks // axis.stride)), axis.stride)
    kind = KINDS.get(axis.name.partition(".")[0], "all-reduce")
    price = collective_seconds(kind, TYPICAL, group, cluster, sharing=sharing(group, cluster))
    return WORDS[str(price.provenance)]


def software(found: Trainer) -> str:
    """Measured where constants of the trainer were fitted to published runs of it; else they are another's."""
    own = found.based_on and any(source.startswith(FITTED) for _, source in found.sources)
    return MEASURED if own else CARRIED
