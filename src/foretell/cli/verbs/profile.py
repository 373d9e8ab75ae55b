"""foretell profile: what each layer of a model takes on this device, as a record that predictions use."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foretell.cli.measuring import StatusLine, needs_torch
from foretell.cli.table import fit, table
from foretell.units import show_bytes, show_count

if TYPE_CHECKING:
    from foretell.cost.samples import Profile

SHOWN = 24
"""Layers on the page, the slowest ones."""


@click.command("profile", short_help="Time the layers of a model on this device.")
@click.argument("model")
@click.option("--batch", type=click.IntRange(min=1), default=1, metavar="N", help="Samples (1).")
@click.option("--device", type=click.Choice(["cuda", "cpu"]), help="Where to run it (a GPU, if there is one).")
@click.option("--quick", is_flag=True, help="Fewer repetitions.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="The record's file.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(model: str, batch: int, device: str | None, quick: bool, out: Path | None, as_json: bool) -> None:
    """Time the layers of MODEL on this device: forward, backward and update.

    MODEL is one of the zoo, or path/to/file.py:factory. `foretell predict MODEL
    --profile FILE` then uses the measurements instead of formulas.
    """
    if out is not None:
        from foretell.files import check_file

        check_file(out, "--out")
    needs_torch("timing a model")
    import msgspec

    from foretell.calibration.measure import chosen
    from foretell.calibration.profile import profile
    from foretell.records import store
    from foretell.records.home import home
    from foretell.records.record import record

    line = StatusLine()
    try:
        found = profile(model, batch, device or chosen(), quick, line.watch)
    finally:
        line.end()
    made = record(
        "profile", msgspec.to_builtins(found), model=model, cluster="this-machine", versions=found.machine.versions
    )
    if out is None:
        out = store.write(home(), made)
    else:
        store.save(out, made)
    click.echo(msgspec.json.encode({"record": str(out), **_told(found)}).decode() if as_json else _page(found, out))


def _layers(found: Profile) -> dict[str, dict[str, float]]:
    """Seconds of each layer, by pass."""
    from foretell.cost.samples import LayerSample

    layers: dict[str, dict[str, float]] = defaultdict(dict)
    for one in found.samples:
        if isinstance(one.about, LayerSample):
            layers[one.about.path][one.about.part] = one.p50
    return dict(layers)


def _told(found: Profile) -> dict[str, Any]:
    layers = _layers(found)
    update = layers.pop("", {}).get("update", 0.0)
    return {
        "model": found.model,
        "batch": found.batch,
        "device": found.machine.device,
        "layers": layers,
        "forward": sum(one.get("forward", 0.0) for one in layers.values()),
        "backward": sum(one.get("backward", 0.0) for one in layers.values()),
        "update": update,
        "peak_bytes": found.peak_bytes,
        "gamma": found.gamma,
    }


def _page(found: Profile, out: Path) -> str:
    told = _told(found)
    layers: dict[str, dict[str, float]] = told["layers"]
    slowest = sorted(layers.items(), key=lambda item: -sum(item[1].values()))
    rows = [
        [fit(path, 40), _milliseconds(one.get("forward", 0.0)), _milliseconds(one.get("backward", 0.0))]
        for path, one in slowest[:SHOWN]
    ]
    rest = slowest[SHOWN:]
    if rest:
        sums = [sum(one.get(part, 0.0) for _, one in rest) for part in ("forward", "backward")]
        rows.append([f"{show_count(len(rest))} others", *map(_milliseconds, sums)])
    rows.append(["all layers", _milliseconds(told["forward"]), _milliseconds(told["backward"])])
    return "\n".join(
        [
            f"{found.model}, batch {found.batch}, on {found.machine.title}",
            "",
            table(["layer", "forward, ms", "backward, ms"], rows),
            "",
            f"update    {_milliseconds(told['update'])} ms (AdamW, all weights)",
            f"memory    {show_bytes(found.peak_bytes)} at most, {found.gamma:.2f} of the sum over layers (gamma)",
            f"written to {out}",
        ]
    )


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}"
