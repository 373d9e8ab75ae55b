"""Laws of the search: it finds what a loop over `predict` finds, in a space that is what the registry has."""

from __future__ import annotations

import functools
import itertools
from typing import Any, ClassVar

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import foretell
from foretell.compiling import available
from foretell.errors import BadInput
from foretell.hardware.catalog import cluster
from foretell.oracle import planning, search
from foretell.oracle.planning import PlanningAnswer, space_of
from foretell.oracle.space import Space
from foretell.plan import members
from foretell.plan.fitness import fits
from foretell.plan.job import batch_ranks
from foretell.plan.plan import axis_text
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.recompute import Recompute
from foretell.plan.strategies.data import Data
from foretell.plan.text import parse
from foretell.program.action import Communicate
from law_examples import examples
from questions import asked

TINY = "gpt:layers=4,hidden=64,heads=4,vocab=256,seq=32"
MIXTURE = "mixture:layers=2,hidden=64,heads=4,kv_heads=4,head_dim=16,ffn=48,vocab=256,seq=32,experts=4,top_k=2"
SMALL = {"lenet": ("dp", "filter", "spatial", "channel"), TINY: ("dp", "tp", "pp", "recompute"), MIXTURE: ("dp", "tp")}
"""Models with the words that are searched, so that every plan can be predicted too."""


@functools.cache
def answer(
    model: str, ranks: int = 4, batch: int = 4, most: float = 0.0, trainer: str = "pytorch", **said: Any
) -> PlanningAnswer:
    (question,) = asked(model, f"{ranks}xh100", batch, trainer=trainer, max_memory=most, **said)
    return planning.answered(question)


def texts(found: PlanningAnswer) -> list[str]:
    return [plan for plan, *_ in found.found.plans.rows()]


# The same as predict. --------------------------------------------------------------------------------


@pytest.mark.parametrize("model", SMALL)
@pytest.mark.parametrize("trainer", ["pytorch", "megatron-core"])
def test_each_plan_is_what_predict_says_and_the_best_is_the_best_of_a_loop(model: str, trainer: str) -> None:
    found = answer(model, only=SMALL[model], trainer=trainer)
    said = {plan: found.predicted(parse(plan)) for plan in texts(found)}
    assert len(said) == found.found.evaluated > 3
    for plan, seconds, memory, fitting in found.found.plans.rows():
        assert (said[plan].step_seconds, said[plan].memory_bytes) == (seconds, memory), plan
        assert said[plan].fits == fitting
    fastest = min(one.step_seconds for one in said.values() if one.fits)
    assert found.found.best is not None
    assert found.found.best.step_seconds == fastest == said[found.found.best.plan].step_seconds


def test_passes_in_pairs_are_what_predict_says() -> None:
    """Of a search that is told to overlap rows of experts: pairs without a pipeline and with one."""
    model = MIXTURE.replace("layers=2", "layers=4")
    found = answer(model, batch=8, only=("dp", "pp"), trainer="megatron-core", fix="+a2a-overlap")
    rows = list(found.found.plans.rows())
    assert rows and all("+a2a-overlap" in plan and "ep" in plan for plan, *_ in rows)
    assert {"interleaved" in plan for plan, *_ in rows} == {True, False}
    assert not any("1f1b" in plan for plan, *_ in rows)
    for plan, seconds, memory, _ in rows:
        said = found.predicted(parse(plan))
        assert (said.step_seconds, said.memory_bytes) == (seconds, memory), plan


def test_what_an_offloaded_optimizer_leaves_out_is_what_predict_leaves_out() -> None:
    """DeepSpeed makes wide gradients for an update on the device, and none for one on the host."""
    found = answer(TINY, batch=8, only=("dp", "offload"), trainer="deepspeed")
    rows = list(found.found.plans.rows())
    assert {"optimizer" in plan for plan, *_ in rows} == {True, False}
    for plan, seconds, memory, _ in rows:
        said = found.predicted(parse(plan))
        assert (said.step_seconds, said.memory_bytes) == (seconds, memory), plan


def test_inputs_in_shares_are_what_predict_says() -> None:
    """Of a search that is told to save the inputs of layers in shares of the tensor ranks."""
    found = answer(TINY, batch=8, only=("dp", "tp", "pp"), trainer="deepspeed", fix="+recompute:block +partitioned")
    rows = list(found.found.plans.rows())
    assert rows and all("tp" in plan and "+partitioned" in plan for plan, *_ in rows)
    for plan, seconds, memory, _ in rows:
        said = found.predicted(parse(plan))
        assert (said.step_seconds, said.memory_bytes) == (seconds, memory), plan


