"""What a person asks of the search, and which of several answers is the best.

One question is one space of plans: a model, a cluster, a batch, and what plans have to be like. Several numbers of
ranks are several questions, and so is a batch per rank, because the batch then goes with the ranks that split it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from foretell.cost.memory import most_bytes, usable_bytes
from foretell.errors import BadInput
from foretell.hardware.cluster import Cluster
from foretell.oracle.ladder import usual_precision
from foretell.oracle.memory_band import doubts, spread
from foretell.oracle.predict import Prediction, predict
from foretell.oracle.priced_plans import Candidate
from foretell.oracle.proposals import GROWTH, grown
from foretell.oracle.request import Request
from foretell.oracle.resolve import PlanEvaluator, place_of
from foretell.oracle.search import SearchResult, Watch, search
from foretell.oracle.space import Space
from foretell.oracle.training import STEP_ALONE, TrainingRun
from foretell.plan.forward import broken_forward
from foretell.plan.plan import Plan, axis_text, policy_text
from foretell.plan.policies.precision import Precision
from foretell.plan.refusal import Refusal
from foretell.plan.repair import divisors
from foretell.plan.repair import nearest as nearest_plan
from foretell.plan.setting import Setting, with_precision
from foretell.plan.text import parse
from foretell.plan.trainer import trainer

HALVINGS: Final = 3
"""How often the batch is halved in search of one that fits."""


OTHERS: Final = 4
"""Where nothing fits, each of the other questions may take this part of the seconds of one search."""

SEARCHING: Final = 0.8
"""The share of its seconds that a search of the space may take: what is left is for stages and parts."""


def space_of(request: Request) -> Space:
    """The plans that are looked through for a question."""
    if not request.batch:
        raise BadInput("no batch is given", where="--batch", fix="--batch 64, or --batch-per-rank 2")
    where, name = place_of(request), precision_of(request)
    plans = PlanEvaluator(request)
    whole = plans.setting(Plan(policies=(Precision(name=name),)))
    _check_forward(whole, request.search.fixed)
    return Space(whole.graph, whole.job, where.trainer, where.cluster, name, request.search)


def _check_forward(whole: Setting, text: str) -> None:
    """What is fixed may be about training alone: where nothing is trained, no plan with it can be asked for."""

    def rules(plan: Plan) -> Iterator[Refusal]:
        return broken_forward(msgspec.structs.replace(whole, plan=plan))

    fixed = parse(text, "--fix") if text.strip() else Plan()
    broken, left = next(rules(fixed), None), nearest_plan(fixed, rules)
    if broken and left:
        said = [word for word in text.split() if not word.startswith("+")]  # schedules that are not said stay free
        axes = said if left.axes == fixed.axes else map(axis_text, left.axes)
        rest = " ".join([*axes, *map(policy_text, left.policies)])
        fix = f"--fix '{rest}'" if rest else "the same without --fix"
        raise BadInput(f"{broken.rule}: {broken.why}", where=f"--fix '{text.strip()}'", fix=fix)


def precision_of(request: Request) -> str:
    """Of the plans that are searched: what is asked for or fixed, or what is usual."""
    fixed = parse(request.search.fixed, "--fix").policy(Precision).name if request.search.fixed else ""
    if fixed and request.precision and fixed != request.precision:
        what = f"{request.precision} is wished for and {fixed} is fixed"
        raise BadInput(what, where="--precision, --fix", fix="one of the two")
    return request.precision or fixed or usual_precision(request.place, trainer(request.trainer))


def like(question: Request, plan: Plan) -> Request:
    """The question whose plans can be compared with this one: its precision, and what the search does not vary."""
    complete = with_precision(plan, trainer(question.trainer))
    wished = question.search.fixed
    named = [policy.word for policy in parse(wished, "--fix").policies] if wished.strip() else []
    kept = [
        policy_text(policy)
        for policy in complete.policies
        if policy.word not in (Precision.word, "microbatches", *named)
        and len(type(policy).choices()) == 1
        and policy.word not in question.search.without
    ]
    fixed = " ".join([*([wished] if wished.strip() else []), *kept])
    own = complete.policy(Precision).name or "fp32"
    if question.precision and question.precision != own:
        what = f"--precision {question.precision}, and {complete} is in {own}"
        raise BadInput(what, where="--precision, --plan", fix="one of the two")
    precision = "" if Precision.word in named else own
    return question.changed(precision=precision).searching(fixed=fixed)


class PlanningAnswer(NamedTuple):
    """A question with what was found."""

    question: Request
    space: Space
    found: SearchResult
    joules: float = 0.0  # of a step of the best plan, where it was chosen by them

    def predicted(self, plan: Plan, run: TrainingRun = STEP_ALONE) -> Prediction:
        """One of its plans as `foretell predict` tells it."""
        if self.question.place.mixed:
            from foretell.oracle.predicted import predicted

            return predicted(self.question.changed(plan=plan))[1]
        setting = self.space.setting(plan)
        return msgspec.structs.replace(predict(setting, self.space.cluster, run), model=self.question.model)


Watching = Callable[[Space], Watch]
"""What watches the search of a space."""


def answered(question: Request, watching: Watching | None = None) -> PlanningAnswer:
    """Search for one question's plans."""
    if question.place.mixed:
        from foretell.oracle.mixed_search import answered_mixed  # which searches the kinds of the cluster

        return answered_mixed(question, watching)
    space = space_of(question)
    watch = watching(space) if watching else None
    effort = msgspec.structs.replace(question.effort, seconds=SEARCHING * question.effort.seconds)
    found = search(space, question.max_memory, watch, question.top, effort)
    return PlanningAnswer(question, space, replaced(found, model=question.model))


