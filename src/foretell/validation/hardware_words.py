"""What studies call devices and networks, in the words of the catalog."""

from __future__ import annotations

import functools
import re
from typing import Final, NamedTuple

from foretell.errors import ForetellError
from foretell.hardware import catalog, members
from foretell.validation.study import Unmapped

DEVICES: Final[tuple[tuple[str, str], ...]] = (
    (r"tpu", ""),
    (r"gb300", "gb300"),
    (r"gb200", "gb200"),
    (r"\bb300", "b300"),
    (r"\bb200", "b200"),
    (r"h100.*(500 ?w|hbm2e)", "h100-500w"),
    (r"h100.*pcie", "h100-pcie"),
    (r"h100.*nvl\b", "h100-nvl"),
    (r"h100", "h100"),
    (r"h200", "h200"),
    (r"h800", "h800"),
    (r"a100.*pcie.*40|a100.*40.*pcie", "a100-pcie-40"),
    (r"a100.*pcie.*80|a100.*80.*pcie", "a100-pcie-80"),
    (r"a100.*40", "a100-40"),
    (r"a100.*80", "a100-80"),
    (r"v100s", ""),
    (r"v100.*pcie.*16", "v100-pcie-16"),
    (r"v100.*pcie.*32", "v100-pcie-32"),
    (r"v100.*(sxm3|dgx-2)", "v100-sxm3-32"),
    (r"v100.*32", "v100-32"),
    (r"v100.*16", "v100-16"),
    (r"v100-sxm2 \(dgx\)", "v100-16"),  # 16 and 32 GB were sold; both compute alike, and no memory was measured
    (r"p100.*pcie", "p100-pcie"),
    (r"p100", "p100"),
    (r"k80", "k80"),
    (r"p40", "p40"),
    (r"m40", "m40"),
    (r"titan x.*maxwell", "titanx-maxwell"),
    (r"titan xp", "titanxp"),
    (r"titan x", "titanx"),
    (r"titan rtx", "titanrtx"),
    (r"1080 ?ti", "gtx1080ti"),
    (r"1080", "gtx1080"),
    (r"2080 ?ti", "rtx2080ti"),
    (r"3090", "rtx3090"),
    (r"4090", "rtx4090"),
    (r"6000 ?ada", "rtx6000ada"),
    (r"a6000", "a6000"),
    (r"rtx ?8000", "rtx8000"),
    (r"l40s", "l40s"),
    (r"\bl40\b", "l40"),
    (r"\bl4\b", "l4"),
    (r"\bt4\b", "t4"),
    (r"a10g", "a10g"),
    (r"\ba10\b", "a10"),
    (r"\ba30\b", "a30"),
    (r"mi325x", "mi325x"),
    (r"mi300x", "mi300x"),
    (r"mi250x", "mi250x"),
)
"""Pattern to device, the first that is found; empty for parts that have no description (V100S, TPU)."""

INFINIBAND: Final = {56: "ib-fdr", 100: "ib-edr", 200: "ib-hdr", 400: "ib-ndr", 800: "ib-xdr"}
GENERATIONS: Final = {"fdr": 56, "edr": 100, "hdr": 200, "ndr": 400, "xdr": 800}
ROCE: Final = (25, 50, 100, 200, 400, 800)
ETHERNET: Final = (1, 10, 25, 40, 50, 100, 200, 400, 800)

POWER_LIMIT: Final = re.compile(r"450 ?w|-h\b|dgx-2h|500 ?w|cts", re.IGNORECASE)
"""Parts whose power limit is not the usual one; they are scored on the usual part, in a subset of their own."""


class NodeLink(NamedTuple):
    """A link between nodes and its ports a node."""

    link: str
    ports: int

    def __str__(self) -> str:
        return f"{self.ports}x{self.link}"


class ClusterText(NamedTuple):
    """A cluster's text, and what is worth a subset."""

    text: str
    subsets: tuple[str, ...]


def device(text: str) -> str:
    """The device that a study means."""
    lower = text.lower()
    if lower in members.names("devices"):
        return lower
    found = next((name for pattern, name in DEVICES if re.search(pattern, lower)), "")
    if not found:
        raise Unmapped(f"no device is described for {text or 'a blank'}")
    return found


def cluster(gpu: str, ranks: int, node: int, inside: str = "", between: str = "") -> ClusterText:
    """The cluster of these devices: `node` ranks a node (0: as usual), links as the study names them."""
    name = device(gpu)
    size = min(node or members.device(name).node.size, ranks)
    if ranks % size:
        raise Unmapped(f"{ranks} GPUs are not whole nodes of {size}")
    found = network(between, size)
    tags = ["other power limit"] if POWER_LIMIT.search(gpu) and name != "h100-500w" else []
    if ranks > size and found is None:
        tags.append("network not stated")
    link = _inside(name, size, inside)
    count = name if ranks == 1 else f"{ranks // size}x{size}x{name}"
    parts = [count, link if ranks > 1 else "", str(found) if found and ranks > size else ""]
    return ClusterText(_shortest(",".join(part for part in parts if part)), tuple(tags))


