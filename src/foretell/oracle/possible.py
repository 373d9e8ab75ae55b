"""Whether a measured step can be: nothing is faster than its devices can multiply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from foretell.cost.flops import step_flops
from foretell.cost.price import priced
from foretell.errors import BadInput, ForetellError
from foretell.hardware.cluster import PROCESSORS, Cluster
from foretell.oracle.request import Request
from foretell.oracle.resolve import resolve
from foretell.plan.policies.recompute import Recompute
from foretell.plan.setting import Setting
from foretell.plan.trained import as_trained_by

FASTEST: Final = 4.0
"""Times that a core may be as fast as the one whose figures stand in for those of all processors: it has 64 flops a
cycle at 2.4 GHz, and the fastest of 2026 twice as many at twice the clock."""

WHOLE_STEP: Final = "the seconds of a whole step, and in the file what was run: model, plan, cluster, batch, seq"


class LeastStep(NamedTuple):
    """What a step multiplies, and at which rate at most."""

    model: str
    batch: int
    ranks: int
    device: str
    flops: float  # of a step, without what runs again
    peak: float  # of one device
    precision: str

    @property
    def seconds(self) -> float:
        """That all ranks take at their peak."""
        return self.flops / (self.ranks * self.peak)

    def too_fast(self, seconds: float) -> bool:
        """Whether no such step can have taken so little."""
        return seconds < self.seconds / (FASTEST if self.device in PROCESSORS else 1.0)

    def check(self, seconds: float, where: str, fix: str = WHOLE_STEP) -> None:
        """Refuse a step that is faster than its devices can multiply."""
        if self.too_fast(seconds):
            raise BadInput(
                f"a measured step of {seconds:g} s, and {self.model} needs {self.flops:.3g} FLOP for a batch "
                f"of {self.batch:,}: {self.ranks:,} x {self.device} take {self.seconds:.3g} s at their peak of "
                f"{self.peak:.3g} FLOP/s ({self.precision}): this is {self.seconds / seconds:,.3g} times that",
                where=where,
                fix=fix,
            )


def least_step(setting: Setting, cluster: Cluster) -> LeastStep:
    """Of several kinds of devices, all ranks are taken to be of the fastest."""
    plan = priced(setting, cluster)
    rule, spared = setting.plan.policy(Recompute).rule, plan.program.partition.row.spared
    trained, form = as_trained_by(setting.plan, setting.graph), plan.prices.form
    kinds = {group.device.name: group.device for group in cluster.groups}.values()
    works = [(step_flops(trained, rule, device, form, setting.trainer, spared), device.name) for device in kinds]
    work, device = max(works, key=lambda one: one[0].peak)
    return LeastStep(
        model=setting.graph.name,
        batch=setting.job.batch,
        ranks=setting.plan.ranks,
        device=device,
        flops=work.model * plan.program.plan.microbatches,
        peak=work.peak,
        precision=form.kernels,
    )


def check_measured(asked: Callable[[], Request], seconds: float, where: str) -> None:
    """Refuse a measured step that its devices are not fast enough for; of what nobody can predict nothing is known."""
    try:
        found = resolve(asked())
        least = least_step(found.setting, found.place)
    except ForetellError:
        return
    least.check(seconds, where)
