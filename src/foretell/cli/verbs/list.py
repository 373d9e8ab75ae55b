"""foretell list: the names foretell knows."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from foretell.hardware.cluster import Cluster, Device, Link

KINDS = ["models", "devices", "links", "clusters", "strategies", "policies", "schedules", "trainers"]


@click.command("list", short_help="The names foretell knows.")
@click.argument("what", type=click.Choice(KINDS), default="models")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, figures with their sources.")
def command(what: str, as_json: bool) -> None:
    """Print the names of one kind."""
    tables = {"models": _models, "devices": _devices, "links": _links, "clusters": _clusters}
    click.echo(tables.get(what, _choices)(what, as_json))


def _models(what: str, as_json: bool) -> str:
    from foretell.model import zoo

    families: dict[str, list[str]] = {}
    for name, fields in zoo.names().items():
        families.setdefault(type(fields).__module__.rpartition(".")[2], []).append(name)
    if as_json:
        return _json(what, families)
    lines = [f"{family}: {', '.join(members)}" for family, members in families.items()]
    return "\n".join(textwrap.fill(line, 80, subsequent_indent="  ", break_on_hyphens=False) for line in lines)


def _devices(what: str, as_json: bool) -> str:
    from foretell.hardware import members

    devices = [members.device(name) for name in members.names(what)]
    header = ["device", "memory", "bandwidth", "fp32 T", "16-bit T", "fp8 T", "usual node"]
    return _json(what, devices) if as_json else _table(header, [_device_row(device) for device in devices], (0, 6))


def _device_row(device: Device) -> list[str]:
    from foretell.hardware.quantity import show

    def rate(*precisions: str) -> str:  # T of flop/s
        rates = [device.matrix_rate(precision) for precision in precisions if device.supports(precision)]
        return f"{max(rates) / 1e12:.4g}" if rates else "-"

    memory, bandwidth = show(device.memory_bytes, "memory"), show(device.memory_bandwidth, "bandwidth")
    rates = [rate("fp32"), rate("bf16", "fp16"), rate("fp8")]
    return [device.name, memory, bandwidth, *rates, f"{device.node.size} {device.node.link}"]


def _links(what: str, as_json: bool) -> str:
    from foretell.hardware import members

    links = [members.link(name) for name in members.names(what)]
    header = ["link", "kind", "bandwidth", "of", "reached", "latency", "fabric"]
    return _json(what, links) if as_json else _table(header, [_link_row(link) for link in links], (0, 1, 3))


def _link_row(link: Link) -> list[str]:
    from foretell.hardware.quantity import show

    many = 2**20  # more ranks than any figure for small groups holds for
    hop = show(link.hop_seconds, "time") if link.per_port else "-"
    whose = "port" if link.per_port else "device"
    reached = f"{link.reached('ring', many) / link.bandwidth:.0%}"
    return [
        link.name,
        link.kind,
        show(link.bandwidth, "bandwidth"),
        whose,
        reached,
        show(link.latency_seconds, "time"),
        hop,
    ]


def _clusters(what: str, as_json: bool) -> str:
    from foretell.hardware import catalog, members

    clusters = [catalog.cluster(name) for name in (*members.names(what), "this-machine")]
    header = ["cluster", "ranks", "device", "levels, innermost first"]
    return _json(what, clusters) if as_json else _table(header, [_cluster_row(one) for one in clusters], (0, 2, 3))


def _cluster_row(cluster: Cluster) -> list[str]:
    levels = ", ".join(f"{level.size} {level.link.name}" for level in cluster.levels)
    return [cluster.name, f"{cluster.ranks:,}", " + ".join(group.device.name for group in cluster.groups), levels]


def _choices(what: str, as_json: bool) -> str:
    """Members of the plan's sets: how each is written, and what it does."""
    from foretell.plan import members, schedule, trainer

    if what == "trainers":
        found = trainer.names()
    elif what == "schedules":
        found = {name: one.summary for name, one in schedule.schedules().items()}
    else:
        kinds = members.strategies() if what == "strategies" else members.policies()
        found = {kind.example: kind.summary for kind in kinds.values()}
    if as_json:
        return _json(what, found)
    wide = max(map(len, found)) + 2
    lines = (f"{name:<{wide}}{summary}" for name, summary in found.items())
    return "\n".join(textwrap.fill(line, 80, subsequent_indent=" " * wide) for line in lines)


def _table(header: list[str], rows: list[list[str]], left: tuple[int, ...]) -> str:
    from foretell.cli.table import table

    return table(header, rows, left=left)


def _json(what: str, values: object) -> str:
    import msgspec

    return msgspec.json.encode({what: values}).decode()
