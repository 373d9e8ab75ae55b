"""Data parallelism: every rank takes some of the samples.

`zero1` shards optimizer states over the ranks, `zero2` gradients too, `zero3` weights too (FSDP). With `shardN` they
are sharded over groups of N ranks and replicated across the groups (hybrid sharding, HSDP). `epN` places experts on
groups of N ranks; `etpN` is the tensor parallelism inside an expert. `alltoall`, `allgather` and `deepep` are ways in
which rows reach their experts; a trainer has one that is meant where none is said. `shares=5/1` has the first
half of the ranks take five times as many samples as the others: for devices that are not equally fast.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from foretell.plan.dispatch import DISPATCHES
from foretell.plan.facts import facts
from foretell.plan.refusal import Refusal
from foretell.plan.repair import divisors, replaced, with_fields
from foretell.plan.storage import STORAGES
from foretell.plan.strategies.tensor import Tensor
from foretell.plan.strategy import MeshAxis, Splitting, Strategy
from foretell.plan.syntax import Number, Numbers, Option, WordChoice, spelled_list

if TYPE_CHECKING:
    from foretell.model.graph import Graph
    from foretell.plan.setting import Setting


SAMPLES = Splitting(dim="sample")

STORED = tuple(name for name, storage in STORAGES.items() if storage.states)


class Data(Strategy, frozen=True, kw_only=True, tag="data"):
    """Some of the samples on each rank."""

    word: ClassVar[str] = "dp"
    place: ClassVar[int] = 20
    summary: ClassVar[str] = "every rank takes some of the samples"
    references: ClassVar[tuple[str, ...]] = (
        "Li et al. 2020 (PyTorch DDP), arXiv 2006.15704",
        "Rajbhandari et al. 2020 (ZeRO), arXiv 1910.02054",
        "Zhao et al. 2023 (FSDP, hybrid sharding), arXiv 2304.11277",
        "Lepikhin et al. 2021 (GShard, experts), arXiv 2006.16668",
    )
    syntax: ClassVar[tuple[Option, ...]] = (
        WordChoice("storage", {"zero1": "zero1", "zero2": "zero2", "zero3": "zero3"}),
        Number("shard", "shard"),
        Number("ep", "experts"),
        Number("etp", "expert_tensor"),
        WordChoice("dispatch", {name: name for name in DISPATCHES}),
        Numbers("shares", "shares"),
    )
    example: ClassVar[str] = "dp8:zero3"

    storage: str = "replicated"
    shard: int = 0  # ranks of a group among which states lie in shares; 0: all of them
    experts: int = 1
    expert_tensor: int = 0  # ranks that share one expert; 0: as the tensor axis
    dispatch: str = ""  # how rows reach their experts; empty: as the trainer does
    shares: tuple[int, ...] = ()  # of the samples, for as many blocks of ranks, one after the other; empty: equal ones

    @classmethod
    def choices(cls, world: int, graph: Graph, node: int) -> Iterator[Data]:
        """Every storage, shares among all ranks or those of a node, and experts on as many ranks as divide them."""
        count = facts(graph).experts
        experts = [1, *(ranks for ranks in divisors(world)[::-1] if count and ranks > 1 and count % ranks == 0)]
        for storage, ep in itertools.product(("replicated", *STORED), experts):
            yield cls(ranks=world, storage=storage, experts=ep)
            if storage != "replicated" and 1 < node < world and world % node == 0 and node % ep == 0:
                yield cls(ranks=world // node, storage=storage, shard=node, experts=ep)

    @property
    def world(self) -> int:
        return self.ranks * max(1, self.shard)

    @property
    def by_rank(self) -> tuple[int, ...]:
        """The share of each rank; as many on all, where none are said."""
        shares = self.shares or (1,)
        return tuple(share for share in shares for _ in range(self.world // len(shares)))

    def axes(self) -> tuple[MeshAxis, ...]:
        ranks, shard = self.ranks, self.shard
        storage = STORAGES[self.storage]
        groups = [("dp", ranks, STORAGES["replicated"] if shard else storage)]
        if shard:
            groups.append(("shard", shard, storage))
        if self.experts > 1:  # the innermost ranks of the last group divide the experts among them
            name, size, stored = groups.pop()
            inside = min(self.experts, size)
            groups += [(name, size // inside, stored), ("ep", inside, stored)]
        return tuple(MeshAxis(name, size, self._splitting(name), stored) for name, size, stored in groups)

    def _splitting(self, axis: str) -> Splitting:
        return Splitting(dim="sample", experts="divide", dispatch=self.dispatch) if axis == "ep" else SAMPLES

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        plan = setting.plan
        if self.shard == 1 or (self.shard and self.storage == "replicated"):
            shared = with_fields(self, storage="zero3" if self.storage == "replicated" else self.storage)
            others = [shared] if self.shard > 1 else []
            others += [with_fields(self, storage="replicated", ranks=self.world, shard=0)]
            alone = f"shard{self.shard}: groups of one rank have no shares"
            why = alone if self.shard == 1 else f"shard{self.shard} without zero1, zero2 or zero3: nothing is in shares"
            yield Refusal("shares to shard", why, mends=replaced(plan, self, *others))
        if self.experts > 1 or self.expert_tensor:
            yield from self._experts(setting)
        if self.shares and (self.world % len(self.shares) or len(set(self.shares)) == 1):
            said = f"shares={spelled_list(self.shares)}"
            why = f"{said} names {len(self.shares)} blocks of {self.world} ranks"
            why = f"{said} are equal shares" if len(set(self.shares)) == 1 else why
            yield Refusal("shares of samples", why, mends=replaced(plan, self, with_fields(self, shares=())))
        if self.dispatch and self.experts == 1:
            why = f"{self.dispatch} is how rows reach experts of other ranks, and the plan divides none (ep)"
            others = [with_fields(self, dispatch="")]
            yield Refusal("rows to dispatch", why, mends=replaced(plan, self, *others))
        tensor = plan.axis("tp")
        ranks = tensor.ranks if tensor else 1
        if self.expert_tensor not in (0, 1, ranks):
            why = f"etp{self.expert_tensor}: an expert is shared by all {ranks} tensor ranks or by one"
            others = [with_fields(self, expert_tensor=0), with_fields(self, expert_tensor=1)]
            yield Refusal("expert tensor ranks", why, mends=replaced(plan, self, *others))
        if self.expert_tensor == 1 and isinstance(tensor, Tensor) and ranks > 1 and not tensor.sequence:
            why = f"etp1 with tp{ranks}: each tensor rank sends tokens of its own to experts, so it must have some"
            mends = replaced(plan, tensor, with_fields(tensor, sequence=True))
            mends += replaced(plan, self, with_fields(self, expert_tensor=0))
            yield Refusal("experts with sequence", why, mends=mends)

    def _experts(self, setting: Setting) -> Iterator[Refusal]:
        count, ep = facts(setting.graph).experts, self.experts
        if not count:
            said = f"ep{ep}" if ep > 1 else f"etp{self.expert_tensor}"
            whole = with_fields(self, experts=1, expert_tensor=0)
            why = f"{said}, but {setting.graph.name} has no experts"
            yield Refusal("experts to divide", why, mends=replaced(setting.plan, self, whole))
            return
        inside, folded = self.shard or self.ranks, self._folded(setting)
        others = [with_fields(self, experts=n) for n in range(ep - 1, 0, -1) if count % n == 0 and inside % n == 0]
        mends = replaced(setting.plan, self, *others)
        if count % ep:
            yield Refusal("experts divide", f"{count} experts are not a multiple of ep{ep}", mends=mends)
        if (inside % ep and ep < inside) or (ep > inside and ep != folded):
            why = f"ep{ep} does not fold over {inside} data ranks"
            over = f" (with etp1: over {folded})" if folded > inside else ""
            yield Refusal("experts fold", why + over, mends=mends)

    def _folded(self, setting: Setting) -> int:
        """Ranks over which experts can be divided: with etp1 the tensor ranks are among them."""
        tensor = setting.plan.axis("tp")
        return (self.shard or self.ranks) * (tensor.ranks if tensor and self.expert_tensor == 1 else 1)
