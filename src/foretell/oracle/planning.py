"""What a person asks of the search, and which of several answers is the best.

One question is one space of plans: a model, a cluster, a batch, and what plans have to be like. Several numbers of
ranks are several questions, and so is a batch per rank, because the batch then goes with the ranks that split it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from os import PathLike, fspath
from typing import Final, NamedTuple, cast

import msgspec

from foretell.errors import BadInput, unknown
from foretell.hardware import catalog, quantity
from foretell.hardware.cluster import Cluster
from foretell.model.graph import Graph
from foretell.model.resize import with_samples
from foretell.model.source import load
from foretell.oracle.calibrations import NONE, Place, as_measured
from foretell.oracle.changes import GROWTH, grown
from foretell.oracle.ladder import usual_precision
from foretell.oracle.predict import Prediction, predict
from foretell.oracle.priced_plans import Candidate
from foretell.oracle.search import TOP, Found, Watch, search
from foretell.oracle.space import Space, Wishes
from foretell.oracle.training import STEP_ALONE, Run
from foretell.plan.job import make_job
from foretell.plan.policies.precision import FORMATS, Precision
from foretell.plan.refusal import Refusal
from foretell.plan.repair import divisors
from foretell.plan.text import parse
from foretell.plan.trainer import trainer

FREE: Final = Wishes()

HALVINGS: Final = 3
"""How often the batch is halved in search of one that fits."""


class Upgrade(NamedTuple):
    """Better hardware than there is: what of it, how many times as good, and what that makes of a cluster."""

    what: str
    times: float
    change: Callable[[Cluster, float], Cluster]

    def of(self, cluster: Cluster) -> Cluster:
        """The better cluster, with a name of its own: nothing that was remembered of the old one is meant."""
        better = self.change(cluster, self.times)
        return msgspec.structs.replace(better, text=f"{cluster.text}, {self.times:g}x {self.what}")


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One search: everything that decides its answer."""

    model: str
    cluster: Cluster
    batch: int
    trainer: str = "pytorch"
    optimizer: str = ""
    seq: int = 0  # 0: the model's own
    precision: str = ""  # empty: bf16, or what the device and the trainer have instead
    wishes: Wishes = FREE
    most: float = 0.0  # bytes of a device that may be used; 0: all that it has
    top: int = TOP
    graph: Graph | None = None  # the model itself, where it is no text
    calibration: str = NONE  # a file, none, or empty: the newest of this device that is kept here
    upgrade: Upgrade | None = None  # of the hardware, after it was calibrated: corrections are those of the old one

    def __post_init__(self) -> None:
        for value, what, where in ((self.batch, "batch", "--batch"), (self.top, "list", "--top")):
            if value < 1:
                raise BadInput(f"a {what} of {value}", where=where, fix="1 or more")
        if self.seq < 0:
            raise BadInput(f"a sequence of {self.seq}", where="--seq", fix="1 or more tokens: --seq 4096")

    def place(self, ranks: int = 0) -> Place:
        """Where plans of so many ranks (0: of all) run, as it was measured."""
        found = as_measured(self.cluster, trainer(self.trainer), ranks or self.cluster.ranks, self.calibration)
        return found if self.upgrade is None else found._replace(cluster=self.upgrade.of(found.cluster))

    def space(self) -> Space:
        """The plans that are looked through."""
        name = self._precision()
        if self.graph is None:
            graph = load(self.model, self.batch, self.seq or None, FORMATS[name].activation)
        else:
            graph = with_samples(self.graph, self.batch)
        job = make_job(self.batch, trainer=self.trainer, optimizer=self.optimizer, sequence=self.seq)
        where = self.place()
        return Space(graph, job, where.trainer, where.cluster, name, self.wishes)

    def _precision(self) -> str:
        fixed = parse(self.wishes.fixed, "--fix").policy(Precision).name if self.wishes.fixed.strip() else ""
        if self.precision and self.precision not in FORMATS:
            raise unknown("precision", self.precision, FORMATS).within("--precision")
        if fixed and self.precision and fixed != self.precision:
            what = f"{self.precision} is wished for and {fixed} is fixed"
            raise BadInput(what, where="--precision, --fix", fix="one of the two")
        return self.precision or fixed or usual_precision(self.cluster, trainer(self.trainer))


