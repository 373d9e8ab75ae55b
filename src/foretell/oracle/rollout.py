"""Rollouts: what it takes to write answers, by the roofline of decoding; no engine is modelled beyond that.

A replica has the weights once and a cache; its ranks share heads, layers or experts out (`replica.py`). Prompts are
read in forward passes (bound by products). Then every step writes one token for each answer in flight: it reads all
weights, multiplies one row an answer, and reads the cache of all of them (Pope et al. 2022, arXiv 2211.05102, section
2; Yuan et al. 2024, arXiv 2402.16363). Products and collectives are priced as those of any forward pass, captured in a
graph; the cache as bytes at the rate that memory-bound kernels reach. An answer that ends makes room for the next (Yu
et al. 2022, Orca, OSDI), and the cache has no gaps (Kwon et al. 2023, arXiv 2309.06180). So many are in flight that it
holds them at every moment: all start together, and answers of like length are full together. At the end fewer and
fewer are left, which take as long as one.

Not modelled: what an engine's own scheduler, sampling and transfers to the host take, speculation, answers that
are stopped where the cache is full and begun again, prefixes of prompts that answers share, and weights or caches in 8
bits.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec
import numpy

from foretell.caches import forgettable
from foretell.cost.kernels._reached import memory_rate
from foretell.cost.price import priced
from foretell.errors import BadInput
from foretell.hardware.cluster import Cluster
from foretell.model.decoding import LayerCache, caches, decoding
from foretell.model.evaluated import evaluated
from foretell.model.graph import Graph
from foretell.model.resize import with_samples
from foretell.model.source import load
from foretell.oracle.lengths import ExampleLengths
from foretell.oracle.replica import Replica, inside, wider
from foretell.plan.facts import facts
from foretell.plan.figures import look_up
from foretell.plan.job import make_job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.timeline.observation import Observation
from foretell.timeline.result import composed
from foretell.units import ceil_div

SLOTS: Final = 1024
"""Answers in flight on a replica, at most: verl's rollout.max_num_seqs (verl/trainer/config/rollout/rollout.yaml)."""

SPREAD: Final = 2.0
"""The interval of rollouts either way. No measured rollout was used for a constant; of ten published rates the worst is
1.6 times off (tests/golden/test_rollouts.py), and what engines add is not modelled."""

PREFILL: Final = 8192
"""Tokens of prompts in one forward pass: vLLM's max_num_batched_tokens for offline use."""

FORM: Final = "+bf16:pure +captured"


class AnswerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be written in a step."""

    prompts: int
    each: int  # answers to a prompt
    prompt: int  # tokens
    lengths: ExampleLengths  # of answers

    @property
    def count(self) -> int:
        return self.prompts * self.each

    @property
    def longest(self) -> int:
        return self.prompt + self.lengths.longest


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """Answers written by equal replicas."""

    replicas: int
    cut: int  # ranks of a replica
    form: str  # what they share out: tp4
    slots: int  # answers in flight on one
    weights_bytes: float  # on a rank
    cache_bytes: float  # on a rank, at the moment when it holds most
    prefill_seconds: float
    decode_seconds: float
    tail_seconds: float  # of these, with less than half as many answers in flight as at first

    @property
    def seconds(self) -> float:
        return self.prefill_seconds + self.decode_seconds

    @property
    def bytes(self) -> float:
        return self.weights_bytes + self.cache_bytes


class Span(NamedTuple):
    """From one end of an answer to the next, as long as the same ones are in flight."""

    steps: float
    seen: numpy.ndarray  # tokens of each of them at its beginning

    @property
    def middle(self) -> numpy.ndarray:
        return self.seen + self.steps / 2

    @property
    def end(self) -> numpy.ndarray:
        return self.seen + self.steps


class Writer:
    """A model on replicas of one size."""

    def __init__(self, model: str, cluster: Cluster, replica: Replica) -> None:
        self.model, self.cluster, self.replica = model, cluster, replica
        self.trainer = trainer("pytorch")
        self.caches: tuple[LayerCache, ...] = caches(load(model, 1, 128, "bf16"))
        self._steps: dict[int, float] = {}

    @functools.cached_property
    def _one(self) -> Graph:
        return decoding(evaluated(load(self.model, 1, 1, "bf16")))

    def _pass(self, graph: Graph) -> Observation:
        """A pass over what each stage takes at a time, as often as there are stages."""
        job = make_job(graph.batch * self.replica.stages)
        asked = Setting(graph, job, parse(f"{self.replica.axes} {FORM}"), self.trainer)
        return composed(priced(asked, self.cluster), self.cluster)

    @functools.cached_property
    def weights(self) -> float:
        """Bytes on a rank."""
        return self._pass(with_samples(self._one, self.replica.experts)).memory.by_kind["weights"]

    def step(self, answers: int) -> float:
        """One token for each of these answers, but for reading their cache."""
        if answers not in self._steps:
            at_once = ceil_div(answers, self.replica.stages) * self.replica.experts
            found = self._pass(with_samples(self._one, at_once)).step_seconds
            self._steps[answers] = found * self.replica.filled
        return self._steps[answers]

    def prefill(self, prompt: int) -> float:
        """Seconds for one prompt, of many that are read together."""
        many = max(1, PREFILL // prompt)
        found = self._pass(evaluated(load(self.model, many * self.replica.experts, prompt, "bf16")))
        return found.step_seconds * self.replica.filled / (many * self.replica.stages)

    def cache(self, tokens: float) -> float:
        """Bytes on a rank, for one answer."""
        return sum(layer.bytes(tokens, self.replica.tensor) for layer in self.caches) / self.replica.stages

    def reading(self, tokens: numpy.ndarray) -> float:
        """Seconds to read the cache of these answers once, or to multiply with it where that takes longer.

        Heads that share a latent do 240 flops a byte of it; DeepSeek's own kernel (FlashMLA, its README of 2025)
        reaches 660 of 989 Tflop/s there on H800, about what other kernels of attention do.
        """
        device, peaks = self.cluster.device, self.trainer.attention.peak
        reached = look_up(peaks, device.architecture) * device.matrix_rate("bf16")
        seconds = 0.0
        for layer in self.caches:
            seen = float(_seen(layer, tokens).sum())
            read = layer.bytes(1.0, self.replica.tensor) / memory_rate(device)
            seconds += seen * max(read, layer.flops(1.0, self.replica.tensor) / reached)
        return seconds / self.replica.stages

    def slots(self, answers: AnswerLoad, lengths: numpy.ndarray, room: float, most: int = SLOTS) -> int:
        """Answers in flight that there is room for at every moment of writing these."""
        free = room - self.weights
        if free < self.cache(answers.longest):
            what = f"{room / 2**30:.3g} GiB a rank hold no weights and one answer of {answers.longest:,} tokens"
            raise BadInput(what, where="--rollout", fix=f"--rollout {self._larger}, or larger devices")

        def holds(slots: int) -> bool:
            return all(_cached(self, span.end) <= free for span in _spans(lengths, answers.prompt, slots))

        found, beyond = 1, min(most, len(lengths))
        if holds(beyond):
            return beyond
        while beyond - found > 1:
            middle = (found + beyond) // 2
            found, beyond = (middle, beyond) if holds(middle) else (found, middle)
        return found

    @property
    def _larger(self) -> Replica:
        return self.replica._replace(tensor=2 * self.replica.tensor)

    def write(self, answers: AnswerLoad, replicas: int, room: float, most: int = SLOTS) -> Rollout:
        """All answers, shared out among replicas; the slowest counts, which has the longest of all."""
        own = ceil_div(answers.count, replicas * self.replica.experts)
        lengths = _drawn(answers.lengths, own, answers.count)
        slots = self.slots(answers, lengths, room, most)
        decode, tail = self._decode(lengths, answers.prompt, slots)
        return Rollout(
            replicas=replicas,
            cut=self.replica.ranks,
            form=str(self.replica),
            slots=slots,
            weights_bytes=self.weights,
            cache_bytes=max(_cached(self, span.end) for span in _spans(lengths, answers.prompt, slots)),
            prefill_seconds=own * self.prefill(answers.prompt),
            decode_seconds=decode,
            tail_seconds=tail,
        )

    def _decode(self, lengths: numpy.ndarray, prompt: int, slots: int) -> tuple[float, float]:
        """Seconds, and those of the tail."""
        total = tail = 0.0
        for span in _spans(lengths, prompt, slots):
            answers = len(span.seen)
            seconds = span.steps * (self._between(answers) + self.reading(span.middle))
            total += seconds
            tail += seconds if answers < slots / 2 else 0.0
        return total, tail

    def _between(self, answers: int) -> float:
        """A step of so many answers, on the line between two that are powers of two."""
        below = 1 << (answers.bit_length() - 1)
        if below == answers:
            return self.step(below)
        share = answers / below - 1
        return (1 - share) * self.step(below) + share * self.step(2 * below)


def _spans(lengths: numpy.ndarray, prompt: int, slots: int) -> Iterator[Span]:
    """All answers, so many of them in flight; the last come first."""
    waiting = list(lengths)
    left, seen = numpy.empty(0), numpy.empty(0)
    while waiting or len(left):
        free = min(slots - len(left), len(waiting))
        if free:
            left = numpy.append(left, [waiting.pop() for _ in range(free)])
            seen = numpy.append(seen, numpy.full(free, float(prompt)))
        span = Span(float(left.min()), seen)
        yield span
        left, seen = left - span.steps, span.end
        more = left > 0
        left, seen = left[more], seen[more]


def _cached(writer: Writer, tokens: numpy.ndarray) -> float:
    """Bytes of the cache on a rank, of all answers in flight."""
    tensor, stages = writer.replica.tensor, writer.replica.stages
    return sum(layer.bytes(1.0, tensor) * float(_seen(layer, tokens).sum()) for layer in writer.caches) / stages


def _seen(layer: LayerCache, tokens: numpy.ndarray) -> numpy.ndarray:
    return numpy.minimum(tokens, layer.window) if layer.window else tokens


def _drawn(lengths: ExampleLengths, own: int, count: int) -> numpy.ndarray:
    """Lengths of one replica's answers: the middles of equal shares, in an order drawn once; the longest of all last
    but drawn like the others."""
    tokens, many = (numpy.array(column) for column in zip(*lengths.counts, strict=True))
    shares = numpy.cumsum(many) / many.sum()
    at = (numpy.arange(own) + 0.5) / own
    at[-1] = 1 - 0.5 / count
    found = tokens[numpy.minimum(numpy.searchsorted(shares, at), len(tokens) - 1)]
    return numpy.random.default_rng(0).permutation(found)


def best(
    model: str,
    cluster: Cluster,
    ranks: int,
    answers: AnswerLoad,
    room: tuple[float, int],
    asked: Replica | None = None,
) -> Rollout:
    """The fastest replica: that which is asked for, or of those within fast links; where none has room, of wider ones.

    `room`: bytes on a rank, and answers in flight at most.
    """
    refused: list[BadInput] = []

    def written(replicas: Iterable[Replica]) -> list[Rollout]:
        found: list[Rollout] = []
        for one in replicas:
            if one.ranks <= ranks and ranks % one.ranks == 0:
                try:
                    found.append(_writer(model, cluster, one).write(answers, ranks // one.ranks, *room))
                except BadInput as why:
                    refused.append(why)
        return found

    found = written([asked] if asked else inside(cluster))
    if not found and not asked:
        found = written(wider(cluster, ranks, facts(load(model, 1, 128, "bf16")).experts))
    if not found:
        what = f"{ranks} ranks are no replicas of {asked}"
        raise refused[0] if refused else BadInput(what, where="--rollout", fix="--rollout tp1")
    return min(found, key=lambda one: one.seconds)


@forgettable
@functools.lru_cache(maxsize=16)
def _writer(model: str, cluster: Cluster, replica: Replica) -> Writer:
    return Writer(model, cluster, replica)
