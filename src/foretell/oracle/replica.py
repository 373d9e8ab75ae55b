"""How the ranks of a replica that writes share a model out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from foretell.errors import BadInput
from foretell.hardware.cluster import Cluster

FORM = "tp4, pp2 tp8, ep16"


class Replica(NamedTuple):
    """Tensor ranks, stages, and ranks with answers of their own that share experts out (data parallel attention)."""

    tensor: int = 1
    stages: int = 1
    experts: int = 1

    @property
    def ranks(self) -> int:
        return self.tensor * self.stages * self.experts

    def __str__(self) -> str:
        said = (("pp", self.stages), ("ep", self.experts), ("tp", self.tensor))
        return " ".join(f"{word}{ranks}" for word, ranks in said if ranks > 1) or "tp1"

    @property
    def axes(self) -> str:
        """As a plan has them; of what engines offer for experts' rows DeepEP, which is for several nodes (docs.vllm.ai,
        serving/expert_parallel_deployment: deepep_low_latency; unasked vLLM gathers and reduce-scatters)."""
        stages = f"pp{self.stages}:1f1b +m{self.stages} " if self.stages > 1 else ""
        experts = f"dp{self.experts}:ep{self.experts},deepep " if self.experts > 1 else ""
        return f"{stages}{experts}tp{self.tensor}"

    @property
    def filled(self) -> float:
        """Share of a pass through all stages that is left when the next begins as soon as one has room: a pipeline that
        is always full has no bubble."""
        return self.stages / (2 * self.stages - 1)


def read(text: str) -> Replica:
    """One as a person writes it."""
    found: dict[str, int] = {}
    for word in re.split("[ ,]+", text.strip()):
        said = re.fullmatch("(tp|pp|ep)([1-9][0-9]{0,3})", word)
        if said is None or said[1] in found:
            raise BadInput(f"{text!r} is no replica", where="--rollout", fix=FORM)
        found[said[1]] = int(said[2])
    return Replica(found.get("tp", 1), found.get("pp", 1), found.get("ep", 1))


def inside(cluster: Cluster) -> Iterator[Replica]:
    """Powers of two within what fast links reach."""
    return (Replica(1 << at) for at in range(cluster.domain.bit_length()))


def wider(cluster: Cluster, ranks: int, experts: int) -> Iterator[Replica]:
    """What is tried where none of these has room: stages of whole nodes, and experts shared out."""
    most = 1 << (cluster.domain.bit_length() - 1)
    for at in range(1, ranks.bit_length()):
        if most << at <= ranks:
            yield Replica(most, stages=1 << at)
        if 1 << at <= min(ranks, experts):
            yield Replica(experts=1 << at)
