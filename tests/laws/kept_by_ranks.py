# pyright: basic
"""What one rank of a plan keeps after a forward pass, as JSON: run by `test_saved_bytes_of_ranks.py`, a process a plan.

The others are not there (`runtime.rehearsed_world`). Every storage that an operator makes is followed by a weak
reference; what is alive when the pass is over and no weight lies in is what autograd keeps.
"""

from __future__ import annotations

import functools
import gc
import json
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from foretell.plan.policies.recompute import Recompute
from foretell.program.expand import expand
from foretell.program.lower import lower
from foretell.runtime.appliers import recompute as applier
from foretell.runtime.assignment import Assignment, Rehearsal
from foretell.runtime.rehearsed_world import RehearsedWorld, at_once, begun, let_go
from foretell.runtime.tasks import Batch
from foretell.runtime.training import RankTraining


class Followed(TorchDispatchMode):
    """Storages that operators made."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[int, StorageWeakRef] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not any(issubclass(kind, DTensor) for kind in types):
            for one in tree_leaves(result):
                if isinstance(one, torch.Tensor) and type(one) is not DTensor:
                    known = StorageWeakRef(one.untyped_storage())
                    self.made[known.cdata] = known
        return result

    def alive(self) -> dict[int, int]:
        """Bytes of what is there still, by storage."""
        found: dict[int, int] = {}
        for cdata, known in self.made.items():
            if not known.expired():
                found[cdata] = torch.UntypedStorage._new_with_weak_ptr(known.cdata).nbytes()
        return found


def own_storages(training: RankTraining, sample: Batch) -> set[int]:
    """Of weights, buffers and samples."""
    tensors: list[torch.Tensor] = [*sample.inputs, sample.target]
    for part in training.subject.parts:
        tensors += [*part.parameters(), *part.buffers()]
    local = [one.to_local() if isinstance(one, DTensor) else one for one in tensors]
    return {StorageWeakRef(one.untyped_storage()).cdata for one in local}


def case(model: str, plan: str, batch: int) -> dict[str, Any]:
    asked = Assignment(model=model, plan=plan, batch=batch, rehearsal=Rehearsal(0, "8xcpu", priced=False))
    setting = asked.setting
    part = setting.plan.policy(Recompute)
    refused = [why for why, _ in applier.refusals(part, setting)] if part != Recompute() else []
    if refused:
        return {"plan": plan, "refused": refused}
    begun(0, setting.plan.ranks)
    RehearsedWorld(at_once, {}).enter()
    training = RankTraining(asked, setting)
    (module,) = training.subject.parts
    sample = next(training.batches)
    for share in training.subject.shares:
        sample = share(sample)
    sample = Batch(tuple(one.contiguous() for one in sample.inputs), sample.target.contiguous())
    given = sum(tensor.nbytes for tensor in (*sample.inputs, sample.target))
    followed = Followed()
    with followed:
        loss = training.subject.loss(module(*sample.inputs), sample.target)
    let_go()
    gc.collect()
    assert loss.requires_grad
    left = followed.alive()
    ours = own_storages(training, sample)
    kept = sum(size for cdata, size in left.items() if cdata not in ours)
    said = expand(lower(setting)).stages[0].memory.kept - given + loss.nbytes
    return {"plan": plan, "kept": kept, "said": said, "given": given}


def main() -> None:
    applier.checkpoint = functools.partial(checkpoint, preserve_rng_state=False)  # its state is no activation
    model, batch, *plans = sys.argv[1:]
    for plan in plans:
        print(json.dumps(case(model, plan, int(batch))), flush=True)
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