@pytest.mark.parametrize(("trainer", "paired"), [("megatron-core", True), ("pytorch", False)])
def test_passes_in_pairs_are_tried_where_asked_for_and_the_trainer_has_them(trainer: str, paired: bool) -> None:
    found = answer(MIXTURE, batch=8, only=("dp", "a2a_overlap"), trainer=trainer)
    assert {"+a2a-overlap" in plan for plan in texts(found)} == {False, paired}


def test_axes_whose_leaders_speak_for_others_do_not_lend_their_care() -> None:
    """Chainer sums gradients by leaders where images are split: groups of ranks that lie alike are not enough."""
    (question,) = asked("lenet", "2xdgx1", 96, trainer="chainer", only=("dp", "spatial", "channel"))
    found = planning.answered(question)
    rows = list(found.found.plans.rows())
    assert any("spatial" in plan and "dp" in plan for plan, *_ in rows)
    for plan, seconds, memory, _ in rows[::7]:
        told = found.predicted(parse(plan))
        assert (told.step_seconds, told.memory_bytes) == (seconds, memory), plan


def test_axes_that_split_layers_do_not_lend_what_they_take_to_other_meshes() -> None:
    """Chainer joins activations of split filters otherwise beside a data axis."""
    words = ("dp", "pp", "filter", "channel")
    (question,) = asked("lenet", "abci:8", 64, trainer="chainer", exhaustive=True, only=words)
    found = planning.answered(question)
    rows = list(found.found.plans.rows())
    assert {("dp" in plan, "filter" in plan) for plan, *_ in rows} == set(itertools.product([False, True], repeat=2))
    for plan, seconds, memory, _ in rows:
        told = found.predicted(parse(plan))
        assert (told.step_seconds, told.memory_bytes) == (seconds, memory), plan


