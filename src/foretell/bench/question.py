"""What is asked of one row: an engine, a pair, so many ranks and a seed, with all that may change the answer."""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import msgspec

from foretell.bench.engine import PER_RANK, STALE, Engine, EngineTexts, engine, written
from foretell.bench.pair import Pair, pair
from foretell.bench.row import BenchRow
from foretell.errors import BadInput
from foretell.runtime.assignment import Assignment
from foretell.version import __version__

SURVEY = "survey"
FIXED = "fixed"
BATCH_RULES = {
    SURVEY: "so many samples for each rank: the batch grows with the ranks",
    FIXED: "so many samples of a step, whatever the ranks",
}

CHANGED = ("model", "task", "batch", "optimizer", "rate", "steps", "device")
"""What a question may say otherwise than its pair."""

OF_PAIR = (*CHANGED, "look")
OF_RUN = ("batch_rule", "scaled", "warmup", "threads")
"""What may differ, in the pair and beside it."""


class BenchQuestion(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A cell of the matrix. Empty and 0: what the pair says."""

    engine: str
    pair: str
    ranks: int
    seed: int = 0
    batch_rule: str = SURVEY
    model: str = ""
    task: str = ""
    batch: int = 0  # by the rule: for each rank, or of a step
    optimizer: str = ""
    rate: float = 0.0
    scaled: bool = False  # whether the rate grows with the batch
    warmup: int = 0
    steps: int = 0
    look: int = -1  # steps between two looks at held-out data; -1: the pair's
    device: str = ""
    threads: int = 1

    @functools.cached_property
    def fingerprint(self) -> str:
        """Equal for questions with the same answer: of the same pair, and the same plan and settings of an engine."""
        asked = (self, self.pair_asked, self.texts, self.engine_asked.settings, __version__)
        return hashlib.sha256(msgspec.json.encode(asked, order="deterministic")).hexdigest()[:10]

    @functools.cached_property
    def conditions(self) -> str:
        """What differs from the pair as it is, in words; engines, ranks and seeds are told apart elsewhere."""
        usual = BenchQuestion(engine=self.engine, pair=self.pair, ranks=self.ranks)
        changed = {name: getattr(self.pair_asked, name) for name in OF_PAIR if _differ(self, usual, name)}
        changed |= {name: getattr(self, name) for name in OF_RUN if getattr(self, name) != getattr(usual, name)}
        return ", ".join(f"{name.replace('_', ' ')} {_word(value)}" for name, value in changed.items())

    @functools.cached_property
    def engine_asked(self) -> Engine:
        return engine(self.engine)

    @functools.cached_property
    def pair_asked(self) -> Pair:
        """The pair, with what the question changes of it."""
        said = pair(self.pair)
        changes: dict[str, Any] = {name: getattr(self, name) for name in CHANGED if getattr(self, name)}
        if self.look >= 0:
            changes["look"] = self.look
        return msgspec.structs.replace(said, **changes)

    @functools.cached_property
    def texts(self) -> EngineTexts:
        asked = self.pair_asked
        return written(self.engine_asked, self.ranks, asked.region, asked.precision, asked.device)

    @property
    def batch_of_step(self) -> int:
        """Samples of a step, of all ranks. An engine whose every mini-batch is an update takes several of them."""
        if self.batch_rule not in BATCH_RULES:
            raise BadInput(f"no batch rule {self.batch_rule!r}", where="--batch-rule", fix=", ".join(BATCH_RULES))
        return self.pair_asked.batch * (self.ranks if self.batch_rule == SURVEY else 1)

    def assignment(self) -> Assignment:
        """What ranks are told."""
        found = self.pair_asked
        return Assignment(
            model=found.model,
            plan=self.texts.runs,
            batch=self.batch_of_step,
            optimizer=found.optimizer,
            rate=found.rate,
            rate_batch=found.batch if self.scaled else 0,
            warmup=self.warmup,
            task=found.task,
            steps=found.steps,
            validate_every=found.look,
            seed=self.seed,
            device=found.device,
            threads=self.threads,
            alone=self.ranks == 1,
        )

    def row(self, **found: Any) -> BenchRow:
        """The row of this question, with what was found."""
        asked, engine = self.pair_asked, self.engine_asked
        times = self.batch_of_step / asked.batch if self.scaled else 1.0
        said: dict[str, Any] = {
            "engine": self.engine,
            "pair": self.pair,
            "ranks": self.ranks,
            "seed": self.seed,
            "batch_rule": self.batch_rule,
            "fingerprint": self.fingerprint,
            "conditions": self.conditions,
            "title": engine.title,
            "synchronous": engine.synchronous,
            "model": asked.model,
            "task": asked.task,
            "plan": self.texts.plan,
            "device": asked.device,
            "precision": asked.precision,
            "batch": self.batch_of_step,
            "microbatches": _microbatches(engine, self.ranks),
            "optimizer": asked.optimizer,
            "rate": asked.rate * times,
            "warmup": self.warmup,
            "epoch_samples": asked.epoch_samples,
            "steps": asked.steps,
            "settings": {**engine.settings, "batch rule": engine.batch_rule},
            "target": asked.target,
        }
        return BenchRow(**(said | found))


def _differ(one: BenchQuestion, other: BenchQuestion, name: str) -> bool:
    return bool(getattr(one.pair_asked, name) != getattr(other.pair_asked, name))


def _word(value: Any) -> str:
    return "yes" if value is True else str(value)


def _microbatches(engine: Engine, ranks: int) -> int:
    if engine.batch_rule == STALE:
        return ranks
    return PER_RANK * ranks if "+m{m}" in engine.plan else 1
