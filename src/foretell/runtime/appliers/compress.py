# pyright: basic
"""Compression: `+compress:topk0.01`. What DistributedDataParallel sends of a bucket is written by a compressor.

The compressors are those of virtual time (`foretell.learning.compressors`). Sums of what they write mean nothing, so
every rank gets everybody's bytes, reads them and takes the mean; sixteen bits and PowerSGD's factors are summed on the
way. What a rank still owes lies by weight, since buckets are laid out anew after the first step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

from foretell.learning.compressor import Compressor, Sender
from foretell.learning.compressors.powersgd import Powersgd
from foretell.learning.members import of_policy
from foretell.plan.policies.compression import Compression
from foretell.plan.policies.overlap import Overlap
from foretell.plan.setting import Setting
from foretell.plan.strategies.data import Data
from foretell.runtime import waiting
from foretell.runtime.appliers._replicas import wrappers
from foretell.runtime.methods.choice import axis_of
from foretell.runtime.subject import Subject

ORDER = 50  # when there are wrappers to tell


def refusals(part: Compression, setting: Setting) -> Iterator[tuple[str, str]]:
    plan = setting.plan
    data = plan.axis(Data)
    if part.method == "none" or axis_of(plan) is not None:
        return
    if data is None or data.ranks == 1 or data.storage != "replicated":
        yield f"+compress:{part.method} runs in DistributedDataParallel's buckets, and in pushes", "dp, or ps:async"
    if plan.policy(Overlap).when == "never":
        yield f"+compress:{part.method} beside +no-overlap does not run", "no +no-overlap"


def apply(part: Compression, subject: Subject) -> None:
    compressor = of_policy(part)
    if compressor is None or axis_of(subject.setting.plan) is not None:
        return
    for at, own in enumerate(subject.parts):
        for wrapper in wrappers(own):
            group = wrapper.process_group
            assert isinstance(group, dist.ProcessGroup)
            if part.method == "fp16":
                wrapper.register_comm_hook(group, fp16_compress_hook)
            elif isinstance(compressor, Powersgd):
                wrapper.register_comm_hook(_Factors(compressor, group), _exchanged)
            else:
                wrapper.register_comm_hook(_Everybodys(compressor, group, at), _exchanged)


def _exchanged(state, bucket):
    return state.exchange(bucket)


class _Everybodys:
    """A rank sends what its compressor writes, and reads what all others wrote."""

    def __init__(self, compressor: Compressor, group: dist.ProcessGroup, seed: int) -> None:
        self._compressor, self._group, self._ranks = compressor, group, dist.get_world_size(group)
        self._draws = np.random.default_rng([seed, dist.get_rank(group)])
        self._senders: dict[torch.Tensor, Sender] = {}

    def exchange(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        buffer, gradients = bucket.buffer(), bucket.gradients()
        senders = [self._sender(weight) for weight in bucket.parameters()]
        written = [sender.write(_numbers(one)) for sender, one in zip(senders, gradients, strict=True)]
        lengths = [len(wire) for wire in written]
        own = torch.from_numpy(np.concatenate(written)).to(buffer.device)
        everybodys = torch.empty(self._ranks * len(own), dtype=torch.uint8, device=buffer.device)
        work = dist.all_gather_into_tensor(everybodys, own, group=self._group, async_op=True)
        assert work is not None

        def read(_: Any) -> torch.Tensor:
            lines = everybodys.cpu().numpy().reshape(self._ranks, -1)
            begin = 0
            for sender, length, gradient in zip(senders, lengths, gradients, strict=True):
                found = [sender.read(line[begin : begin + length]) for line in lines]
                mean = np.mean(found, axis=0, dtype=np.float64).reshape(gradient.shape)
                gradient.copy_(torch.from_numpy(mean))
                begin += length
            return buffer

        return work.get_future().then(read)

    def _sender(self, weight: torch.Tensor) -> Sender:
        if weight not in self._senders:
            self._senders[weight] = Sender(self._compressor, (tuple(weight.shape),), self._draws)
        return self._senders[weight]


def _numbers(gradient: torch.Tensor) -> Any:
    return gradient.detach().flatten().float().cpu().numpy()


class _Factors:
    """PowerSGD (Vogels et al. 2019): the left factors of all ranks are summed, made orthogonal, then the right ones.

    The right factor of the last step is where the next one begins. What does not get smaller travels with left ones.
    """

    def __init__(self, compressor: Powersgd, group: dist.ProcessGroup) -> None:
        self._compressor, self._group, self._ranks = compressor, group, dist.get_world_size(group)
        self._right: dict[torch.Tensor, torch.Tensor] = {}
        self._owed: dict[torch.Tensor, torch.Tensor] = {}

    def exchange(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        weights, gradients = bucket.parameters(), [_matrix(one) for one in bucket.gradients()]
        thin = [not self._compressor.as_it_is(*one.shape) for one in gradients]
        meant = [
            one + self._owed.get(weight, 0.0) for weight, one, cut in zip(weights, gradients, thin, strict=True) if cut
        ]
        cut = [weight for weight, small in zip(weights, thin, strict=True) if small]
        left = [matrix @ self._first(weight, matrix) for weight, matrix in zip(cut, meant, strict=True)]
        whole = [one for one, small in zip(gradients, thin, strict=True) if not small]
        self._mean([*left, *whole])
        left = [torch.linalg.qr(one).Q for one in left]
        right = [matrix.T @ one for matrix, one in zip(meant, left, strict=True)]
        for weight, matrix, one, other in zip(cut, meant, left, right, strict=True):
            self._owed[weight] = matrix - one @ other.T  # of its own: what all owe together is lost to nobody
        self._mean(right)
        made = iter(zip(cut, left, right, strict=True))
        for gradient, small in zip(gradients, thin, strict=True):
            if small:
                weight, one, other = next(made)
                gradient.copy_(one @ other.T)
                self._right[weight] = other
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    def _first(self, weight: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        """The same on all ranks: drawn once, by the shape."""
        if weight not in self._right:
            draws = np.random.default_rng(list(matrix.shape))
            drawn = draws.standard_normal((matrix.shape[1], self._compressor.rank))
            self._right[weight] = torch.from_numpy(drawn).to(matrix)
        return self._right[weight]

    def _mean(self, tensors: list[torch.Tensor]) -> None:
        """Of each over all ranks, in one message, where it is. Who needs the sum for what comes next waits for it."""
        if not tensors:
            return
        flat = torch.cat([one.flatten() for one in tensors]).div_(self._ranks)
        with waiting.along(self._group):
            dist.all_reduce(flat, group=self._group)
        for one, mean in zip(tensors, flat.split([one.numel() for one in tensors]), strict=True):
            one.copy_(mean.view_as(one))


def _matrix(gradient: torch.Tensor) -> torch.Tensor:
    """The first dim by all the others."""
    return gradient.view(gradient.shape[0] if gradient.dim() else 1, -1)