@pytest.mark.skipif(not available(), reason="no compiler")
@pytest.mark.parametrize("model", SMALL)
def test_compiled_or_not_every_digit_is_the_same(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (question,) = asked(model, "4xh100", 4, only=SMALL[model])
    monkeypatch.setattr(search, "available", lambda: False)
    plain = list(planning.answered(question).found.plans.rows())
    monkeypatch.setattr(search, "available", lambda: True)
    monkeypatch.setattr(search, "FEW", 0)
    assert list(planning.answered(question).found.plans.rows()) == plain


@pytest.mark.parametrize("model", SMALL)
def test_every_plan_is_legal_and_has_all_ranks_and_is_there_once(model: str) -> None:
    found = answer(model, only=SMALL[model])
    plans = texts(found)
    assert len(set(plans)) == len(plans)
    for text in plans:
        plan = parse(text)
        assert fits(found.space.setting(plan), cluster("4xh100")), text
        assert plan.ranks == 4
        assert str(plan) == text


FIXED = (
    *("+lora16", "+offload:weights", "+captured", "+compress:powersgd4", "pp2:split=3/1 dp2"),
    *("+recompute:every2", "+recompute:first1", "+recompute:nth2", "pp2:split=3/1 dp2 +recompute:first2"),
)


@pytest.mark.parametrize("said", FIXED)
def test_what_is_only_fixed_is_priced_as_predict_does(said: str) -> None:
    found = answer(TINY, batch=8, only=("dp", "pp"), fix=said)
    assert found.found.evaluated > 3
    for plan, seconds, memory, _ in found.found.plans.rows():
        told = found.predicted(parse(plan))
        assert (told.step_seconds, told.memory_bytes) == (seconds, memory), plan


def test_the_front_is_what_no_plan_beats() -> None:
    found = answer(TINY, only=SMALL[TINY]).found
    rows = [(seconds, memory) for _, seconds, memory, _ in found.plans.rows()]
    unbeaten = {(s, m) for s, m in rows if not any((a <= s and b < m) or (a < s and b <= m) for a, b in rows)}
    assert {(one.step_seconds, one.memory_bytes) for one in found.pareto} == unbeaten
    assert len(found.pareto) == len(unbeaten)


def test_top_is_in_order_and_as_long_as_asked() -> None:
    (question,) = asked(TINY, "4xh100", 4, only=("dp", "tp"), top=3)
    top = planning.answered(question).found.top
    assert len(top) == 3
    assert [one.step_seconds for one in top] == sorted(one.step_seconds for one in top)


def test_equal_plans_are_told_plainest_first_whatever_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """cp2:alltoall with two data ranks takes the time and memory of four data ranks."""
    told = answer(TINY, only=("dp", "cp", "tp")).found
    meshes = Space.meshes

    def backwards(space: Space, some: Any = None) -> Any:
        return iter(list(meshes(space))[::-1])

    monkeypatch.setattr(Space, "meshes", backwards)
    (question,) = asked(TINY, "4xh100", 4, only=("dp", "cp", "tp"))
    again = planning.answered(question).found
    assert (again.best, again.top, again.pareto, again.nearest) == (told.best, told.top, told.pareto, told.nearest)
    assert [row[0] for row in again.plans.rows()] != [row[0] for row in told.plans.rows()]


# The space. ------------------------------------------------------------------------------------------


def of(*words: str) -> st.SearchStrategy[str]:
    return st.sampled_from(words)


@st.composite
def plans(draw: st.DrawFn) -> str:
    """Plans of four ranks, outer axes first, of what is searched."""
    shares = draw(
        st.sampled_from([c for c in itertools.product((1, 2, 4), repeat=4) if c[0] * c[1] * c[2] * c[3] == 4])
    )
    pp, dp, cp, tp = shares
    schedule = draw(of("1f1b", "gpipe", "interleaved,v2", "zb-h1", "zb-v", "dualpipe"))
    axes = [
        f"pp{pp}:{schedule}" if pp > 1 else "",
        f"dp{dp}{draw(of('', ':zero1', ':zero2', ':zero3'))}" if dp > 1 else "",
        f"cp{cp}:{draw(of('ring', 'alltoall'))}" if cp > 1 else "",
        f"tp{tp}{draw(of('', ':sp'))}" if tp > 1 else "",
    ]
    policies = [f"+m{draw(of('1', '2', '4'))}", draw(of("", "+recompute:attention", "+recompute:block")), "+bf16"]
    return str(parse(" ".join(part for part in (*axes, *policies) if part)))


@examples(60)
@given(plans())
def test_every_legal_plan_is_in_the_space(text: str) -> None:
    found = answer(TINY, without=("offload",))
    assume(fits(found.space.setting(parse(text)), cluster("4xh100")))
    assert text in _all()


@functools.cache
def _all() -> frozenset[str]:
    return frozenset(texts(answer(TINY, without=("offload",))))


class Rows(Data, frozen=True, kw_only=True, tag="rows"):
    """Samples among ranks, under another name."""

    word: ClassVar[str] = "rows"
    summary: ClassVar[str] = "every rank takes some of the samples"
    example: ClassVar[str] = "rows2"


def test_a_new_strategy_is_searched_with_no_other_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    known = members.strategies()
    before = {_named(axes) for axes in _meshes()}
    monkeypatch.setitem(known, "rows", Rows)
    after = {_named(axes) for axes in _meshes()}
    assert before < after
    assert "rows4" in after
    assert "rows2 tp2" in after
    (question,) = asked(TINY, "4xh100", 4, only=("rows", "tp"))
    found = planning.answered(question)
    assert any("rows2" in text for text in texts(found))
    for plan, seconds, memory, _ in found.found.plans.rows():
        told = found.predicted(parse(plan))
        assert (told.step_seconds, told.memory_bytes) == (seconds, memory), plan


def _meshes() -> list[Any]:
    (question,) = asked(TINY, "4xh100", 4, without=("pp", "cp"))
    return list(space_of(question).meshes())


def _named(axes: Any) -> str:
    return " ".join(axis_text(axis) for axis in axes)


@pytest.mark.parametrize("trained_by", ["pytorch", "megatron-core"])
@pytest.mark.parametrize("said", ["+no-overlap", "+compress:fp16", "+bucket:1MB", "+compiled", "+captured", "+lora4"])
def test_a_policy_with_choices_is_searched_with_no_other_edit(
    said: str, trained_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (policy,) = parse(said).policies
    before = answer(TINY, only=("dp", "tp", policy.word), trainer=trained_by)
    monkeypatch.setattr(type(policy), "choices", lambda: (type(policy)(), policy))
    (question,) = asked(TINY, "4xh100", 4, only=("dp", "tp", policy.word), trainer=trained_by)
    after = planning.answered(question)
    assert set(texts(before)) < set(texts(after))
    assert after.found.evaluated == 2 * before.found.evaluated
    for plan, seconds, memory, _ in after.found.plans.rows():
        told = after.predicted(parse(plan))
        assert (told.step_seconds, told.memory_bytes) == (seconds, memory)


# Constraints. ----------------------------------------------------------------------------------------


def test_only_and_without_hold_for_all() -> None:
    for text in texts(answer(TINY, only=("dp", "tp"))):
        assert {axis.word for axis in parse(text).axes} <= {"dp", "tp"}
        assert parse(text).policy(Recompute) == Recompute()
    for text in texts(answer(TINY, without=("pp", "offload", "recompute", "cp"))):
        assert not {axis.word for axis in parse(text).axes} & {"pp", "cp"}
        assert parse(text).policy(Offload) == Offload() and parse(text).policy(Recompute) == Recompute()


def test_without_microbatches_there_is_one() -> None:
    assert {parse(text).microbatches for text in texts(answer(TINY, only=("dp",), without=("microbatches",)))} == {1}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("tp2", ("dp", "tp")),
        ("TP2:sp", ("dp", "tp")),
        ("+recompute:block +m2", ("dp", "tp")),
        ("pp2", ("dp", "pp")),
        ("pp2:zb-h1 dp2:zero3", ("dp", "pp")),
        ("dp2:zero3,shard2", ("dp",)),
        ("dp4 tp1", ("dp", "tp")),
    ],
)
def test_what_is_fixed_is_in_every_plan(said: str, words: tuple[str, ...]) -> None:
    found = answer(TINY, only=words, fix=said)
    wished = parse(said)
    assert found.found.evaluated
    for text in texts(found):
        plan = parse(text)
        for axis in wished.axes if not said.startswith("+") else ():
            same = plan.axis(axis.word)
            assert (same.world if same else 1) == axis.world
        assert set(wished.policies) <= set(plan.policies)
        if ":" in said and said[0] != "+":
            assert all(part.lower() in text.split() for part in said.split() if ":" in part)