@functools.cache
def _shortest(text: str) -> str:
    try:
        return catalog.cluster(text).text
    except ForetellError as problem:
        raise Unmapped(f"no cluster is written {text}: {problem.what}") from None


def _inside(name: str, size: int, text: str) -> str:
    """The link inside the node, where the device has been built in with several; else the usual one."""
    lower = text.lower()
    if name in ("v100-16", "v100-32"):
        return "nvlink2-mesh" if size > 4 or "mesh" in lower or "dgx-1" in lower else "nvlink2"
    return ""


def network(text: str, node: int) -> NodeLink | None:
    """The network between nodes that computes, the fastest that is named; None where a study does not say."""
    if "not stated" in text:
        return None
    found = [_node_link(text, part, node) for part in _computing(text)]
    stated = [one for one in found if one is not None]
    fabric = [one for one in stated if one[0].link.startswith("ib-")] or stated
    return max(fabric, key=lambda one: one[1])[0] if fabric else None


OTHER_NETWORK: Final = r"storage|manage|mgmt|front.?end|in-?band|out-of-band|oob|boot|host nic|\bns\b|north"
COMPUTE_NETWORK: Final = r"compute|back.?end|\bew\b|east|gpu fabric|training|rail"


def _computing(text: str) -> list[str]:
    """The parts of a text that are about the network of the GPUs, not that of storage or management.

    A label with a colon holds until the next one; parts that say what they are for win over those that do not.
    """
    kept: list[str] = []
    named: list[str] = []
    other = compute = False
    for part in re.split(r"[,;+]| and ", text):
        own = part.lower()
        if ":" in own:
            other, compute = bool(re.search(OTHER_NETWORK, own)), bool(re.search(COMPUTE_NETWORK, own))
        if compute or re.search(COMPUTE_NETWORK, own):
            named.append(part)
        elif not other and not re.search(OTHER_NETWORK, own):
            kept.append(part)
    return named or kept


def _node_link(text: str, part: str, node: int) -> tuple[NodeLink, int] | None:
    """A part's link with its ports, and Gb/s of all of them."""
    rate = _rate(part)
    link, each = _link(part.lower(), rate) if rate else ("", 0)
    total = rate * _ports(text.lower(), part.lower(), node)
    return (NodeLink(link, max(1, round(total / each))), total) if link else None


CARDS: Final = {r"connectx-?8|cx-?8": 800, r"connectx-?7|cx-?7|bluefield-?3|bf-?3": 400, r"connectx-?6|cx-?6": 200}
"""Gb/s of a network card at its fastest, where no rate is written."""

CARD: Final = r"cx-?\d|connectx|bluefield|bf-?\d"


def _rate(part: str) -> int:
    """Gb/s of one port as it is written, or by its generation's name, or its card's; 0 where none is there."""
    if re.search(r"\d/\d", part):
        return 0
    found = re.search(r"(\d+) ?Gb", part)  # GB would be bytes
    if found:
        return int(found[1])
    named = next((rate for word, rate in GENERATIONS.items() if word in part.lower()), 0)
    return named or next((rate for card, rate in CARDS.items() if re.search(card, part.lower())), 0)


def _link(part: str, rate: int) -> tuple[str, int]:
    """The link, and its rate: a rate of the whole node is that of several ports."""
    if "omni-path" in part:
        return "opa-100", 100
    if "efa" in part:
        return "", 0  # generations differ at the same rate
    if "ethernet" in part and not re.search(rf"roce|{CARD}", part):
        return (f"eth-{rate}", rate) if rate in ETHERNET else ("", 0)
    infiniband = re.search(r"\bib\b|infiniband|fdr|edr|hdr|ndr|xdr", part)
    most = max(each for each in (INFINIBAND if infiniband else ROCE) if each <= max(rate, 25))
    each = rate if rate in (INFINIBAND if infiniband else ROCE) else min(most, 200)
    if infiniband:
        return INFINIBAND[each], each
    return (f"roce-{each}", each) if re.search(rf"roce|rdma|{CARD}", part) else ("", 0)


def _ports(text: str, part: str, node: int) -> int:
    """Ports a node."""
    if "per gpu" in text:
        return node
    kinds = rf"\d|ib|infini|omni|nvidia|mellanox|roce|eth|nic|{CARD}"
    found = re.search(rf"(?<![\w.])(\d+) ?x ?(?={kinds})", part) or re.search(r"x(\d+) nic", text)
    if found:
        return int(found[1])
    return node if "links (jean zay)" in text else 1
