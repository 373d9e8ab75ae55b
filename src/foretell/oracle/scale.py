"""Every strategy over numbers of ranks: time, efficiency and memory, where lines cross, and where each ends.

A line is one strategy on all ranks (data ranks: one for each way to store), or data ranks with one other strategy
inside a node (pipelines: over any ranks). Each point is the fastest plan of its line that fits, of all options,
schedules and micro-batches: the figures of Kahira et al. 2021 (arXiv 2104.09075, figures 3 to 5) for any model,
cluster and trainer. Beside the lines is the best plan of each number of ranks, as `plan` searches for it: strategies
combined, recomputation included. Large models fit in no other way.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from foretell.errors import BadInput
from foretell.oracle.layouts import NEAR
from foretell.oracle.planning import (
    BATCH_RULE,
    PlanningAnswer,
    Watching,
    answered,
    around,
    for_each_rank,
    on_counts,
    questions,
    space_of,
)
from foretell.oracle.priced_plans import Candidate
from foretell.oracle.request import Request
from foretell.oracle.similar import SimilarAccuracy
from foretell.oracle.stages import may_choose
from foretell.plan.job import batch_ranks
from foretell.plan.members import policies, strategies
from foretell.plan.plan import Plan
from foretell.plan.repair import DATA, divisors
from foretell.plan.storage import STORAGES
from foretell.plan.text import parse
from foretell.summary import Summarized
from foretell.units import show_bytes, show_seconds


class ScalingPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy on so many ranks."""

    ranks: int
    batch: int
    plan: str
    step_seconds: float
    samples_per_second: float
    efficiency: float  # samples a second of a rank, against the best of the fewest ranks that hold the model
    memory_bytes: float


class Gap(msgspec.Struct, frozen=True):
    """A number of ranks where a line has no plan."""

    ranks: int
    limit: str  # memory, or the rule
    why: str  # with its numbers


