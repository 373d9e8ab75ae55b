"""The modules of a layer, told apart by what they compute: attention, a dense feed-forward part, experts.

Names differ between zoo and Hugging Face; what a module holds does not.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from foretell.model.graph import Node
from foretell.model.operators.attention import Attention
from foretell.model.operators.normalization import Normalize
from foretell.plan.recomputation import Recomputation, Saving

PRODUCTS = ("matmul", "grouped_matmul")
EXPERTS = "grouped_matmul"

LATENT = ("kv_down", "kv_a_proj_with_mqa")
"""The product that makes the latent of keys and values: MLA has one."""

DOWN = ("query_down", "q_a_proj", *LATENT)

Indices: TypeAlias = set[int]


def below(node: Node) -> tuple[str, ...]:
    """The names of a node's module under its layer; none for what belongs to the layer itself."""
    parts = node.path.split(".")
    at = next((at for at, part in enumerate(parts) if part.isdecimal()), len(parts))
    return tuple(parts[at + 1 :])


def modules(nodes: Sequence[Node]) -> dict[str, Indices]:
    """The operators of each module of a layer."""
    found: dict[str, Indices] = {}
    for index, node in enumerate(nodes):
        for name in below(node)[:1]:
            found.setdefault(name, set()).add(index)
    return found


def having(nodes: Sequence[Node], kinds: tuple[str, ...]) -> Iterator[Indices]:
    """The modules of a layer that have an operator of some kind."""
    return (own for own in modules(nodes).values() if any(nodes[index].kind in kinds for index in own))


def attention_modules(nodes: Sequence[Node]) -> Iterator[Indices]:
    """Those that attend."""
    every = modules(nodes).values()
    return (own for own in every if any(isinstance(nodes[index].operator, Attention) for index in own))


def latent(nodes: Sequence[Node]) -> bool:
    """Whether the layer's attention makes keys and values from a latent (MLA)."""
    return any(node.path.endswith(LATENT) for node in nodes)


def norms(nodes: Sequence[Node]) -> list[int]:
    """The norms that stand between the modules of a layer, in order."""
    return [index for index, node in enumerate(nodes) if isinstance(node.operator, Normalize) and len(below(node)) == 1]


class ModulesAgain(Recomputation, frozen=True):
    """A rule by which some operators of a layer run again; in Megatron one of its `recompute_modules`."""

    searched = False  # where a trainer offers it by name
    joins = True

    @abc.abstractmethod
    def again(self, nodes: Sequence[Node]) -> Indices:
        """Those of a layer's operators."""

    def savings(self, nodes: Sequence[Node], in_layer: bool) -> list[Saving]:
        again: Indices = self.again(nodes) if in_layer else set()
        return [Saving.AGAIN if index in again else Saving.SAVE for index in range(len(nodes))]
