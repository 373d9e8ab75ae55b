"""Predicts any plan of one question: what was predicted once is remembered."""

from __future__ import annotations

import msgspec

from foretell.errors import BadInput
from foretell.hardware.cluster import Cluster
from foretell.model.graph import Graph
from foretell.model.resize import with_samples
from foretell.model.source import load
from foretell.oracle.calibrations import Place
from foretell.oracle.planning import Question
from foretell.oracle.predict import Prediction, predict
from foretell.plan.fitness import fits, passing, refusals
from foretell.plan.job import make_job
from foretell.plan.plan import Plan, policy_text
from foretell.plan.policies.precision import Precision
from foretell.plan.refusal import Refusal, refused
from foretell.plan.setting import Setting, with_precision
from foretell.plan.text import parse
from foretell.plan.trainer import trainer


class Trial:
    """Plans of one model, cluster, batch and trainer, tried one by one."""

    def __init__(self, question: Question, graphs: dict[str, Graph] | None = None) -> None:
        self.question = question
        self.trainer = trainer(question.trainer)
        self._places: dict[int, Place] = {}
        self.job = make_job(
            question.batch, trainer=question.trainer, optimizer=question.optimizer, sequence=question.seq
        )
        self._graphs: dict[str, Graph] = {} if graphs is None else graphs
        self._legal: dict[Plan, bool] = {}
        self._found: dict[Plan, Prediction] = {}

    @property
    def cluster(self) -> Cluster:
        """As it was measured with all its ranks busy."""
        return self._of_ranks(self.question.cluster.ranks).cluster

    def elsewhere(self, question: Question) -> Trial:
        """The same plans for a question that differs: the model is not loaded again for other hardware."""
        same = question.batch == self.question.batch and question.seq == self.question.seq
        return Trial(question, self._graphs if same else None)

    def setting(self, plan: Plan) -> Setting:
        """The plan with the graph of one micro-batch over all ranks."""
        kind = with_precision(plan, self.trainer).policy(Precision).format.activation
        if kind not in self._graphs:
            own = self.question.graph
            self._graphs[kind] = (
                load(self.question.model, self.job.batch, self.question.seq or None, kind) if own is None else own
            )
        graph = with_samples(self._graphs[kind], max(1, self.job.batch // plan.microbatches))
        return Setting(graph, self.job, plan, self._place(plan).trainer)

    def _place(self, plan: Plan) -> Place:
        """Where a plan runs: fewer busy ranks of a machine may each be faster."""
        return self._of_ranks(min(plan.ranks, self.question.cluster.ranks))

    def _of_ranks(self, ranks: int) -> Place:
        if ranks not in self._places:
            self._places[ranks] = self.question.place(ranks)
        return self._places[ranks]

    def complete(self, plan: Plan) -> Plan:
        """The plan with the precision that the trainer gives it."""
        return with_precision(plan, self.trainer)

    def readable(self, text: str | Plan, where: str = "--plan") -> Plan:
        """The plan that a text says, if it breaks no rule."""
        if isinstance(text, str) and not text.strip():
            raise BadInput("no plan is given", where=where, fix="'dp8:zero3 +bf16'; one rank alone is dp1")
        plan = parse(text, where) if isinstance(text, str) else text
        found = self.refusals(plan)
        if found:
            raise refused(plan, found)
        return plan

    def refusals(self, plan: Plan) -> tuple[Refusal, ...]:
        """The rules that a plan breaks, as a person reads them."""
        return tuple(refusals(self.setting(plan), self.cluster))

    def nearest(self, plan: Plan) -> Plan | None:
        """The nearest plan that breaks no rule."""
        return passing(self.setting(plan), self.cluster)

    def legal(self, plan: Plan) -> bool:
        """Whether a plan breaks no rule."""
        if plan not in self._legal:
            self._legal[plan] = fits(self.setting(plan), self.cluster)
        return self._legal[plan]

    def predicted(self, plan: Plan) -> Prediction:
        """What `foretell predict` says of a plan that is legal."""
        if plan not in self._found:
            found = predict(self.setting(plan), self._place(plan).cluster)
            self._found[plan] = msgspec.structs.replace(found, model=self.question.model)
        return self._found[plan]

    def usable(self, found: Prediction) -> float:
        """Bytes that a plan may take: what a run can fill, or less if the question says so."""
        return min(self.question.most or found.usable, found.usable)

    def fits(self, found: Prediction) -> bool:
        """Whether a prediction is within the memory that it may use."""
        return found.memory_bytes <= self.usable(found)


def like(question: Question, plan: Plan) -> Question:
    """The question whose plans can be compared with this one: its precision, and what the search does not vary."""
    complete = with_precision(plan, trainer(question.trainer))
    wished = question.wishes.fixed
    named = [policy.word for policy in parse(wished, "--fix").policies] if wished.strip() else []
    kept = [
        policy_text(policy)
        for policy in complete.policies
        if policy.word not in (Precision.word, "microbatches", *named)
        and len(type(policy).choices()) == 1
        and policy.word not in question.wishes.without
    ]
    fixed = " ".join([*([wished] if wished.strip() else []), *kept])
    own = complete.policy(Precision).name or "fp32"
    if question.precision and question.precision != own:
        what = f"--precision {question.precision}, and {complete} is in {own}"
        raise BadInput(what, where="--precision, --plan", fix="one of the two")
    precision = "" if Precision.word in named else own
    return msgspec.structs.replace(
        question, precision=precision, wishes=msgspec.structs.replace(question.wishes, fixed=fixed)
    )