def answered_best(questions: Sequence[Request]) -> PlanningAnswer:
    """The answer with the fastest plan, of a question or of those that a batch per rank becomes."""
    answers: list[PlanningAnswer] = []
    for question in questions:
        answers.append(answered(question))
        if answers[-1].found.interrupted:
            break
    return best_of(answers, "time") or nearest(answers)


def head_room(question: Request, space: Space, capacity: float) -> float:
    """Bytes that a plan which is sure to fit fills at most. Who says how much may be used has said it already."""
    usable, most = (size(space.trainer, space.cluster) for size in (usable_bytes, most_bytes))
    return min(capacity, question.effort.room(usable, most, spread(doubts(space.trainer, space.cluster.device))))


def nearest(answers: Sequence[PlanningAnswer]) -> PlanningAnswer:
    """The answer whose smallest plan is smallest."""
    return min(answers, key=lambda one: one.found.nearest.memory_bytes if one.found.nearest else float("inf"))


def replaced(found: SearchResult, **changes: object) -> SearchResult:
    """The same with some fields replaced, and its plans kept."""
    changed = msgspec.structs.replace(found, **changes)
    vars(changed).update(vars(found))
    return changed


# several questions


def questions(request: Request, counts: Sequence[int] = ()) -> list[Request]:
    """One question, or one for each number of ranks, and of ranks that split a batch per rank."""
    if request.graph is not None and not request.batch and not request.batch_per_rank:
        request = request.changed(batch=request.graph.batch)
    found = on_counts(request, counts) if counts else [request]
    if not request.batch_per_rank:
        return found
    return [weak for one in found for weak in for_each_rank(one, request.batch_per_rank)]


def on_counts(question: Request, counts: Sequence[int]) -> list[Request]:
    """The same question for each number of ranks of the same kind of cluster."""
    return [question.changed(cluster=_sized(question.place, count)) for count in counts]


def _sized(cluster: Cluster, ranks: int) -> Cluster:
    found = _as_large(cluster, ranks)
    if found is None:
        below = next(filter(partial(_as_large, cluster), range(ranks - 1, 0, -1)), None)
        above = next(filter(partial(_as_large, cluster), range(ranks + 1, 2 * ranks + 1)), None)
        near = " or ".join(str(count) for count in (below, above) if count)
        what = f"{ranks} ranks are no whole part of {cluster.text}"
        raise BadInput(what, where="--gpus", fix=f"whole nodes: {near}" if near else "numbers of whole nodes")
    return found


def _as_large(cluster: Cluster, ranks: int) -> Cluster | None:
    """A cluster of the same kind with exactly so many ranks, where there is one."""
    found = cluster if ranks == cluster.ranks else grown(cluster, ranks)
    return found if found is not None and found.ranks == ranks else None


def for_each_rank(question: Request, samples: int) -> list[Request]:
    """The weak form: so many samples for each rank that splits the batch, a question for each number of those."""
    return [
        question.changed(batch=samples * ranks, batch_per_rank=0).searching(splits=ranks)
        for ranks in divisors(question.place.ranks)[::-1]
    ]


def by_memory(found: SearchResult) -> SearchResult:
    """The answer with the plans first that leave most memory free."""
    top = tuple(one for one in found.plans.smallest(len(found.top)) if one.memory_bytes <= found.capacity)
    return replaced(found, best=top[0] if top else None, top=top)


