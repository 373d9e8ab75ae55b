# pyright: basic
"""The mesh of ranks that really run: an axis of the plan is a dim of torch's DeviceMesh under the same name."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from foretell.plan.plan import Plan
from foretell.program import mesh as planned


class TorchMesh(NamedTuple):
    """The axes with more than one rank, outermost first, and torch's mesh over them; none where there is one rank.

    An axis of one rank is among them where somebody wants to see what it costs.
    """

    sizes: dict[str, int]
    devices: DeviceMesh | None

    def __contains__(self, name: object) -> bool:
        return name in self.sizes

    def ranks(self, name: str) -> int:
        return self.sizes.get(name, 1)

    def place(self, name: str) -> int:
        """This rank's place on an axis."""
        return self.devices.get_local_rank(name) if self.devices is not None and name in self.sizes else 0

    def group(self, name: str) -> dist.ProcessGroup:
        return self._devices.get_group(name)

    def along(self, *names: str) -> DeviceMesh:
        """Torch's mesh of some axes, or of axes that were joined: `dp_cp`."""
        found = [name for name in self.sizes if name in names] or list(names)  # torch wants them outermost first
        return self._devices[tuple(found) if len(found) > 1 else found[0]]

    def arranged(self, first: Sequence[str], last: Sequence[str]) -> DeviceMesh:
        """Torch's mesh of two dims, each of some axes joined, whatever the order of the plan. All ranks make it."""
        names = (*first, *last)
        if len(names) == 2 and list(names) == [name for name in self.sizes if name in names]:
            return self.along(*names)  # they lie as they should
        order = [*(name for name in self.sizes if name not in names), *names]
        ranks = self._devices.mesh.permute([list(self.sizes).index(name) for name in order])
        shape = (-1, math.prod(map(self.ranks, first)), math.prod(map(self.ranks, last)))
        dims = ("others", "_".join(first), "_".join(last))
        whole = DeviceMesh(self._devices.device_type, ranks.reshape(shape), mesh_dim_names=dims)
        return whole[dims[1:]]

    def anew(self, name: str, places: Sequence[int] = ()) -> dist.ProcessGroup | None:
        """A new group of the ranks at some places of an axis, or at all; none elsewhere. All ranks take part."""
        found: dist.ProcessGroup | None = None
        lines = self._devices.mesh.movedim(list(self.sizes).index(name), -1).reshape(-1, self.ranks(name))
        for line in lines.tolist():
            ranks = [line[place] for place in places] if places else line
            group: Any = dist.new_group(ranks)
            found = group if dist.get_rank() in ranks else found
        return found

    @property
    def _devices(self) -> DeviceMesh:
        assert self.devices is not None, "one rank has no axes"
        return self.devices

    @property
    def places(self) -> dict[str, int]:
        return {name: self.place(name) for name in self.sizes}

    def groups(self) -> dict[frozenset[int], tuple[str, ...]]:
        """Every set of ranks that some axes join with this one, and these axes: no two sets are the same."""
        if self.devices is None:
            return {}
        ranks, names = self.devices.mesh, tuple(self.sizes)
        found: dict[frozenset[int], tuple[str, ...]] = {}
        for count in range(1, len(names) + 1):
            for joined in itertools.combinations(names, count):
                index = tuple(slice(None) if name in joined else self.place(name) for name in names)
                found[frozenset(ranks[index].flatten().tolist())] = joined
        return found


def made(plan: Plan, device: str, alone: bool = False) -> TorchMesh:
    """The mesh of a plan, in a world that has begun; `alone`: the first axis of a plan of one rank is one too."""
    sizes = {axis.name: axis.ranks for axis in planned.mesh(plan)}
    if not sizes and alone and plan.axes:
        sizes = {plan.axes[0].word: 1}
    if not sizes:
        return TorchMesh({}, None)
    return TorchMesh(sizes, init_device_mesh(device, tuple(sizes.values()), mesh_dim_names=tuple(sizes)))