def asked(
    model: str | PathLike[str] | Graph,
    cluster: str | Cluster,
    batch: int | None,
    batch_per_rank: int | None = None,
    *,
    trainer: str = "pytorch",
    optimizer: str = "",
    seq: int | None = None,
    precision: str = "",
    wishes: Wishes = FREE,
    max_memory: str | float = 0.0,
    top: int = TOP,
    counts: Sequence[int] = (),
    calibration: str | PathLike[str] = "",
) -> list[Question]:
    """The questions that a person's words stand for: one, or one for each number of ranks and of ranks that split."""
    graph = model if isinstance(model, Graph) else None
    if graph is not None and batch is None and batch_per_rank is None:
        batch = graph.batch
    if (batch is None) == (batch_per_rank is None):
        what = "no batch is given" if batch is None else "a batch of all ranks, and one per rank"
        raise BadInput(what, where="--batch", fix="--batch 64, or --batch-per-rank 2")
    if seq is not None and (seq < 1 or graph is not None):
        what = "a graph has its own sequence" if graph is not None else f"a sequence of {seq}"
        raise BadInput(what, where="--seq", fix="1 or more tokens, for a model that is named: --seq 4096")
    question = Question(
        model=graph.name if graph is not None else fspath(cast("str", model)),
        cluster=catalog.cluster(cluster) if isinstance(cluster, str) else cluster,
        batch=1 if batch is None else batch,
        trainer=trainer,
        optimizer=optimizer,
        seq=seq or 0,
        precision=precision,
        wishes=wishes,
        most=quantity.parse(max_memory, "memory", "--max-memory") if isinstance(max_memory, str) else max_memory,
        top=top,
        graph=graph,
        calibration=fspath(calibration),
    )
    found = on_counts(question, counts) if counts else [question]
    return found if batch_per_rank is None else [weak for one in found for weak in for_each_rank(one, batch_per_rank)]


def wished(
    only: str | Sequence[str] = (), without: str | Sequence[str] = (), also: str | Sequence[str] = (), fix: str = ""
) -> Wishes:
    """What plans have to be like, from what a person writes: `["dp", "tp"]`, or `"dp,tp"`."""
    return Wishes(
        only=_words(only, "only"), without=_words(without, "without"), also=_words(also, "also"), fixed=fix.strip()
    )


def _words(words: str | Sequence[str], name: str) -> tuple[str, ...]:
    if not isinstance(words, str):
        return tuple(words)
    found = tuple(words.replace(",", " ").split())
    if not found:
        raise BadInput(f"{name} names nothing", where=name, fix=f'{name}=["dp", "tp"]')
    return found


class Answer(NamedTuple):
    """A question with what was found."""

    question: Question
    space: Space
    found: Found

    def predicted(self, plan: str, run: Run = STEP_ALONE) -> Prediction:
        """One of its plans as `foretell predict` tells it."""
        setting = self.space.setting(parse(plan))
        return msgspec.structs.replace(predict(setting, self.space.cluster, run), model=self.question.model)


Watching = Callable[[Space], Watch]
"""What watches the search of a space."""


def answered(question: Question, watching: Watching | None = None) -> Answer:
    """Search for one question's plans."""
    space = question.space()
    watch = watching(space) if watching else None
    found = search(space, question.most, watch, question.top)
    return Answer(question, space, replaced(found, model=question.model))


def answered_best(questions: Sequence[Question]) -> Answer:
    """The answer with the fastest plan, of a question or of those that a batch per rank becomes."""
    answers: list[Answer] = []
    for question in questions:
        answers.append(answered(question))
        if not answers[-1].found.complete:
            break
    return best_of(answers, "time") or nearest(answers)


def nearest(answers: Sequence[Answer]) -> Answer:
    """The answer whose smallest plan is smallest."""
    return min(answers, key=lambda one: one.found.nearest.memory_bytes if one.found.nearest else float("inf"))


def replaced(found: Found, **changes: object) -> Found:
    """The same with some fields replaced, and its plans kept."""
    changed = msgspec.structs.replace(found, **changes)
    vars(changed).update(vars(found))
    return changed


# several questions


def on_counts(question: Question, counts: Sequence[int]) -> list[Question]:
    """The same question for each number of ranks of the same kind of cluster."""
    return [msgspec.structs.replace(question, cluster=_sized(question.cluster, count)) for count in counts]


def _sized(cluster: Cluster, ranks: int) -> Cluster:
    found = cluster if ranks == cluster.ranks else grown(cluster, ranks)
    if found is None or found.ranks != ranks:
        what = f"{ranks} ranks are no whole part of {cluster.text}"
        raise BadInput(what, where="--gpus", fix=f"numbers of whole nodes, or --on {cluster.device.name}")
    return found


def for_each_rank(question: Question, samples: int) -> list[Question]:
    """The weak form: so many samples for each rank that splits the batch, a question for each number of those."""
    if samples < 1:
        raise BadInput(f"a batch of {samples} per rank", where="--batch-per-rank", fix="1 or more")
    replace = msgspec.structs.replace
    return [
        replace(question, batch=samples * ranks, wishes=replace(question.wishes, splits=ranks))
        for ranks in divisors(question.cluster.ranks)[::-1]
    ]


def by_memory(found: Found) -> Found:
    """The answer with the plans first that leave most memory free."""
    top = tuple(one for one in found.plans.smallest(len(found.top)) if one.memory_bytes <= found.capacity)
    return replaced(found, best=top[0] if top else None, top=top)


TIED: Final = 0.01
"""More ranks have to be faster by this share to be worth it: less than any prediction can tell apart."""


