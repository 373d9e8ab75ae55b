"""foretell list: the names foretell knows."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import click

from foretell.cli.notes import tell_notes
from foretell.cli.table import folded
from foretell.errors import BadInput, near

if TYPE_CHECKING:
    from foretell.hardware.cluster import Cluster, Device, Link
    from foretell.plan.policy import Policy
    from foretell.plan.strategy import Strategy

KINDS = [
    *("models", "devices", "architectures", "links", "clusters", "fabrics", "libraries", "strategies", "policies"),
    *("schedules", "recomputations", "optimizers", "attentions", "trainers", "dialects", "capacities"),
]
VIRTUAL = ["algorithms", "topologies", "compressors"]


@click.command("list", short_help="Names: models, devices, clusters, strategies, trainers ...")
@click.argument("what", metavar="[KIND]", default="models")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, figures with their sources.")
def command(what: str, as_json: bool) -> None:
    """Print the names of one kind.

    KIND is models (if none is given), devices, architectures, links, clusters,
    fabrics (how units of clusters are joined), libraries (of collectives),
    strategies, policies, schedules, recomputations, optimizers, attentions
    (kernels), trainers, dialects, capacities (devices without a measured trainer);
    algorithms, topologies or compressors (of virtual time).
    """
    every = [*KINDS, *VIRTUAL]
    if what not in every:
        raise BadInput(f"foretell has no list of {what!r}", fix=", ".join(near(what, every, 1) or every))
    tables = {"models": _models, "devices": _devices, "links": _links, "clusters": _clusters}
    tables |= {"strategies": _words, "policies": _words, "trainers": _trainers} | dict.fromkeys(VIRTUAL, _virtual)
    click.echo(tables.get(what, _choices)(what, as_json))


def _virtual(what: str, as_json: bool) -> str:
    from foretell.learning.members import about

    rows = about(what)
    if as_json:
        return _json(what, rows)
    return "\n".join(
        textwrap.fill(f"{row['name']:<14}{row['summary']}", 80, subsequent_indent=" " * 14)
        + (f"\n{' ' * 14}options: {row['options']}" if row["options"] else "")
        for row in rows
    )


def _models(what: str, as_json: bool) -> str:
    from foretell.model import zoo

    families: dict[str, list[str]] = {}
    for name, fields in zoo.names().items():
        families.setdefault(type(fields).__module__.rpartition(".")[2], []).append(name)
    if as_json:
        return _json(what, families)
    lines = [f"{family}: {', '.join(members)}" for family, members in families.items()]
    return "\n".join(folded(line) for line in lines)


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

    found = [catalog.named(name) for name in (*members.names(what), "this-machine")]
    clusters = [one.cluster for one in found]
    tell_notes(note for one in found for note in one.notes)
    header = ["cluster", "ranks", "device", "levels, innermost first"]
    return _json(what, clusters) if as_json else _table(header, [_cluster_row(one) for one in clusters], (0, 2, 3))


def _cluster_row(cluster: Cluster) -> list[str]:
    levels = ", ".join(f"{level.size} {level.link.name}" for level in cluster.levels)
    return [cluster.name, f"{cluster.ranks:,}", " + ".join(group.device.name for group in cluster.groups), levels]


def _trainers(what: str, as_json: bool) -> str:
    """Today's first; those of other years are there to repeat published runs."""
    import msgspec

    from foretell.plan import trainer

    found = trainer.names()
    eras = {name: trainer.era(name) for name in found if trainer.era(name)}
    today = {name: text for name, text in found.items() if name not in eras}
    if as_json:
        every = today | {name: found[name] for name in eras}
        return msgspec.json.encode({what: every, "historical": eras}).decode()
    past = [(name, [text if year in (text := found[name]) else f"{text} ({year})"]) for name, year in eras.items()]
    lines = [(name, [text]) for name, text in today.items()]
    return f"{_described(lines)}\n\nof other years, to repeat published runs\n{_described(past)}"


def _choices(what: str, as_json: bool) -> str:
    """What has a name and a line of text: schedules, optimizers, dialects and others."""
    if what == "dialects":
        from foretell.dialects import dialect, names

        found = {name: f"{dialect(name).summary} ({dialect(name).version})" for name in names()}
    elif what == "architectures":
        from foretell.hardware import members

        found = {name: members.architecture(name).title for name in members.names(what)}
    elif what == "capacities":
        from foretell.hardware.capacity import capacity_device
        from foretell.hardware.capacity import names as known
        from foretell.units import show_bytes

        every = map(capacity_device, known())
        found = {one.name: f"{one.title}: {show_bytes(one.memory_bytes)}" for one in every}
    elif what == "libraries":
        from foretell.cost.collectives import LIBRARIES, library

        found = {name: library(name).summary for name in LIBRARIES}
    elif what == "optimizers":
        from foretell.model.optimizer import OPTIMIZERS, optimizer

        found = {name: optimizer(name).summary for name in OPTIMIZERS}
    elif what == "attentions":
        from foretell.model.attention import ATTENTIONS, attention_kernel

        found = {name: attention_kernel(name).summary for name in ATTENTIONS}
    elif what == "fabrics":
        from foretell.hardware.topology import TOPOLOGIES, fabric_topology

        found = {name: fabric_topology(name).summary for name in TOPOLOGIES}
    elif what == "recomputations":
        from foretell.plan.recomputation import recomputations

        found = {name: rule.summary for name, rule in recomputations().items()}
    else:
        from foretell.plan import schedule

        found = {name: one.summary for name, one in schedule.schedules().items()}
    return _json(what, found) if as_json else _described([(name, [text]) for name, text in found.items()])


def _words(what: str, as_json: bool) -> str:
    """Strategies and policies: how each is written, what it does, and what can be said with it."""
    from foretell.plan import members

    kinds = list((members.strategies() if what == "strategies" else members.policies()).values())
    if as_json:
        return _json(what, {kind.example: {"summary": kind.summary, "options": _forms(kind)} for kind in kinds})
    return _described([(kind.example, [kind.summary, *_shown(kind)]) for kind in kinds])


def _shown(kind: type[Strategy] | type[Policy]) -> list[str]:
    """How its options are written, in one line; nothing for one that has none."""
    forms = _forms(kind)
    return [f"options: {', '.join(forms)}"] if forms else []


def _forms(kind: type[Strategy] | type[Policy]) -> list[str]:
    return [form for option in kind.syntax for form in option.forms]


def _described(found: list[tuple[str, list[str]]]) -> str:
    """Names on the left, and texts on the right, each on lines of its own."""
    wide = max(len(name) for name, _ in found) + 2
    lines: list[str] = []
    for name, texts in found:
        for at, text in enumerate(texts):
            before = f"{'' if at else name:<{wide}}"
            lines.append(folded(text, wide + 2 if at else wide, before))
    return "\n".join(lines)


def _table(header: list[str], rows: list[list[str]], left: tuple[int, ...]) -> str:
    from foretell.cli.table import table

    return table(header, rows, left=left)


def _json(what: str, values: object) -> str:
    import msgspec

    return msgspec.json.encode({what: values}).decode()
