"""What is to be done, apart from how: batch, lengths, optimizer, how long to train, and the trainer.

The batch is always the global one: samples (or sequences) of one optimizer step over all ranks. A
micro-batch is what one rank takes at a time: batch / (ranks that split the batch x micro-batches).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from foretell.errors import BadInput, unknown
from foretell.model.optimizer import OPTIMIZERS
from foretell.plan.plan import Plan
from foretell.plan.policies.microbatches import Microbatches
from foretell.plan.refusal import Refusal
from foretell.plan.repair import changed, near, replaced
from foretell.plan.storage import STORAGES
from foretell.plan.strategies.data import Data
from foretell.plan.strategy import Strategy
from foretell.plan.trainer import trainer as find_trainer
from foretell.units import product


class Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One training job. 0 for a length: the model's own; 0 for an amount: not asked."""

    batch: int  # samples or sequences of one optimizer step, over all ranks
    sequence: int = 0  # tokens of a sequence
    image: int = 0  # pixels along a side of an image
    optimizer: str = "adamw"
    samples: int = 0  # to train on
    tokens: int = 0  # to train on
    trainer: str = "pytorch"

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise BadInput(f"a batch of {self.batch}", where="job, batch", fix="1 or more, for all ranks together")
        for name in ("sequence", "image", "samples", "tokens"):
            if getattr(self, name) < 0:
                raise BadInput(f"{name} is {getattr(self, name)}", where=f"job, {name}", fix="0 or more")
        if self.optimizer not in OPTIMIZERS:
            raise unknown("optimizer", self.optimizer, OPTIMIZERS).within("job, optimizer")

    @property
    def fingerprint(self) -> str:
        """A short name for exactly this job, the same on every machine."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:16]

    def steps(self, sequence: int = 0) -> int:
        """Optimizer steps until all samples and tokens were seen; 0: not asked. `sequence` is the model's own."""
        length = self.sequence or sequence
        if self.tokens and not length:
            raise BadInput("tokens to train on, but no sequence length", where="job, sequence", fix="--sequence 4096")
        by_samples = -(-self.samples // self.batch)
        by_tokens = -(-self.tokens // (self.batch * length)) if self.tokens else 0
        return max(by_samples, by_tokens)


def make_job(
    batch: int,
    *,
    trainer: str = "pytorch",
    optimizer: str = "",
    sequence: int = 0,
    image: int = 0,
    samples: int = 0,
    tokens: int = 0,
) -> Job:
    """A job whose optimizer, if none is named, is the trainer's; a trainer's second name becomes its first."""
    found = find_trainer(trainer)
    return Job(
        batch=batch,
        sequence=sequence,
        image=image,
        optimizer=optimizer or found.defaults.optimizer,
        samples=samples,
        tokens=tokens,
        trainer=trainer if trainer.endswith(".toml") else found.name,
    )


def batch_ranks(plan: Plan) -> int:
    """Ranks that split the batch among them."""
    return product(strategy.world for strategy in plan.axes if _splits_batch(strategy))


def _splits_batch(strategy: Strategy) -> bool:
    return any(axis.splitting.dim == "sample" for axis in strategy.axes())


def per_rank(batch: int, plan: Plan) -> int:
    """The global batch when each rank that splits it takes `batch` samples a step: the weak form."""
    if batch < 1:
        raise BadInput(f"a batch of {batch} per rank", where="--batch-per-rank", fix="1 or more")
    return batch * batch_ranks(plan)


def micro_batch(job: Job, plan: Plan) -> int:
    """Samples that one rank takes at a time, of a batch that divides."""
    return job.batch // (batch_ranks(plan) * plan.microbatches)


def divides(job: Job, plan: Plan) -> Iterator[Refusal]:
    """The refusal of a batch that does not divide among ranks and micro-batches."""
    ranks, count, batch = batch_ranks(plan), plan.microbatches, job.batch
    shares = ranks * count
    if batch % shares == 0:
        return
    below, above = batch // shares * shares, -(-batch // shares) * shares
    batches = tuple(size for size in (below, above) if size)
    why = undivided(batch, ranks, count)
    yield Refusal("batch divides", why, as_options(batches), tuple(_dividing(batch, plan)), batches)


def undivided(batch: int, ranks: int, microbatches: int) -> str:
    """Why a batch does not divide, with its numbers."""
    among = f"{ranks} data-parallel rank{'' if ranks == 1 else 's'}"
    among += f" x {microbatches} micro-batches = {ranks * microbatches}" if microbatches > 1 else ""
    return f"a batch of {batch} is not a multiple of {among}"


def as_options(batches: Iterable[int]) -> str:
    """Batches as they are typed."""
    return " or ".join(f"--batch {size}" for size in batches)


def _dividing(batch: int, plan: Plan) -> Iterator[Plan]:
    """The plan with fewer micro-batches, or with other ranks on an axis that splits the batch, the nearest first."""
    ranks, count = batch_ranks(plan), plan.microbatches
    fits = (m for m in range(count, 0, -1) if batch % (ranks * m) == 0)
    for fewer_batches in islice(fits, 1):
        yield from changed(plan, Microbatches(count=fewer_batches))
    for axis in plan.axes:
        for times in (count, 1) if _splits_batch(axis) else ():  # with the micro-batches as they are, or with fewer
            others = ranks // axis.ranks * times
            for other in near(axis, lambda n, others=others: batch % (others * n) == 0):
                yield from replaced(plan, axis, other)


def own_counts(data: Data, microbatches: int, batch: int) -> list[tuple[float, float]]:
    """Samples of each data rank, and its micro-batches: as large as on the others, or as many where messages of weights
    come with each of them. Where shares do not go into the batch, the numbers are no whole ones."""
    whole, together = sum(data.by_rank), STORAGES[data.storage].gradients
    mean = microbatches * len(data.by_rank) / whole
    counts = [microbatches if together or microbatches == 1 else share * mean for share in data.by_rank]
    return [(batch * share / whole, count) for share, count in zip(data.by_rank, counts, strict=True)]
