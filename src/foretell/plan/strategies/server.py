"""Parameter server: weights lie on `k` ranks; the others send gradients and ask for weights.

`sync` waits for all, `ssp` lets the fastest be at most `s` steps ahead of the slowest, `async` waits
for nobody. `k` servers hold a share each; `group` puts a server in between every so many ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from foretell.plan.placement import Served
from foretell.plan.refusal import Refusal
from foretell.plan.strategy import Exchange, MeshAxis, Splitting, Strategy
from foretell.plan.syntax import Choice, Number, Option

if TYPE_CHECKING:
    from foretell.plan.setting import Setting


class Server(Strategy, frozen=True, kw_only=True, tag="server"):
    """Some of the samples on each rank, weights on servers."""

    word: ClassVar[str] = "ps"
    summary: ClassVar[str] = "every rank takes some samples; weights lie on servers"
    references: ClassVar[tuple[str, ...]] = (
        "Dean et al. 2012 (DistBelief), NIPS 25",
        "Li et al. 2014 (parameter server), OSDI 14",
        "Ho et al. 2013 (stale synchronous), NIPS 26",
    )
    syntax: ClassVar[tuple[Option, ...]] = (
        Choice("mode", {"sync": "sync", "ssp": "ssp", "async": "async"}),
        Number("s", "staleness"),
        Number("k", "servers"),
        Number("group", "group", least=2),
    )
    example: ClassVar[str] = "ps4:ssp,s3"

    mode: str = "sync"
    staleness: int = 0  # steps that a rank may be ahead of the slowest (ssp)
    servers: int = 1
    group: int = 0  # ranks under one server of a first level; 0: no levels

    def axes(self) -> tuple[MeshAxis, ...]:
        waits = {"sync": "all", "ssp": "bounded", "async": "nobody"}[self.mode]
        exchange = Exchange(weights=Served(self.servers), waits=waits, staleness=self.staleness)
        samples = Splitting(dim="sample")
        if not self.group:
            return (MeshAxis("ps", self.ranks, samples, exchange=exchange),)
        inside = Exchange(weights=Served(1), waits=waits, staleness=self.staleness)
        return (
            MeshAxis("ps", self.ranks // self.group, samples, exchange=exchange),
            MeshAxis("ps.group", self.group, samples, exchange=inside),
        )

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        if self.servers > self.ranks:
            why = f"{self.servers} servers on {self.ranks} ranks: each lies on a rank of its own"
            yield Refusal("servers on ranks", why, f"k{self.ranks}")
        if self.staleness and self.mode != "ssp":
            yield Refusal("bounded staleness", f"s{self.staleness} with {self.mode}: only ssp has a bound", "ssp")
        if self.group and self.ranks % self.group:
            near = max(n for n in range(1, self.group) if self.ranks % n == 0)
            why = f"{self.ranks} ranks are not a multiple of group{self.group}"
            yield Refusal("groups divide", why, f"group{near}" if near > 1 else "no group")
