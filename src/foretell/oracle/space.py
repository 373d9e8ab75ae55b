"""The space that the search looks through: every plan of the strategies and policies there are.

It is a product: meshes (ranks and options of every axis), what the pipeline does with its ranks, micro-batches, and
policies. Each of these is refused by rules that ask for it alone, so rules are asked once for each of them and not
once for each plan: a mesh that is refused stands for all its plans.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

import msgspec

from foretell.errors import BadInput
from foretell.hardware.cluster import Cluster
from foretell.model.graph import Graph
from foretell.model.layers import by_layers
from foretell.model.resize import skeleton, with_samples
from foretell.oracle.request import SearchConstraints
from foretell.plan.facts import facts
from foretell.plan.fitness import surroundings
from foretell.plan.forward import broken_axis, broken_policy
from foretell.plan.job import Job, batch_ranks, undivided
from foretell.plan.legality import broken_by_axes, broken_by_pipeline
from foretell.plan.members import policies, strategies
from foretell.plan.offered import cannot_say_axes, cannot_say_pipeline, cannot_say_policies, says_number
from foretell.plan.plan import Plan, axis_text, grid_of, part_of
from foretell.plan.policies.a2a_overlap import A2AOverlap
from foretell.plan.policies.microbatches import Microbatches
from foretell.plan.policies.precision import Precision
from foretell.plan.policies.recompute import Recompute
from foretell.plan.policy import Policy
from foretell.plan.recomputation import RECOMPUTATIONS, recomputation
from foretell.plan.refusal import Refusal
from foretell.plan.repair import divisors
from foretell.plan.schedule import find
from foretell.plan.setting import Setting
from foretell.plan.stages import layers_per_stage, short_ends
from foretell.plan.strategies.context import Context
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategy import Strategy
from foretell.plan.syntax import MOST
from foretell.plan.text import parse
from foretell.plan.trainer import Trainer
from foretell.program.recomputed import recomputed

ALONE = Pipeline(ranks=1)

S = TypeVar("S", bound=Strategy)


class Way(NamedTuple):
    """One way to run a mesh: what the pipeline does, how many micro-batches, which policies."""

    pipeline: Pipeline
    microbatches: int
    policies: tuple[Policy, ...]


class Space:
    """All plans for a model, a job and a trainer on all ranks of a cluster."""

    def __init__(
        self, graph: Graph, job: Job, trainer: Trainer, cluster: Cluster, precision: str, wishes: SearchConstraints
    ) -> None:
        self.graph, self.job, self.trainer, self.cluster, self.wishes = graph, job, trainer, cluster, wishes
        self.precision = Precision(name=precision or trainer.defaults.precision)
        self.fixed = parse(wishes.fixed) if wishes.fixed else Plan()
        self.words = _Words(wishes.fixed)
        self.refused: Counter[str] = Counter()
        self.why: dict[str, str] = {}  # of each rule, the first time it was broken
        self._by_mesh: set[str] = set()  # rules that a whole mesh broke
        self.looked = 0  # meshes so far
        self._pipelined: dict[int, tuple[Pipeline, ...]] = {}
        self._schedulable: dict[tuple[Pipeline, int, bool], bool] = {}
        self.around, self.trains = surroundings(facts(graph), cluster), facts(graph).trains
        self._base = Setting(graph, job, Plan(), trainer)
        self._check()

    def _check(self) -> None:
        if self.words.axes and self.cluster.ranks % self.fixed.ranks:
            why = f"{self.fixed} has {self.fixed.ranks} ranks, which do not divide {self.cluster.ranks}"
            raise BadInput(why, where="--fix", fix=f"axes whose ranks divide {self.cluster.text}")
        for word in self.words.axes:
            if self.wishes.only and word not in (*self.wishes.only, *self.wishes.also):
                raise BadInput(f"{word} is fixed and not among --only", where="--fix, --only", fix="one of the two")
        for word in (*self.words.axes, *(policy.word for policy in self.fixed.policies)):
            if word in self.wishes.without:
                raise BadInput(f"{word} is fixed and ruled out", where="--fix, --without", fix="one of the two")
        named = self.words.microbatches
        if named and self.job.batch % named:
            fix = f"a number that divides {self.job.batch}"
            raise BadInput(f"+m{named} does not divide a batch of {self.job.batch}", where="--fix", fix=fix)

    # meshes

    @functools.cached_property
    def strategies(self) -> list[type[Strategy]]:
        """Those that are tried, outermost first."""
        found = [one for one in strategies().values() if self._tried(one)]
        return sorted(found, key=lambda one: (one.place, one.word))

    def _tried(self, member: type[Strategy] | type[Policy]) -> bool:
        word, wishes = member.word, self.wishes
        if word in wishes.without:
            return False
        if word in self.words.axes or word in wishes.also:
            return True
        searched = not issubclass(member, Strategy) or member.searched
        return searched and (not wishes.only or word in wishes.only)

    @functools.cached_property
    def every_mesh(self) -> tuple[tuple[Strategy, ...], ...]:
        """Every mesh of all ranks, before rules are asked about it as a whole; the pipeline stands in it with its
        ranks alone."""
        found = (axes for axes in self._meshes(0, self.cluster.ranks) if _has_shares(axes))
        if not self.wishes.splits:
            return tuple(found)
        return tuple(axes for axes in found if batch_ranks(Plan(axes)) == self.wishes.splits)

    @property
    def mesh_count(self) -> int:
        """Meshes before rules are asked about them as a whole."""
        return len(self.every_mesh)

    def meshes(self, some: Iterable[tuple[Strategy, ...]] | None = None) -> Iterator[tuple[Strategy, ...]]:
        """Every mesh that no rule refuses, or those of some."""
        for axes in self.every_mesh if some is None else some:
            self.looked += 1
            if self._passes(self._broken_mesh(axes), whole=True):
                yield axes

    def _meshes(self, at: int, ranks: int) -> Iterator[tuple[Strategy, ...]]:
        if at == len(self.strategies):
            if ranks == 1:
                yield ()
            return
        kind = self.strategies[at]
        for own in divisors(ranks)[::-1]:
            for choice in self._alone(kind, own):
                for rest in self._meshes(at + 1, ranks // own):
                    yield (*choice, *rest)

    def _alone(self, kind: type[Strategy], ranks: int) -> tuple[tuple[Strategy, ...], ...]:
        """What to do with so many ranks of a kind: nothing with one, if nothing is fixed."""
        key = (kind, ranks)
        if key not in self._known:
            self._known[key] = tuple(self._choices(kind, ranks))
        return self._known[key]

    @functools.cached_property
    def _known(self) -> dict[tuple[type[Strategy], int], tuple[tuple[Strategy, ...], ...]]:
        return {}

    def _choices(self, kind: type[Strategy], ranks: int) -> Iterator[tuple[Strategy, ...]]:
        if ranks == 1:
            fixed = self.words.axes.get(kind.word)
            if fixed is None or fixed.world == 1:
                yield ()
            if kind is Data and any(one is Context for one in self.strategies):  # whose ranks have shares
                stored = [Data(ranks=1, storage=word) for word in self.trainer.legal.storages]
                yield from ((choice,) for choice in self.words.agreeing(Data, 1, stored))
            return
        if kind is Pipeline:
            if self.pipelines(ranks):
                yield (Pipeline(ranks=ranks),)
            return
        for choice in self.words.agreeing(kind, ranks, self._offered(kind, ranks)):
            if self._passes(self._broken_axis(choice)):
                yield (choice,)

    def _offered(self, kind: type[Strategy], ranks: int) -> Iterator[Strategy]:
        """The choices of a kind that the trainer's configuration can say, whatever the other axes are."""
        for choice in kind.choices(ranks, self.graph, self.cluster.ranks_per_node):
            if self._passes(cannot_say_axes(self.trainer.offered, Plan((choice,)))):
                yield choice
                if self.trainer.offered.experts == "whole" and isinstance(choice, Data) and choice.experts > 1:
                    yield msgspec.structs.replace(choice, expert_tensor=1)

    def _broken_axis(self, choice: Strategy) -> Iterator[Refusal]:
        """The rules that refuse an axis by itself; data ranks are asked with the others."""
        if choice.word == "dp":
            return iter(())
        plan = Plan((choice,))
        nothing_to_say = () if self.trains else broken_axis(plan, choice)
        return itertools.chain(nothing_to_say, choice.refusals(self.whole(plan)))

    def _broken_mesh(self, axes: tuple[Strategy, ...]) -> Iterator[Refusal]:
        plan = Plan(axes, (self.precision,))
        setting = self.whole(plan)
        own = (refusal for axis in plan.axes if axis.word != "pp" for refusal in axis.refusals(setting))
        legal = broken_by_axes(self.trainer, plan, self.around)
        return itertools.chain(legal, own, self._shares(plan), self._unsaid_together(plan))

    def _unsaid_together(self, plan: Plan) -> Iterator[Refusal]:
        """What the trainer's configuration cannot say of two axes; a person who fixes both knows how."""
        data, alone = plan.axis(Data), "tp" not in {axis.word for axis in plan.axes if axis.ranks > 1}
        if data is None or data.experts == 1 or "dp" in self.words.axes:
            return
        yield from cannot_say_axes(self.trainer.offered, plan)
        if alone and data.expert_tensor == 1:
            yield Refusal("expert tensor ranks", "etp1 without a tensor axis says nothing")

    def _shares(self, plan: Plan) -> Iterator[Refusal]:
        ranks, batch, count = batch_ranks(plan), self.job.batch, self.words.microbatches or 1
        if batch % (ranks * count):
            yield Refusal("batch divides", undivided(batch, ranks, count))

    def _passes(self, broken: Iterator[Refusal], whole: bool = False) -> bool:
        """Whether no rule is broken; the first that is broken is counted. What a whole mesh breaks is said rather than
        what an axis by itself does: it is nearer to what was asked for."""
        found = next(broken, None)
        if found is None:
            return True
        self.refused[found.rule] += 1
        if found.rule not in self.why or (whole and found.rule not in self._by_mesh):
            self.why[found.rule] = found.why
        if whole:
            self._by_mesh.add(found.rule)
        return False

    def whole(self, plan: Plan) -> Setting:
        """A plan with the graph of the whole batch, which rules are asked about."""
        return msgspec.structs.replace(self._base, plan=plan)

    # pipelines, micro-batches, policies

    def pipelines(self, ranks: int) -> tuple[Pipeline, ...]:
        """What a pipeline of so many ranks may do."""
        if ranks == 1:
            return (ALONE,)
        return self._pipelines(ranks)

    def _pipelines(self, ranks: int) -> tuple[Pipeline, ...]:
        if ranks not in self._pipelined:
            tried = Pipeline.choices(ranks, self.graph, self.cluster.ranks_per_node)
            found = (cut for pipeline in tried for cut in self._cuts(pipeline) if self._says(cut))
            self._pipelined[ranks] = tuple(self.words.agreeing(Pipeline, ranks, found))
        return self._pipelined[ranks]

    def _says(self, pipeline: Pipeline) -> bool:
        nothing_to_say = () if self.trains else broken_axis(Plan((pipeline,)), pipeline)
        return self._passes(itertools.chain(nothing_to_say, cannot_say_pipeline(self.trainer.offered, pipeline)))

    def _cuts(self, pipeline: Pipeline) -> Iterator[Pipeline]:
        """Stages as the trainer cuts them; where it wants them equal and they cannot be, those that it can be told.

        In these no rank has more layers than it has to: with other numbers of virtual stages there are better ones.
        Trainers that cut unequal stages are told others for the leading plans alone (`oracle.stages`).
        """
        trainer, schedule, layers = self.trainer, find(pipeline.schedule), self.around.layers
        parts = schedule.parts(pipeline.ranks, pipeline.chunks or schedule.least_chunks)
        splits: list[tuple[int, ...]] = [()]
        if trainer.legal.layers_divide and layers % parts:
            told = trainer.legal.uneven_stages and trainer.offered.splits and parts <= layers
            even = [] if pipeline.chunks else [layers_per_stage("even", layers, parts)]
            short = [cut for cut in short_ends(layers, parts) if max(cut) * parts - layers < pipeline.ranks]
            splits = [*even, *short] if told and even + short else [()]
        elif not says_number(trainer.offered, pipeline):
            own = layers_per_stage(trainer.pipeline.split, layers, parts, self.around.costs)
            splits = [layers_per_stage("even", layers, parts) if 0 in own else own]
        yield from (msgspec.structs.replace(pipeline, split=split) for split in dict.fromkeys(splits))

    def schedulable(self, pipeline: Pipeline, microbatches: int, paired: bool) -> bool:
        """Whether a pipeline can take so many micro-batches; `paired`: two at a time."""
        if pipeline.ranks == 1 and not paired:
            return True
        key = (pipeline, microbatches, paired)
        if key not in self._schedulable:
            self._schedulable[key] = self._takes(pipeline, microbatches, paired)
        return self._schedulable[key]

    def _takes(self, pipeline: Pipeline, microbatches: int, paired: bool) -> bool:
        plan = Plan((pipeline,), (Microbatches(count=microbatches), A2AOverlap(on=paired)))
        broken = itertools.chain(
            broken_by_pipeline(self.trainer, plan, self.around), pipeline.refusals(self.whole(plan))
        )
        return self._passes(broken)

    def counts(self, axes: tuple[Strategy, ...]) -> tuple[int, ...]:
        """Micro-batches that the batch divides into, few and large ones first."""
        share = self.job.batch // batch_ranks(Plan(axes))
        fixed = self.words.microbatches or int(not self._varied(Microbatches))
        shared = [axis.ranks for axis in axes if any(own.splitting.rest for own in axis.axes())]
        able = (count for count in divisors(share)[::-1] if not any(share // count % ranks for ranks in shared))
        return tuple(count for count in able if (not fixed or count == fixed) and count <= MOST)

    @functools.cached_property
    def policies(self) -> tuple[tuple[Policy, ...], ...]:
        """Every combination of policies, the precision with them."""
        kinds = [kind for kind in policies().values() if kind not in (Microbatches, Precision)]
        tried = [self._policy(kind) for kind in kinds]
        return tuple(
            (self.precision, *(policy for policy in found if policy != type(policy)()))
            for found in itertools.product(*tried)
        )

    def _policy(self, kind: type[Policy]) -> tuple[Policy, ...]:
        fixed = next((policy for policy in self.fixed.policies if isinstance(policy, kind)), None)
        if fixed is not None:
            return (fixed,)
        if not self._varied(kind):
            return (kind(),)
        tried = [*kind.choices(), *(self._named_rules() if kind is Recompute else ())]
        return tuple(one for one in tried if self._passes(self._broken_policy(one)))

    def _broken_policy(self, policy: Policy) -> Iterator[Refusal]:
        """The rules that refuse a policy by itself."""
        nothing_to_say = () if self.trains else broken_policy(Plan(), policy)
        return itertools.chain(nothing_to_say, cannot_say_policies(self.trainer.offered, (policy,)))

    def _named_rules(self) -> Iterator[Recompute]:
        """Rules that are tried where the trainer offers them by name, if the model has what they drop."""
        for word in self.trainer.offered.recompute:
            joined = word.split(",")
            rules = all(one in RECOMPUTATIONS for one in joined)
            if rules and (len(joined) > 1 or not recomputation(word).searched):
                marks = recomputed(by_layers(skeleton(self.graph)), recomputation(word))
                if marks.again or marks.inside:
                    yield Recompute(granularity=word)

    def _varied(self, kind: type[Policy]) -> bool:
        """Whether a policy is a choice. Micro-batches are, unless ruled out: the pipeline lives by them."""
        wishes = self.wishes
        named = kind.word in (*wishes.only, *wishes.also) or kind is Microbatches
        named = named or (not wishes.only and kind.searched)
        return named and kind.word not in self.wishes.without

    def allowed(self, axes: tuple[Strategy, ...], chosen: tuple[Policy, ...]) -> bool:
        """Whether the policies go with a mesh."""
        asking = [policy for policy in chosen if type(policy).refusals is not Policy.refusals]
        if not asking:
            return True
        setting = self.whole(Plan(axes, chosen))
        return self._passes(refusal for policy in asking for refusal in policy.refusals(setting))

    def plan(self, axes: tuple[Strategy, ...], way: Way) -> Plan:
        """The plan of a mesh and a way to run it."""
        named = tuple(way.pipeline if isinstance(axis, Pipeline) else axis for axis in axes)
        return Plan(named, (Microbatches(count=way.microbatches), *way.policies))

    def setting(self, plan: Plan) -> Setting:
        """The setting of a plan, with the graph of one micro-batch over all ranks."""
        graph = with_samples(self.graph, self.job.batch // plan.microbatches)
        return msgspec.structs.replace(self._base, graph=graph, plan=plan)


def _has_shares(axes: tuple[Strategy, ...]) -> bool:
    """Whether states that lie in shares do so among several ranks: those of the batch, or of a sequence."""
    stored = any(isinstance(axis, Data) and axis.world == 1 for axis in axes)
    return not stored or any(isinstance(axis, Context) for axis in axes)


class _Words:
    """The words of a part of a plan's text: what is not said in it is free."""

    def __init__(self, text: str) -> None:
        plan = parse(text, "--fix") if text.strip() else Plan()
        parts = [part for part in text.split() if not part.startswith("+")]
        said = list(zip(parts, plan.axes, strict=True)) if parts else []
        self.axes = {axis.word: axis for _, axis in said}
        if len(self.axes) < len(said):
            raise BadInput("two axes of one kind cannot be fixed", where="--fix", fix="foretell predict, for one plan")
        self.options = {axis.word: _said(part, axis) for part, axis in said}
        said = plan.policy(Microbatches) in plan.policies or re.search(r"[+,]m1\b", text)  # one is as good as unsaid
        self.microbatches = plan.microbatches if said else 0

    def agreeing(self, kind: type[S], ranks: int, choices: Iterable[S]) -> list[S]:
        """The choices with the ranks and all options that are said; what is said itself, if it is none of them."""
        fixed = self.axes.get(kind.word)
        if fixed is None:
            return list(choices)
        if fixed.world != ranks:
            return []
        if isinstance(fixed, kind) and (part_of(fixed) or grid_of(fixed)):  # no choice has them by chance
            return [fixed]
        said = self.options[kind.word]
        found = [choice for choice in choices if said <= set(_options(axis_text(choice)))]
        return found or ([fixed] if isinstance(fixed, kind) else [])


def _said(part: str, axis: Strategy) -> set[str]:
    """The options that a text gives an axis: those named in it, and all that are not as usual."""
    printed = set(_options(axis_text(axis)))
    usual = set(_options(axis_text(type(axis)(ranks=axis.ranks))))
    return printed & set(_options(part.lower())) | printed - usual


def _options(text: str) -> list[str]:
    return [option for option in text.partition(":")[2].split(",") if option]
