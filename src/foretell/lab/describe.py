"""The lab as a cluster: what `predict --on FILE.toml` takes, the other side of a run across its hosts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from foretell.errors import BadInput
from foretell.files import save
from foretell.hardware.cluster import Cluster, DeviceGroup, Level, Link
from foretell.hardware.this_machine import processor
from foretell.lab.network import HEADERS, MTU, PAYLOAD, LabNetwork

OVERHEAD = 100e-6
"""Seconds that a message takes beside the delay and its bytes, where the self-test has not measured it: two processes
have to wake, and the switch twice (70 to 130 us on two cores)."""

SOURCE = "the lab that was asked for"
ATTAINED = "measured: a round of small messages less the delay, by the self-test"
HEADER = f"derived: {MTU - HEADERS} of the {MTU} bytes of a packet are payload"


def described(network: LabNetwork, overhead: float = OVERHEAD, name: str = "lab", per_host: int = 1) -> Cluster:
    """The cluster that the lab stands for: a core of this machine as the device of every host.

    Where ports or links differ, the slowest counts: a group waits for it. The hosts of an island are the ranks of one
    node, and its way out is the node's port. Several ranks of a host reach each other as those of this machine do.
    """
    machine = processor()
    core = machine.device
    levels = _islands(network, overhead, name) if network.island else _flat(network, overhead, name)
    if per_host > 1:
        if network.island:
            raise BadInput("islands of hosts with several ranks", where="--per-host", fix="one rank on each host")
        levels = (Level("node", per_host, machine.node.link), *levels[1:])
    return Cluster(
        name=name,
        title=f"{network.hosts} emulated hosts",
        groups=(DeviceGroup(core, network.hosts * per_host),),
        levels=levels,
        text=name,
        sources={f"levels[{at}].size": SOURCE for at in range(len(levels))},
    )


def _flat(network: LabNetwork, overhead: float, name: str) -> tuple[Level, ...]:
    rate, delay = _slowest(network, lambda a, b: True)
    wire = _link(f"{name}-port", "ethernet", rate, overhead, delay)
    alone = _link(f"{name}-alone", "loopback", rate, overhead, 0.0)  # a host has one rank: nothing goes this way
    return Level("node", 1, alone), Level("fabric", network.hosts, wire)


def _islands(network: LabNetwork, overhead: float, name: str) -> tuple[Level, ...]:
    rate, delay = _slowest(network, lambda a, b: a == b)
    inside = _link(f"{name}-port", "loopback", rate, delay + overhead, 0.0)
    rate, delay = _slowest(network, lambda a, b: a != b)
    out = _link(f"{name}-uplink", "ethernet", rate, overhead, delay)
    return Level("node", network.island, inside), Level("fabric", network.islands, out)


def _slowest(network: LabNetwork, counts: Callable[[int, int], bool]) -> tuple[float, float]:
    """The least rate and the longest delay of all pairs of hosts whose islands count."""
    pairs = [
        network.between(a, b)
        for a in range(network.hosts)
        for b in range(a)
        if counts(network.island_of(a), network.island_of(b))
    ]
    return min((pair.rate for pair in pairs), default=network.rate), max((pair.delay for pair in pairs), default=0.0)


def _link(name: str, kind: str, rate: float, latency: float, hop: float) -> Link:
    efficiency: dict[str, float] = dict.fromkeys(("ring", "all_to_all", "point"), PAYLOAD)
    sources = {"bandwidth": SOURCE, "latency": ATTAINED, **({"hop": SOURCE} if hop else {})}
    return Link(
        name=name,
        title=f"emulated, {8 * rate / 1e6:g} Mb/s a port",
        kind=kind,
        bandwidth=rate,
        latency_seconds=latency,
        hop_seconds=hop,
        switched=True,
        multicast=False,
        ceiling=rate,
        efficiency=efficiency,
        sources=sources | {f"efficiency.{key}": HEADER for key in efficiency},
    )


# as files


def write(cluster: Cluster, path: Path) -> list[Path]:
    """The description as files: the cluster, and its links beside it under names of their own."""
    files = {path: _cluster_text(cluster, path.stem)}
    for link in (level.link for level in cluster.levels if _own(level.link, cluster)):
        files[path.with_name(_renamed(link, cluster, path.stem))] = _link_text(link)
    for file, text in files.items():
        save(file, text.encode(), "cluster")
    return list(files)


def _own(link: Link, cluster: Cluster) -> bool:
    """Whether a link is the lab's; others have a name that everybody knows."""
    return link.name.startswith(f"{cluster.name}-")


def _renamed(link: Link, cluster: Cluster, stem: str) -> str:
    """What a cluster's file calls a link: a file beside it, or a name."""
    return f"{stem}-{link.name.removeprefix(f'{cluster.name}-')}.toml" if _own(link, cluster) else link.name


def _cluster_text(cluster: Cluster, stem: str) -> str:
    lines = [f'title = "{cluster.title}"', 'device = "cpu-core"  # of the machine that reads this', ""]
    for level in cluster.levels:
        lines += [
            "[[levels]]",
            f'name = "{level.name}"',
            f'size = {{ value = {level.size}, source = "lab" }}',
            f'link = "{_renamed(level.link, cluster, stem)}"',
            *([f'ports = {{ value = {level.ports}, source = "lab" }}'] if level.link.per_port else []),
            "",
        ]
    return "\n".join([*lines, "[sources]", f'lab = "{SOURCE}"', ""])


def _link_text(link: Link) -> str:
    hop = [f'hop = {{ value = "{link.hop_seconds * 1e6:.6g} us", source = "lab" }}'] if link.per_port else []
    lines = [
        f'title = "{link.title}"',
        f'kind = "{link.kind}"',
        f"switched = {str(link.switched).lower()}",
        f"multicast = {str(link.multicast).lower()}",
        "",
        f'bandwidth = {{ value = "{link.bandwidth * 8 / 1e6:.9g} Mb/s", source = "lab" }}',
        f'latency = {{ value = "{link.latency_seconds * 1e6:.6g} us", source = "attained" }}',
        *hop,
        "",
        "[efficiency]",
        *(f'{key} = {{ value = {value:.6g}, source = "headers" }}' for key, value in link.efficiency.items()),
        "",
        "[sources]",
        f'lab = "{SOURCE}"',
        f'attained = "{ATTAINED}"',
        f'headers = "{HEADER}"',
        "",
    ]
    return "\n".join(lines)