class ScalingLine(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy over numbers of ranks."""

    name: str
    points: tuple[ScalingPoint, ...]
    gaps: tuple[Gap, ...]

    @property
    def end(self) -> Gap | None:
        """Where it ends: the first number of ranks after its last point; None where it goes on."""
        last = max((point.ranks for point in self.points), default=0)
        return next((gap for gap in self.gaps if gap.ranks > last), None)


class ScalingCrossover(msgspec.Struct, frozen=True):
    """Two lines, the first of which is faster up to `low` ranks and the second from `high` on."""

    first: str
    second: str
    low: int
    high: int


class Scaling(Summarized, frozen=True, kw_only=True):
    """All lines of a model on a kind of cluster."""

    model: str
    cluster: str
    trainer: str
    weak: bool
    batch: int  # of all ranks; in the weak form for each rank that splits it
    counts: tuple[int, ...]
    base_ranks: int  # the fewest ranks that hold the model
    base_plan: str
    lines: tuple[ScalingLine, ...]  # of one strategy, or of data ranks with one
    best: ScalingLine  # of all plans that `plan` searches: strategies combined, recomputation included
    crossings: tuple[ScalingCrossover, ...]
    ends: dict[str, Gap]  # of each line that ends
    fastest: dict[int, str]  # by number of ranks, the line of one strategy; none where no such plan fits
    complete: bool  # False: interrupted, and this is what was found until then
    notes: tuple[str, ...] = ()  # what the lines leave open
    accuracy: dict[int, SimilarAccuracy] = msgspec.field(
        default_factory=dict[int, SimilarAccuracy]
    )  # by ranks, of like runs

    def summary(self) -> Iterator[tuple[str, str]]:
        yield "model", f"{self.model}, batch {self.batch:,}{' per rank' if self.weak else ''}, on {self.cluster}"
        for one in self.best.points:
            text = f"{show_seconds(one.step_seconds)}, efficiency {one.efficiency:.0%}  {one.plan}"
            yield f"{one.ranks:,} GPUs", text


def scale(request: Request, counts: Sequence[int], watching: Watching | None = None) -> Scaling:
    """Every line for each number of ranks; a batch per rank is the weak form."""
    per_rank = request.batch_per_rank
    question = request.changed(batch=per_rank, batch_per_rank=0) if per_rank else questions(request)[0]
    if not counts:
        what = "no numbers of GPUs are given"
        raise BadInput(what, where="--gpus, --batch-per-rank", fix="--gpus 1..64, --batch-per-rank 2")
    if any(not part.startswith("+") for part in question.search.fixed.split()):
        what = f"{question.search.fixed!r} fixes an axis, and axes are what the lines are of"
        raise BadInput(what, where="--fix", fix="policies only: --fix '+recompute:block'")
    sizes = on_counts(question, sorted(counts))
    names = [BEST, *_names(question)]
    cells = [_Cell(one, per_rank, watching) for one in sizes]
    found = dict(_until_interrupted(cells, names))
    priced = [one for one in found.values() if isinstance(one, ScalingPoint)]
    if not priced and not all(cell.complete for cell in cells):
        raise BadInput("interrupted before a plan that fits was found", where="--gpus", fix="fewer of them")
    if not priced:
        limits = [f"  {name}: {one.why}" for (name, _), one in found.items() if isinstance(one, Gap)]
        what = "\n".join([f"no plan fits {question.model} on these numbers of GPUs", *limits[: len(names)]])
        raise BadInput(what, where="--gpus", fix=_way_out(question, sizes[-1].place.ranks, found.values(), per_rank))
    base = min(priced, key=lambda one: (one.ranks, -one.samples_per_second))
    told = {key: _with_efficiency(one, base) for key, one in found.items()}
    best, *lines = (_line(name, [one for (own, _), one in told.items() if own == name and one]) for name in names)
    shown = tuple(line for line in lines if line.points or any(gap.limit == MEMORY for gap in line.gaps))
    return Scaling(
        model=question.model,
        cluster=question.place.text,
        trainer=question.trainer,
        weak=per_rank > 0,
        batch=per_rank or question.batch,
        counts=tuple(sorted(counts)),
        base_ranks=base.ranks,
        base_plan=base.plan,
        lines=shown,
        best=best,
        crossings=tuple(crossings(shown)),
        ends={line.name: line.end for line in lines if line.end is not None},
        fastest=_fastest(shown),
        complete=len(found) == len(cells) * len(names) and all(cell.complete for cell in cells),
        notes=_open(question, priced),
        accuracy=dict(_accuracies(cells, best)),
    )


def _accuracies(cells: Sequence[_Cell], best: ScalingLine) -> Iterator[tuple[int, SimilarAccuracy]]:
    """How far predictions of runs like the best plan of each number of ranks were."""
    points = {point.ranks: point for point in best.points}
    for cell in cells:
        known = cell.accuracy(points[cell.ranks]) if cell.ranks in points else None
        if known is not None:
            yield cell.ranks, known


def _way_out(question: Request, ranks: int, found: Iterable[ScalingPoint | Gap | None], per_rank: int) -> str:
    """What would give lines where there are none."""
    if not per_rank and any(isinstance(one, Gap) and one.limit == BATCH_RULE for one in found):
        near = around(question.batch, ranks)
        return ", or ".join([*(f"--batch {batch}" for batch in near), PLAN_SAYS])
    return f"more ranks, or {PLAN_SAYS}"


def _open(question: Request, points: Sequence[ScalingPoint]) -> tuple[str, ...]:
    """Stages are chosen for the leading plans of one search; there are many here, and the trainer cuts them."""
    space = space_of(question)
    cut = (point for point in points if may_choose(space.setting(parse(point.plan))))
    if next(cut, None) is None:
        return ()
    return ("stages are as the trainer cuts them; `foretell plan` also chooses the layers of each stage",)


def _until_interrupted(
    cells: Sequence[_Cell], names: Sequence[str]
) -> Iterator[tuple[tuple[str, int], ScalingPoint | Gap | None]]:
    for cell in cells:
        for name in names:
            yield (name, cell.ranks), cell.found(name)
            if not cell.complete:
                return


MEMORY = "memory"

BEST = "best"
"""The name of the line of all plans that `plan` searches."""

PLAN_SAYS = "foretell plan, which says what would fit"


def _names(question: Request) -> Iterator[str]:
    """A line for each way to store along data ranks, for each other strategy, and for data ranks with each of them."""
    wished = question.search
    words = [
        one.word
        for one in sorted(strategies().values(), key=lambda one: (one.place, one.word))
        if (one.searched or one.word in wished.also)
        and one.word not in wished.without
        and (not wished.only or one.word in (*wished.only, *wished.also))
    ]
    graph, node = space_of(question).graph, question.place.ranks_per_node
    others = [word for word in words if word != DATA and any(strategies()[word].choices(2, graph, node))]
    if DATA in words:
        yield from (stored(storage) for storage in STORAGES)
    yield from others
    if DATA in words:
        yield from (f"{DATA}+{word}" for word in others)


def stored(storage: str) -> str:
    """The name of the line of data ranks that store so."""
    return DATA if storage == "replicated" else f"{DATA}:{storage}"


# one line at one number of ranks


class _Cell:
    """Plans of one number of ranks."""

    def __init__(self, question: Request, per_rank: int, watching: Watching | None) -> None:
        self.question, self.per_rank, self.watching = question, per_rank, watching
        self.ranks = question.place.ranks
        self.known: dict[tuple[str, ...], list[PlanningAnswer]] = {}

    @property
    def complete(self) -> bool:
        """Whether no search was interrupted."""
        return all(one.found.complete for answers in self.known.values() for one in answers)

    def found(self, name: str) -> ScalingPoint | Gap | None:
        """The fastest plan of a line that fits, or why there is none; nothing where the line needs more ranks."""
        words = () if name == BEST else tuple(name.partition(":")[0].split("+"))
        if words and self.ranks < 2 ** len(words) and (name != DATA or self.ranks > 1):
            return None
        if words not in self.known:  # all ways to store are of one search
            self.known[words] = [answered(one, self.watching) for one in self._questions(words)]
        answers = self.known[words]
        best: list[tuple[float, Candidate, int]] = []
        nearest: list[Candidate] = []
        for answer in answers:
            for one in self._of_line(answer, name):
                nearest.append(one)
                if one.memory_bytes <= answer.found.capacity:
                    best.append((one.step_seconds / answer.found.batch, one, answer.found.batch))
        if best:
            _, one, batch = min(best, key=lambda cell: (cell[0], cell[1].memory_bytes, cell[1].plan))
            return self._point(one, batch)
        if nearest:
            least = min(nearest, key=lambda one: (one.memory_bytes, one.plan))
            over = least.memory_bytes - answers[0].found.capacity
            return Gap(self.ranks, MEMORY, f"{least.plan} needs {show_bytes(over)} more than is usable")
        return self._refused(answers, name)

    def _point(self, one: Candidate, batch: int) -> ScalingPoint:
        return ScalingPoint(
            ranks=self.ranks,
            batch=batch,
            plan=one.plan,
            step_seconds=one.step_seconds,
            samples_per_second=batch / one.step_seconds,
            efficiency=0.0,
            memory_bytes=one.memory_bytes,
        )

    def accuracy(self, point: ScalingPoint) -> SimilarAccuracy | None:
        """Of runs like one of its points."""
        answers = [one for several in self.known.values() for one in several if one.found.batch == point.batch]
        return answers[0].predicted(parse(point.plan)).accuracy

    def _refused(self, answers: Sequence[PlanningAnswer], name: str) -> Gap:
        """The rule that refused most."""
        counted = [(count, rule, one) for one in answers for rule, count in one.found.refused.items()]
        if not counted:
            return Gap(self.ranks, "choices", f"the search knows no {name} for this model")
        _, rule, answer = max(counted, key=lambda one: one[0])
        return Gap(self.ranks, rule, answer.space.why[rule])

    def _questions(self, words: Sequence[str]) -> Iterator[Request]:
        """The searches of a line: one for each number of ranks of its inner strategy; of the best plan one of all."""
        wished = self.question.search
        if not words:
            yield from for_each_rank(self.question, self.per_rank) if self.per_rank else [self.question]
            return
        kept = tuple(word for word in wished.only if word in policies())
        for ranks in self._inner(words[-1]) if len(words) > 1 else [self.ranks]:
            axis = strategies()[words[-1]](ranks=ranks)
            fixed = f"{words[-1]}{ranks}" if ranks > 1 else ""
            line = self.question.searching(
                only=(*words, *kept),
                without=tuple(word for word in wished.without if word in policies()),
                also=(),
                splits=0,
                fixed=" ".join(part for part in (fixed, wished.fixed) if part),
            )
            splits = batch_ranks(Plan((axis,))) * (self.ranks // ranks)
            batch = self.per_rank * splits if self.per_rank else self.question.batch
            yield line.changed(batch=batch)

    def _inner(self, word: str) -> list[int]:
        """Ranks of the strategy beside the data ranks: inside a node if its axis is, or any number of stages."""
        node = self.question.place.ranks_per_node
        outside = strategies()[word].place < strategies()[DATA].place or node == 1
        return [ranks for ranks in divisors(self.ranks)[1:-1] if outside or node % ranks == 0]

    def _of_line(self, answer: PlanningAnswer, name: str) -> Iterator[Candidate]:
        """The priced plans that belong to a line; of all plans those that can be the answer."""
        plans = answer.found.plans
        if name == BEST:
            yield from filter(None, (answer.found.best, answer.found.nearest))
            return
        for at in range(len(plans)):
            one = plans[at]
            if line_of(one.value) == name:
                yield one


def line_of(plan: Plan) -> str:
    """The line that a plan is on."""
    axes = [axis for axis in plan.axes if axis.world > 1]
    if not axes:
        return DATA
    words = sorted((axis.word for axis in axes), key=lambda word: word != DATA)
    if len(axes) == 1 and words[0] == DATA:
        return stored(getattr(axes[0], "storage", "replicated"))
    return "+".join(words)


# all lines


def _with_efficiency(one: ScalingPoint | Gap | None, base: ScalingPoint) -> ScalingPoint | Gap | None:
    if not isinstance(one, ScalingPoint):
        return one
    share = one.samples_per_second / one.ranks / (base.samples_per_second / base.ranks)
    return msgspec.structs.replace(one, efficiency=share)


def _line(name: str, found: Sequence[ScalingPoint | Gap]) -> ScalingLine:
    return ScalingLine(
        name=name,
        points=tuple(one for one in found if isinstance(one, ScalingPoint)),
        gaps=tuple(one for one in found if isinstance(one, Gap)),
    )


def crossings(lines: Sequence[ScalingLine]) -> Iterator[ScalingCrossover]:
    for one, other in itertools.combinations(lines, 2):
        here = {point.ranks: point.samples_per_second for point in one.points}
        there = {point.ranks: point.samples_per_second for point in other.points}
        both = sorted(set(here) & set(there))
        ahead = [(ranks, here[ranks] > there[ranks]) for ranks in both if _apart(here[ranks], there[ranks])]
        for (low, before), (high, after) in itertools.pairwise(ahead):
            if before != after:
                first, second = (one, other) if before else (other, one)
                yield ScalingCrossover(first.name, second.name, low, high)


def _apart(one: float, other: float) -> bool:
    """Whether one of two lines is ahead: plans that hardly differ tie, and ties are no order that could change."""
    return abs(one - other) > NEAR * max(one, other)


def _fastest(lines: Sequence[ScalingLine]) -> dict[int, str]:
    best: dict[int, tuple[float, str]] = {}
    for line in lines:
        for point in line.points:
            if point.ranks not in best or point.samples_per_second > best[point.ranks][0]:
                best[point.ranks] = (point.samples_per_second, line.name)
    return {ranks: name for ranks, (_, name) in sorted(best.items())}