def best_of(answers: Sequence[Answer], by: str) -> Answer | None:
    """The answer whose best plan is best: by seconds, device-seconds or bytes of a sample, or by ranks.

    By time, of those that are as fast as the fastest to a hundredth the one on the fewest ranks.
    """
    fitting = [one for one in answers if one.found.best is not None]
    if by == "time" and fitting:
        least, *_ = min(_cost(one.found, by) for one in fitting)
        fast = [one for one in fitting if _cost(one.found, by)[0] <= (1 + TIED) * least]
        fewest = min(one.found.ranks for one in fast)
        fitting = [one for one in fast if one.found.ranks == fewest]
    return min(fitting, key=lambda one: _cost(one.found, by), default=None)


def _cost(found: Found, by: str) -> tuple[float, ...]:
    assert found.best is not None
    time = found.best.step_seconds / found.batch
    money = time * found.ranks
    first = {"time": time, "money": money, "memory": found.best.memory_bytes, "gpus": found.ranks}[by]
    return first, time, money


# where nothing fits


class Tried(NamedTuple):
    """Something else that was searched, and its best plan."""

    what: str
    answer: Answer

    @property
    def best(self) -> Candidate | None:
        return self.answer.found.best


def would_fit(question: Question, watching: Watching | None = None) -> Iterator[Tried]:
    """Other questions, searched one after the other: without each constraint, smaller batches, more ranks.

    Of smaller batches and of more ranks the first that fits is the last that is searched.
    """
    free = False
    for what, other in _unconstrained(question):
        if free and "," in what:  # one of them alone is enough
            continue
        for one in _tried(what, other, watching):
            free = free or one.best is not None
            yield one
    for others in (_smaller(question), _larger(question)):
        for what, other in others:
            found = list(_tried(what, other, watching))
            yield from found
            if any(one.best or not one.answer.found.complete for one in found):
                break


def _tried(what: str, question: Question, watching: Watching | None) -> Iterator[Tried]:
    try:
        yield Tried(what, answered(question, watching))
    except BadInput:  # what is fixed may not go with another batch or cluster
        return


def _unconstrained(question: Question) -> Iterator[tuple[str, Question]]:
    replace, wishes = msgspec.structs.replace, question.wishes
    said: dict[str, Question] = {}
    if "offload" not in (*wishes.also, *wishes.only, *wishes.without):
        yield "with +offload", replace(question, wishes=replace(wishes, also=(*wishes.also, "offload")))
    if question.most:
        said["--max-memory"] = replace(question, most=0.0)
    for name, option, nothing in (("only", "--only", ()), ("without", "--without", ()), ("fixed", "--fix", "")):
        if getattr(wishes, name):
            said[option] = replace(question, wishes=replace(wishes, **{name: nothing}))
    yield from ((f"without {option}", other) for option, other in said.items())
    if len(said) > 1:
        free = Wishes(also=wishes.also, splits=wishes.splits)
        yield f"without {', '.join(said)}", replace(question, most=0.0, wishes=free)


def _smaller(question: Question) -> Iterator[tuple[str, Question]]:
    batch = question.batch
    for _ in range(HALVINGS):
        if batch % 2 or question.wishes.splits:
            return
        batch //= 2
        yield f"a batch of {batch}", msgspec.structs.replace(question, batch=batch)


def _larger(question: Question) -> Iterator[tuple[str, Question]]:
    for factor in GROWTH:
        cluster = grown(question.cluster, question.cluster.ranks * factor)
        if cluster is not None and cluster.ranks == question.cluster.ranks * factor and not question.wishes.splits:
            yield f"on {cluster.text}", msgspec.structs.replace(question, cluster=cluster)


# where nothing is legal


def without_axes(answer: Answer) -> Refusal | None:
    """Why no rule had anything to refuse: no strategy that may be used shares out the work of this model."""
    space, ranks = answer.space, answer.found.ranks
    if answer.found.refused or ranks == 1:
        return None
    node = space.cluster.ranks_per_node
    idle = [one.word for one in space.strategies if not any(one.choices(ranks, space.graph, node))]
    by = f"nothing of {answer.question.model} can be divided by {', '.join(idle)}"
    return Refusal("ranks share the work", f"{ranks} ranks, and {by if idle else 'no strategy is left to use'}")


def other_batches(answer: Answer) -> list[int]:
    """Batches near the one asked about that leave legal plans where it leaves none; each was searched."""
    question = answer.question
    if BATCH_RULE not in answer.found.refused or question.wishes.splits:
        return []
    near = around(question.batch, question.cluster.ranks)
    return [batch for batch in near if answered(msgspec.structs.replace(question, batch=batch)).found.evaluated]


BATCH_RULE: Final = "batch divides"


def around(batch: int, ranks: int) -> list[int]:
    """The nearest multiples of a number of ranks, the smaller one first."""
    below = batch // ranks * ranks
    return [other for other in (below, below + ranks) if other and other != batch]