TIED: Final = 0.01
"""More ranks have to be faster by this share to be worth it: less than any prediction can tell apart."""


def best_of(answers: Sequence[PlanningAnswer], by: str) -> PlanningAnswer | None:
    """The answer whose best plan is best: by seconds, device-seconds, bytes or joules of a sample, or by ranks.

    By time, of those that are as fast as the fastest to a hundredth the one on the fewest ranks.
    """
    fitting = [one for one in answers if one.found.best is not None]
    if by == "time" and fitting:
        least, *_ = min(_cost(one, by) for one in fitting)
        fast = [one for one in fitting if _cost(one, by)[0] <= (1 + TIED) * least]
        fewest = min(one.found.ranks for one in fast)
        fitting = [one for one in fast if one.found.ranks == fewest]
    return min(fitting, key=lambda one: _cost(one, by), default=None)


def _cost(answer: PlanningAnswer, by: str) -> tuple[float, ...]:
    found = answer.found
    assert found.best is not None
    time = found.best.step_seconds / found.batch
    money = time * found.ranks
    first = {"time": time, "money": money, "memory": found.best.memory_bytes, "gpus": found.ranks}
    first["energy"] = answer.joules / found.batch
    return first[by], time, money


# where nothing fits


class Tried(NamedTuple):
    """Something else that was searched, and its best plan."""

    what: str
    answer: PlanningAnswer

    @property
    def best(self) -> Candidate | None:
        return self.answer.found.best


def would_fit(question: Request, watching: Watching | None = None) -> Iterator[Tried]:
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
            if any(one.best or one.answer.found.interrupted for one in found):
                break


def _tried(what: str, question: Request, watching: Watching | None) -> Iterator[Tried]:
    try:
        yield Tried(what, answered(question.changed(effort=question.effort.shared(OTHERS)), watching))
    except BadInput:  # what is fixed may not go with another batch or cluster
        return


def _unconstrained(question: Request) -> Iterator[tuple[str, Request]]:
    wished = question.search
    said: dict[str, Request] = {}
    if "offload" not in (*wished.also, *wished.only, *wished.without):
        yield "with +offload", question.searching(also=(*wished.also, "offload"))
    if question.max_memory:
        said["--max-memory"] = question.changed(max_memory=0.0)
    for name, option, nothing in (("only", "--only", ()), ("without", "--without", ()), ("fixed", "--fix", "")):
        if getattr(wished, name):
            said[option] = question.searching(**{name: nothing})
    yield from ((f"without {option}", other) for option, other in said.items())
    if len(said) > 1:
        free = question.changed(max_memory=0.0).searching(only=(), without=(), fixed="")
        yield f"without {', '.join(said)}", free


def _smaller(question: Request) -> Iterator[tuple[str, Request]]:
    batch = question.batch
    for _ in range(HALVINGS):
        if batch % 2 or question.search.splits:
            return
        batch //= 2
        yield f"a batch of {batch}", question.changed(batch=batch)


def _larger(question: Request) -> Iterator[tuple[str, Request]]:
    for factor in GROWTH:
        cluster = grown(question.place, question.place.ranks * factor)
        if cluster is not None and cluster.ranks == question.place.ranks * factor and not question.search.splits:
            yield f"on {cluster.text}", question.changed(cluster=cluster)


# where nothing is legal


def without_axes(answer: PlanningAnswer) -> Refusal | None:
    """Why no rule had anything to refuse: no strategy that may be used shares out the work of this model."""
    space, ranks = answer.space, answer.found.ranks
    if answer.found.refused or ranks == 1:
        return None
    node = space.cluster.ranks_per_node
    idle = [one.word for one in space.strategies if not any(one.choices(ranks, space.graph, node))]
    by = f"nothing of {answer.question.model} can be divided by {', '.join(idle)}"
    return Refusal("ranks share the work", f"{ranks} ranks, and {by if idle else 'no strategy is left to use'}")


def other_batches(answer: PlanningAnswer) -> list[int]:
    """Batches near the one asked about that leave legal plans where it leaves none; each was searched."""
    question = answer.question
    if BATCH_RULE not in answer.found.refused or question.search.splits:
        return []
    near = around(question.batch, question.place.ranks)
    return [batch for batch in near if answered(question.changed(batch=batch)).found.evaluated]


BATCH_RULE: Final = "batch divides"


def around(batch: int, ranks: int) -> list[int]:
    """The nearest multiples of a number of ranks, the smaller one first."""
    below = batch // ranks * ranks
    return [other for other in (below, below + ranks) if other and other != batch]
