# pyright: basic
"""Weights that several places of a pipeline have: copies whose gradients are summed.

A token table that is the head too is one; where the model lies on the pipeline twice (DualPipe), every weight is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from foretell.runtime.subject import Subject


def tied(module: nn.Module) -> list[list[str]]:
    """The names of each weight that has several."""
    names: dict[nn.Parameter, list[str]] = defaultdict(list)
    for name, weight in module.named_parameters(remove_duplicate=False):
        names[weight].append(name)
    return [found for found in names.values() if len(found) > 1]


def keep_alike(
    subject: Subject, parts: Sequence[nn.Module], places: Sequence[Sequence[int]], shared: list[list[str]]
) -> None:
    """Sum the gradients of weights that several places of the pipeline have; `places` has those of each part, `shared`
    the names of weights that have several. All ranks make all groups, in one order."""
    first = {name: names[0] for names in shared for name in names}
    holders: dict[str, set[int]] = defaultdict(set)
    homes: dict[str, int] = {}  # the first part that has a weight
    for at, part in enumerate(parts):
        for name, _ in part.named_parameters(remove_duplicate=False):
            holders[first.get(name, name)] |= set(places[at])
            homes.setdefault(first.get(name, name), at)
    together: dict[tuple[int, tuple[int, ...]], set[str]] = defaultdict(set)
    for name, own in holders.items():
        if len(own) > 1:
            together[homes[name], tuple(sorted(own))].add(name)
    groups = {own: subject.mesh.anew("pp", own) for own in sorted({own for _, own in together})}
    for (_, own), names in sorted(together.items()):
        if subject.mesh.place("pp") in own:
            subject.settles.append(_Copies(subject, names, first, groups[own]).settle)
    subject.wholes.append(lambda name, share: (first.get(name, name), share))


class _Copies:
    """Weights of one part that some places of the pipeline have."""

    def __init__(
        self, subject: Subject, names: set[str], first: dict[str, str], group: dist.ProcessGroup | None
    ) -> None:
        assert group is not None
        self.subject, self.names, self.first, self.group = subject, names, first, group

    def settle(self) -> None:
        """Sum the gradients of the copies as one message; shares of them where they lie in shares."""
        gradients = self._gradients()
        if len(gradients) == 1:  # as it lies
            dist.all_reduce(gradients[0], group=self.group)
        elif gradients:
            total = torch.cat([one.flatten() for one in gradients])
            dist.all_reduce(total, group=self.group)
            for one, summed in zip(gradients, total.split([one.numel() for one in gradients]), strict=True):
                one.copy_(summed.view_as(one))

    def _gradients(self) -> list[torch.Tensor]:
        """In the order of their names, which all who have them share; a weight that two parts have, once."""
        found: dict[str, torch.Tensor] = {}
        for part in self.subject.parts:
            for path, weight in part.named_parameters():
                plain = path.removeprefix("module.")  # that of a wrapper
                name = self.first.get(plain, plain)
                if name in self.names and weight.grad is not None:
                    found[name] = weight.grad.to_local() if isinstance(weight.grad, DTensor) else weight.grad
        return [found[name] for name in sorted(found)]
