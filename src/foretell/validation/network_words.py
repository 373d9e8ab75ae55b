"""Networks between nodes in the words of people ("Compute: 8x ConnectX-7 NDR, storage: 2x100GbE"), in the catalog's."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

INFINIBAND: Final = {56: "ib-fdr", 100: "ib-edr", 200: "ib-hdr", 400: "ib-ndr", 800: "ib-xdr"}
GENERATIONS: Final = {"fdr": 56, "edr": 100, "hdr": 200, "ndr": 400, "xdr": 800}
ROCE: Final = {rate: f"roce-{rate}" for rate in (25, 50, 100, 200, 400, 800)}
ETHERNET: Final = {rate: f"eth-{rate}" for rate in (1, 10, 25, 40, 50, 100, 200, 400, 800)}
OMNI_PATH: Final = {100: "opa-100"}

CARDS: Final = {r"connectx-?8|cx-?8": 800, r"connectx-?7|cx-?7|bluefield-?3|bf-?3": 400, r"connectx-?6|cx-?6": 200}
"""Gb/s of a network card at its fastest, where no rate is written."""

CARD: Final = r"cx-?\d|connectx|bluefield|bf-?\d"

OTHER_NETWORK: Final = r"storage|manage|mgmt|front.?end|in-?band|out-of-band|oob|boot|host nic|\bns\b|north"
COMPUTE_NETWORK: Final = r"compute|back.?end|\bew\b|east|gpu fabric|training|rail"

RATE: Final = re.compile(r"(?<![\d.])(\d{1,6}(?:\.\d{1,6})?) ?([TtGg])(?:b(?:it)?|bE)?(?:ps|/[Ss](?:ec)?|E)?(?!\w)")
"""How rates of bits are written: 400 Gb/s, 100GbE, 3.2 Tbps, 400G; GB are bytes."""

LANES: Final = re.compile(r"\b4X (?=[FEHNX]DR)")
"""Four lanes are one port of InfiniBand."""

MANY: Final = {"dual": 2, "two": 2, "quad": 4, "four": 4, "eight": 8}

PORTS: Final = (
    r"\bx ?(\d+) nic",
    r"(?<![\w.-])(\d+) (?:nics?|ports|rails|hcas?|cards|links|adapters|connectx|bluefield|cx-?\d|bf-?\d)",
    r"(?<![\w.-])(\d+) per node",
    rf"(?<![\w.])(\d+) ?x ?(?=\d|ib|infini|omni|nvidia|mellanox|roce|eth|nic|efa|tcpx|[fehnx]dr|{CARD})",
    r"(?<=[\w)] )x ?(\d+)\b(?! ?[gt])",
)
"""How a number of ports of a node is written, the surest first."""


class NodeLink(NamedTuple):
    """A link between nodes and its ports a node."""

    link: str
    ports: int

    def __str__(self) -> str:
        return f"{self.ports}x{self.link}"


class FastLink(NamedTuple):
    """A link, and Gb/s of all its ports of a node."""

    link: NodeLink
    rate: float


def network(text: str, node: int) -> NodeLink | None:
    """The network between nodes that computes, the fastest that is named; None where a study does not say."""
    if "not stated" in text:
        return None
    found = [_node_link(text, LANES.sub("", part), node) for part in _computing(text)]
    stated = [one for one in found if one is not None]
    fabric = [one for one in stated if one.link.link.startswith("ib-")] or stated
    return max(fabric, key=lambda one: one.rate).link if fabric else None


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


def _node_link(text: str, part: str, node: int) -> FastLink | None:
    """A part's link with its ports, and Gb/s of all of them: what is no rate of a port is that of the whole node."""
    rate, ports, rates = _rate(part), _ports(text.lower(), part.lower(), node), _rates(part.lower())
    if not rate or not rates:
        return None
    total = rate * ports
    each = next((one for one in (rate, total / node) if one in rates), 0)
    each = each or min(max((one for one in rates if one <= rate), default=min(rates)), 200)
    return FastLink(NodeLink(rates[int(each)], max(1, round(total / each))), total)


def _rate(part: str) -> float:
    """Gb/s as they are written, or by the generation's name, or the card's; 0 where none is there."""
    if re.search(r"\d/\d", part):
        return 0.0
    found, lower = RATE.search(part), part.lower()
    if found:
        return float(found[1]) * (1000 if found[2] in "Tt" else 1)
    numbered = re.search(r"[fehnx]dr[- ]?(100|200|400|800)\b", lower)
    if numbered:
        return float(numbered[1])
    named = next((rate for word, rate in GENERATIONS.items() if word in lower), 0)
    return float(named or next((rate for card, rate in CARDS.items() if re.search(card, lower)), 0))


def _rates(part: str) -> dict[int, str]:
    """The links of the kind that is named, by the Gb/s of a port; none where no kind is named, or none is known."""
    if "omni-path" in part:
        return OMNI_PATH
    if re.search(r"\befa", part):
        return _of_aws(part)
    if re.search(r"tcpxo|tcpx", part):
        return {200: "tcpxo" if "tcpxo" in part else "tcpx"}
    if re.search(r"\bib\b|infiniband|[fehnx]dr", part):
        return INFINIBAND
    if re.search(rf"roce|rdma|{CARD}", part):
        return ROCE
    return ETHERNET if re.search(r"ethernet|\d ?g(?:b)?e\b|\btcp\b", part) else {}


def _of_aws(part: str) -> dict[int, str]:
    """Generations by their number, or by what ports and nodes have: 4 of 100, 32 of 100, 16 of 200."""
    if re.search(r"v3|x ?200|2\.0", part):
        return {200: "efa3"}
    rate = _rate(part)
    ports = _ports(part, part, 1)
    return {100: "efa1" if rate * ports <= 400 else "efa2"}


def _ports(text: str, part: str, node: int) -> int:
    """Ports a node."""
    if "per gpu" in text:
        return node
    found = next((found for form in PORTS if (found := re.search(form, part))), None)
    if found:
        return int(found[1])
    word = re.search(rf"\b({'|'.join(MANY)})[- ](?:rail|port|nic)", part)
    if word:
        return MANY[word[1]]
    return node if "links (jean zay)" in text else 1