def test_options_that_are_not_said_are_free() -> None:
    storages = {plan.axis(Data).storage for plan in map(parse, texts(answer(TINY, only=("dp",), fix="dp4")))}
    assert storages == {"replicated", "zero1", "zero2", "zero3"}


def test_what_is_too_large_is_not_told() -> None:
    free = answer(TINY, only=SMALL[TINY]).found
    between = sorted(memory for _, _, memory, _ in free.plans.rows())[free.evaluated // 3]
    found = answer(TINY, only=SMALL[TINY], most=between).found
    assert found.capacity == between
    assert 0 < found.fitting < free.fitting
    assert all(one.memory_bytes <= between for one in (*found.top, *found.pareto))
    assert found.evaluated == free.evaluated


CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    ({"only": ("dp",), "without": ("dp",)}, "ruled out"),
    ({"also": ("local",), "without": ("local",)}, "ruled out"),
    ({"fix": "tp2", "only": ("dp",)}, "not among --only"),
    ({"fix": "tp2", "without": ("tp",)}, "ruled out"),
    ({"fix": "+recompute:block", "without": ("recompute",)}, "ruled out"),
    ({"fix": "tp8"}, "do not divide 4"),
    ({"fix": "+m3"}, "does not divide a batch of 4"),
    ({"only": ("dpp",)}, "no strategy or policy"),
    ({"only": ("precision",)}, "not searched"),
    ({"also": ("compress",)}, "no choices"),
]


