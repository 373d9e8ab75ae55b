"""How far prices are off for sources that they were not read from: python studies/collectives/left_out.py

Every source of rows is left out in turn. What a link reaches (one factor on its efficiencies) and what its fabric adds
to a hop are chosen again on the rows of the other sources that use it, then the source is priced. A link that no other
source has gets the median of its kin: efficiency and hop of the links of its kind, else of all links inside a node, or
of all networks. Held as they are: NCCL's own table of protocols, the latency inside a node, and the ratios between
classes of collectives on one link; they are few, and shared by all sources.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

import msgspec
from score import SIZES, Row, _line, lines, rows

from foretell.cost.collectives import collective_seconds
from foretell.cost.fabric import Group
from foretell.hardware.cluster import Cluster, Link
from foretell.validation.studies.collectives import cluster_of, host_seconds, kind_of, library_of, payload

FACTORS = tuple(1.06**step for step in range(-10, 11))
"""Tried on the efficiencies of a link: 0.56 to 1.8."""
HOPS = tuple(1.3**step for step in range(-8, 9))
"""Tried on the hop of its fabric: 0.12 to 8."""
CELL = 44


class Fitted(NamedTuple):
    """What a link reaches of its rate in a ring, what its fabric adds to a hop, and the rows that told so."""

    ring: float
    hop: float
    rows: int


class Timed(NamedTuple):
    """A row that can be scored."""

    source: str
    columns: tuple[tuple[str, str], ...]

    @property
    def row(self) -> dict[str, str]:
        return dict(self.columns)

    @property
    def cluster(self) -> Cluster:
        return cluster_of(self.row)

    @property
    def links(self) -> frozenset[str]:
        return frozenset(level.link.name for level in self.cluster.levels)


@cache
def timed() -> tuple[Timed, ...]:
    scored = (line for line, row in zip(lines(), rows(), strict=True) if isinstance(row, Row))
    return tuple(Timed(line["source"], tuple(line.items())) for line in scored)


@cache
def shipped() -> dict[str, Link]:
    return {level.link.name: level.link for one in timed() for level in one.cluster.levels}


def priced(one: Timed, links: Mapping[str, Link]) -> Row:
    """A row with other links in the place of those of its cluster."""
    row, replace = one.row, msgspec.structs.replace
    cluster = one.cluster
    levels = tuple(replace(level, link=_kept(level.link, links)) for level in cluster.levels)
    n, size, kind = int(row["n_gpus"]), int(row["bytes"]), kind_of(row)
    brought = payload(kind, size, n)
    price = collective_seconds(kind, brought, Group(n), replace(cluster, levels=levels), library=library_of(row))
    seconds = price.seconds + host_seconds(row)
    return Row(row["id"], row["collective"], size, one.source, float(row["time_us"]) * 1e-6, seconds, price.algorithm)


def _kept(link: Link, links: Mapping[str, Link]) -> Link:
    """What a row's own settings did to a link (untuned exchanges) is done to its substitute too."""
    if link.name not in links:
        return link
    other, own = links[link.name], shipped()[link.name]
    changed = {name: other.efficiency_of(name, 16) * share / own.efficiency_of(name.partition("@")[0], 16)
               for name, share in link.efficiency.items() if share != own.efficiency.get(name)}  # fmt: skip
    return msgspec.structs.replace(other, efficiency=other.efficiency | changed)


def with_figures(link: Link, ring: float, hop: float) -> Link:
    """A link that reaches so much in a ring, its other classes in proportion."""
    factor = ring / link.efficiency_of("ring", 64)
    most = link.ceiling * factor if link.ceiling < link.bandwidth else link.ceiling
    shares = {name: min(1.0, share * factor) for name, share in link.efficiency.items()}
    return msgspec.structs.replace(link, efficiency=shares, hop_seconds=hop, ceiling=most)


@cache
def fitted(name: str, sources: frozenset[str]) -> Fitted | None:
    """A link's figures by the rows of some sources; None where none of them uses it."""
    own = [one for one in timed() if one.source in sources and name in one.links]
    if not own:
        return None
    link = shipped()[name]
    ring, hop = link.efficiency_of("ring", 64), link.hop_seconds
    for _ in range(2):
        ring = min((ring * factor for factor in FACTORS), key=lambda tried: _off(own, link, tried, hop))
        if hop:
            hop = min((hop * factor for factor in HOPS), key=lambda tried: _off(own, link, ring, tried))
    return Fitted(ring, hop, len(own))


def _off(own: Iterable[Timed], link: Link, ring: float, hop: float) -> float:
    links = {link.name: with_figures(link, ring, hop)}
    found = (priced(one, links) for one in own)
    return statistics.mean(abs(math.log(one.predicted / one.measured)) for one in found)


def without(source: str) -> dict[str, Link]:
    """All links as the other sources have them."""
    others = frozenset(one.source for one in timed()) - {source}
    touched = {name for one in timed() if one.source == source for name in one.links}
    users = {name: frozenset(one.source for one in timed() if name in one.links) for name in shipped()}
    known = {name: fitted(name, others & users[name]) for name in shipped()}
    return {name: _figured(name, known) for name in touched}


def _figured(name: str, known: Mapping[str, Fitted | None]) -> Link:
    link, own = shipped()[name], known[name]
    if own is None:
        own = _of_kin(link, {other: found for other, found in known.items() if found is not None})
    return with_figures(link, own.ring, own.hop if link.hop_seconds else 0.0)


def _of_kin(link: Link, known: Mapping[str, Fitted]) -> Fitted:
    kin = [found for name, found in known.items() if shipped()[name].kind == link.kind]
    kin = kin or [found for name, found in known.items() if shipped()[name].per_port == link.per_port]
    return Fitted(statistics.median(one.ring for one in kin), statistics.median(one.hop for one in kin), 0)


def scored() -> list[Row]:
    """Every row, priced as if its source were not known."""
    sources = dict.fromkeys(one.source for one in timed())
    links = {source: without(source) for source in sources}
    return [priced(one, links[one.source]) for one in timed()]


def main() -> None:
    found = scored()
    print(f"{'source left out':<{CELL}}" + "".join(f"{name:>18}" for name in (*SIZES, "all")))
    for source in dict.fromkeys(row.where for row in found):
        print(_line(source[:CELL], [row for row in found if row.where == source]))
    print(_line("all", found))
    print(
        "\nmedian / 90th percentile of the relative error of the time (rows); small: below 64 KiB, large: above 64 MiB"
    )


if __name__ == "__main__":
    main()
