"""A profile in a prediction: what each layer was measured to take, in the place of what formulas say of it.

A layer's kernels are multiplied by measured over predicted of the layer as it was timed: where sizes agree the layer
takes what was measured, elsewhere (another batch, a share of it) it changes as formulas do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import msgspec

from foretell.cost.calibrated import told_by
from foretell.cost.kernels import kernel_seconds, update_seconds
from foretell.cost.samples import LayerSample, Profile
from foretell.errors import BadInput
from foretell.hardware.cluster import Cluster, Device
from foretell.model.optimizer import update_rule
from foretell.oracle.request import Request
from foretell.oracle.resolve import resolve
from foretell.plan.policies.precision import FORMATS, Precision
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute, Update
from foretell.program.lower import lower
from foretell.program.program import Program

LEAST: Final = 0.25
"""Share of a layer's time that has to be its kernels', for it to say something of them."""


def with_profile(setting: Setting, cluster: Cluster, model: str, found: Profile) -> Cluster:
    """The cluster whose device takes what was measured for the layers of this model."""
    device = cluster.device
    if found.machine.device != device.name:
        what = f"this profile is of {found.machine.device}, and {cluster.text} has {device.name}"
        raise BadInput(what, where="--profile", fix=f"foretell profile on a {device.name}")
    if found.model != model:
        raise BadInput(f"this profile is of {found.model}", where="--profile", fix=f"foretell profile {model}")
    factors = layer_factors(device, setting.trainer, found)
    sources = {**device.sources, "measured": told_by(found.date, found.machine)}
    profiled = msgspec.structs.replace(device, profiled=factors, sources=sources)
    groups = tuple(msgspec.structs.replace(group, device=profiled) for group in cluster.groups)
    return msgspec.structs.replace(cluster, groups=groups)


def layer_factors(device: Device, trainer: Trainer, found: Profile) -> dict[str, float]:
    """Measured over predicted, by path of a layer and pass."""
    timed: dict[str, list[float]] = defaultdict(list)
    said = predicted_layers(device, trainer, found)
    places = {key.rpartition(" ")[0] for key in said}
    for one in found.samples:
        if isinstance(one.about, LayerSample) and one.about.part != "update":
            timed[f"{_home(one.about.path, places)} {one.about.part}"].append(one.p50)
    factors: dict[str, float] = {}
    for key, seconds in timed.items():
        if key in said:
            own, started = said[key]
            measured = sum(seconds) / len(seconds) - started
            if own > 0 and measured >= LEAST * (measured + started):
                factors[key] = measured / own
    return factors | _update_factor(device, found)


def predicted_layers(device: Device, trainer: Trainer, found: Profile) -> dict[str, tuple[float, float]]:
    """Predicted seconds of each timed layer and pass, and how much of starting its kernels costs beside them."""
    paths = sorted(
        {one.about.path for one in found.samples if isinstance(one.about, LayerSample)}, key=len, reverse=True
    )
    request = Request(model=found.model, plan=parse(f"dp1 +{found.precision}"), batch=found.batch)
    setting = msgspec.structs.replace(resolve(request).setting, trainer=trainer)
    program = lower(setting)
    form = setting.plan.policy(Precision).format
    said: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for action in _actions(program):
        home = next((path for path in paths if _under(action.path, path)), "")
        if home:
            price = kernel_seconds(action, device, form, trainer)
            key = f"{home} {'forward' if action.part == 'forward' else 'backward'}"
            own, started = said[key]
            said[key] = own + float(price.seconds - price.launch), started + float(price.launch)
    return dict(said)


def _actions(program: Program) -> Iterable[Compute]:
    for kind in program.partition.kinds:
        for actions in program.rank_program.actions(kind):
            yield from (action for action in actions if isinstance(action, Compute))


def _under(path: str, home: str) -> bool:
    return path == home or path.startswith(f"{home}.")


def _home(path: str, known: Iterable[str]) -> str:
    """The layer that stands for this one in the graph, where equal layers are written once: layers.0 for layers.3."""
    places = set(known)
    if path in places:
        return path
    stem, dot, last = path.rpartition(".")
    if dot and last.isdigit():
        for number in range(int(last) - 1, -1, -1):
            if f"{stem}.{number}" in places:
                return f"{stem}.{number}"
    return path


def _update_factor(device: Device, found: Profile) -> dict[str, float]:
    form = FORMATS[found.precision]
    for one in found.samples:
        if isinstance(one.about, LayerSample) and one.about.part == "update":
            count = one.about.parameters
            cost = update_rule("adamw").cost(count, dict.fromkeys("wgs", form.weight))
            price = update_seconds(Update("adamw", count, cost), device, form)
            own = float(price.seconds - price.launch)
            return {"update": max(one.p50 - float(price.launch), LEAST * one.p50) / own} if own > 0 else {}
    return {}
