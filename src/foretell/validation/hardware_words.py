"""What studies call devices, in the words of the catalog; networks are in `network_words`."""

from __future__ import annotations

import functools
import re
from typing import Final, NamedTuple

from foretell.errors import ForetellError
from foretell.hardware import catalog, members
from foretell.validation.network_words import network
from foretell.validation.study import Unmapped

DEVICES: Final[tuple[tuple[str, str], ...]] = (
    (r"tpu", ""),
    (r"gb300", "gb300"),
    (r"gb200", "gb200"),
    (r"\bb300", "b300"),
    (r"\bb200.*(750 ?w|power limited)", "b200-750w"),
    (r"\bb200", "b200"),
    (r"h100.*(500 ?w|hbm2e)", "h100-500w"),
    (r"h100.*pcie", "h100-pcie"),
    (r"h100.*nvl\b", "h100-nvl"),
    (r"h100", "h100"),
    (r"gh200.*144", ""),
    (r"gh200", "gh200"),
    (r"h200", "h200"),
    (r"\bh20\b", "h20"),
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
    (r"5090", "rtx5090"),
    (r"pro ?6000", "rtxpro6000"),
    (r"mi355x", "mi355x"),
    (r"mi350x", "mi350x"),
    (r"mi325x", "mi325x"),
    (r"mi300x", "mi300x"),
    (r"mi250x", "mi250x"),
)
"""Pattern to device, the first that is found; empty for parts that have no description (V100S, TPU)."""

POWER_LIMIT: Final = re.compile(r"450 ?w|-h\b|dgx-2h|500 ?w|cts", re.IGNORECASE)
"""Parts whose power limit is not the usual one; they are scored on the usual part, in a subset of their own."""


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