@pytest.mark.parametrize(("said", "why"), CONTRADICTIONS)
def test_contradictions_are_named(said: dict[str, Any], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        answer(TINY, **said)


def test_strategies_that_are_not_searched_unasked() -> None:
    assert not any("local" in text for text in texts(answer(TINY, only=("dp",))))
    assert any("local4" in text for text in texts(answer(TINY, only=("dp",), also=("local",))))


# The batch for each rank. ----------------------------------------------------------------------------


def test_a_batch_for_each_rank_goes_with_the_ranks_that_split_it() -> None:
    questions = asked(TINY, "4xh100", None, 2, only=("dp", "tp"))
    assert [one.batch for one in questions] == [2, 4, 8]
    every: list[str] = []
    for one in map(planning.answered, questions):
        for text in texts(one):
            assert one.found.batch == 2 * batch_ranks(parse(text))
            every.append(text)
    assert {axis_text(axis) for text in every for axis in parse(text).axes} >= {"dp4", "dp2", "tp2", "tp4"}


def test_the_best_of_them_trains_most_samples_a_second() -> None:
    questions = asked(TINY, "4xh100", None, 2, only=("dp", "tp"))
    every = [planning.answered(one).found for one in questions]
    best = planning.answered_best(questions).found
    assert best.best is not None
    rates = [one.batch / one.best.step_seconds for one in every if one.best]
    assert best.batch / best.best.step_seconds == max(rates)


# Nothing fits; interruptions. ------------------------------------------------------------------------


def test_nothing_fits_and_what_would() -> None:
    (question,) = asked(TINY, "2xh100", 4, max_memory=1e9, only=("dp",))
    found = planning.answered(question).found
    assert (found.best, found.top, found.fitting) == (None, (), 0)
    assert found.nearest is not None
    assert found.nearest.memory_bytes == min(memory for _, _, memory, _ in found.plans.rows())
    tried = {one.what: one for one in planning.would_fit(question)}
    assert tried["without --max-memory"].best is not None
    assert tried["without --only"].best is None
    assert {"a batch of 2", "a batch of 1", "on 4xh100", "on 128xh100"} <= set(tried)


def test_more_ranks_stop_at_the_first_that_fits() -> None:
    (question,) = asked("gpt2", "1xh100", 64, max_memory="4.6 GB", only=("dp",), without=("microbatches",))
    tried = [one for one in planning.would_fit(question) if one.what.startswith("on ")]
    assert [one.best is not None for one in tried] == [False] * (len(tried) - 1) + [True]


def test_every_plan_refused_is_no_plan() -> None:
    found = answer("gpt:layers=4,hidden=60,heads=3,vocab=256,seq=32", only=("tp",)).found
    assert (found.evaluated, found.best, found.nearest, found.pareto) == (0, None, None, ())
    assert found.refused


def test_ctrl_c_ends_with_the_best_so_far() -> None:
    (question,) = asked(TINY, "4xh100", 4, only=("dp", "tp"))
    whole = planning.answered(question).found

    def watching(space: Space) -> Any:
        def watch(now: search.FoundSoFar) -> None:
            if space.looked == 3:
                raise KeyboardInterrupt

        return watch

    found = planning.answered(question, watching).found
    assert whole.complete and not found.complete
    assert whole.seen == 1.0 and found.seen == 3 / space_of(question).mesh_count
    assert 0 < found.evaluated < whole.evaluated
    assert found.best is not None
    rows = {row[0]: row for row in whole.plans.rows()}
    assert all(rows[row[0]] == row for row in found.plans.rows())


def test_progress_reaches_the_end() -> None:
    (question,) = asked(TINY, "4xh100", 4, only=("dp", "tp"))
    seen: list[search.FoundSoFar] = []
    found = planning.answered(question, lambda space: seen.append)
    assert seen == sorted(seen) and seen[-1].plans == found.found.evaluated
    assert all(one.fastest >= found.found.best.step_seconds >= one.least > 0 for one in seen if found.found.best)
    assert found.space.looked == found.space.mesh_count


def test_whole_sums_of_shared_states_are_searched_as_they_are_predicted() -> None:
    """nanotron sums whole gradients in one message with ZeRO-1, and gathers new weights slice by slice."""
    found = answer(TINY, 16, 32, trainer="nanotron", only=("dp", "tp", "pp"))
    plans = [one for one in map(found.found.plans.__getitem__, range(len(found.found.plans))) if "zero1" in one.plan]
    assert plans
    for one in plans[::5]:
        step = found.predicted(one.value)
        assert (one.step_seconds, one.memory_bytes) == (step.step_seconds, step.memory_bytes), one.plan
    sums = [one for one in _messages("dp16:zero1 +bf16") if one.what == "weight gradients"]
    gathers = [one for one in _messages("dp16:zero1 +bf16") if one.what == "weights"]
    assert [one.kind for one in sums] == ["all-reduce"] and [one.kind for one in gathers] == ["all-gather"]
    assert gathers[0].slices > 0


def _messages(plan: str) -> list[Communicate]:
    program = foretell.program(TINY, plan, 16, trainer="nanotron")
    return [one for one in program.stages[0].finish.actions if isinstance(one, Communicate)]
