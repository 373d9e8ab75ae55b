"""Parameter server: weights lie on `k` ranks; the others send gradients and ask for weights.

`sync` waits for all, `ssp` lets the fastest be at most `s` steps ahead of the slowest, `async` waits
for nobody. `k` servers hold a share each; `group` puts a server in between every so many ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from foretell.plan.placement import Served
from foretell.plan.refusal import Refusal
from foretell.plan.repair import divisors, replaced, with_fields
from foretell.plan.strategies._versions import one_way
from foretell.plan.strategy import Exchange, MeshAxis, Splitting, Strategy
from foretell.plan.syntax import Number, Option, WordChoice

if TYPE_CHECKING:
    from foretell.plan.setting import Setting


class Server(Strategy, frozen=True, kw_only=True, tag="server"):
    """Some of the samples on each rank, weights on servers."""

    word: ClassVar[str] = "ps"
    searched: ClassVar[bool] = False
    summary: ClassVar[str] = "every rank takes some samples; weights lie on servers"
    references: ClassVar[tuple[str, ...]] = (
        "Dean et al. 2012 (DistBelief), NIPS 25",
        "Li et al. 2014 (parameter server), OSDI 14",
        "Ho et al. 2013 (stale synchronous), NIPS 26",
    )
    syntax: ClassVar[tuple[Option, ...]] = (
        WordChoice("mode", {"sync": "sync", "ssp": "ssp", "async": "async"}),
        Number("s", "staleness"),
        Number("k", "servers"),
        Number("group", "group", least=2),
    )
    example: ClassVar[str] = "ps4:ssp,s3"

    mode: str = "sync"
    staleness: int = 0  # steps that a rank may be ahead of the slowest (ssp)
    servers: int = 1
    group: int = 0  # ranks under one server of a first level; 0: no levels

    @property
    def world(self) -> int:
        return self.ranks  # also where they do not make whole groups, which is refused

    def axes(self) -> tuple[MeshAxis, ...]:
        waits = {"sync": "all", "ssp": "bounded", "async": "nobody"}[self.mode]
        exchange = Exchange(weights=Served(self.servers), waits=waits, staleness=self.staleness)
        samples = Splitting(dim="sample")
        if not self.group:
            return (MeshAxis("ps", self.ranks, samples, exchange=exchange),)
        inside = Exchange(weights=Served(1), waits=waits, staleness=self.staleness)
        return (
            MeshAxis("ps", self._groups, samples, exchange=exchange),
            MeshAxis("ps.group", min(self.group, self.ranks), samples, exchange=inside),
        )

    @property
    def _groups(self) -> int:
        return max(1, self.ranks // self.group) if self.group else self.ranks

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        plan = setting.plan
        if self.group and self.ranks % self.group:
            sizes = [size for size in divisors(self.ranks) if 1 < size < self.group]
            others = [with_fields(self, group=size) for size in (*sizes, 0)]
            why = f"ps{self.ranks} is not a multiple of group{self.group}"
            yield Refusal("groups divide", why, mends=replaced(plan, self, *others))
        if self.servers > self._groups:
            among = f"{self._groups} groups of {self.group} ranks" if self.group else f"{self.ranks} ranks"
            why = f"{self.servers} servers on {among}: each lies on {'a group' if self.group else 'a rank'} of its own"
            mends = replaced(plan, self, with_fields(self, servers=self._groups), with_fields(self, group=0))
            yield Refusal("servers on ranks", why, mends=mends)
        if self.staleness and self.mode != "ssp":
            mends = replaced(plan, self, with_fields(self, mode="ssp"), with_fields(self, staleness=0))
            yield Refusal("bounded staleness", f"s{self.staleness} with {self.mode}: only ssp has a bound", mends=mends)
        yield from one_way(self, setting)
