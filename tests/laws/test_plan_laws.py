"""Laws of plans and their text, over every strategy, policy and option that there is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.plan.members import policies, strategies
from foretell.plan.plan import Plan, axis_text, part_of, policy_text
from foretell.plan.policy import Policy
from foretell.plan.strategy import Strategy
from foretell.plan.syntax import (
    LARGEST,
    MOST,
    Factor,
    Flags,
    Fraction,
    JoinedWords,
    Number,
    Numbers,
    Option,
    Size,
    WordChoice,
)
from foretell.plan.text import LONGEST, parse
from law_examples import reached

PATHS = ("fc*", "conv1..pool2", "Layers.0..3,head", "")


def values(option: Option) -> st.SearchStrategy[Any]:
    """Every value that an option can write."""
    if isinstance(option, WordChoice):
        return st.sampled_from(list(option.words.values()))
    if isinstance(option, Number):
        return st.integers(option.least, MOST)
    if isinstance(option, Numbers):
        return st.lists(st.integers(1, MOST), min_size=1, max_size=6).map(tuple)
    if isinstance(option, Flags):
        chosen = st.sets(st.sampled_from(option.words), min_size=1)
        return chosen.map(lambda words: tuple(word for word in option.words if word in words))
    if isinstance(option, JoinedWords):
        joined = st.sets(st.sampled_from([word for word in option.words if option.joins(word)]), min_size=2)
        some = joined.map(lambda words: ",".join(word for word in option.words if word in words))
        return st.one_of(st.sampled_from(option.words), some)
    if isinstance(option, Size):
        units = st.sampled_from((1, 10**3, 10**6, 2**10, 2**20))
        return st.builds(lambda number, unit: number * unit, st.integers(1, LARGEST // 2**20), units)
    if isinstance(option, Factor):
        return st.integers(1001, 10**6).map(lambda number: number / 1000)
    assert isinstance(option, Fraction)
    return st.integers(1, 10**9).map(lambda number: number / 10**9)


@st.composite
def axes(draw: st.DrawFn, kind: type[Strategy]) -> Strategy:
    fields: dict[str, Any] = {"ranks": draw(st.one_of(st.integers(1, 16), st.integers(1, MOST)))}
    if kind.grid and draw(st.booleans()):
        grid = tuple(draw(st.lists(st.integers(1, 100), min_size=2, max_size=3)))
        fields = {"ranks": math.prod(grid), "grid_ranks": grid}
    if kind.parts:
        fields["only"] = draw(st.sampled_from(PATHS))
    for option in kind.syntax:
        if draw(st.booleans()):
            fields[option.field] = draw(values(option))
    axis = kind(**fields)
    return axis if axis.world <= MOST else kind(**{**fields, "ranks": 1})  # a plan has at most so many ranks


def said(kind: type[Policy]) -> st.SearchStrategy[Policy]:
    """Any policy of a kind."""
    options = [values(option).map(lambda value, o=option: kind(**{o.field: value})) for option in kind.syntax]
    return st.one_of(options)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    kinds = draw(st.lists(st.sampled_from(list(strategies().values())), max_size=5))
    drawn = [draw(axes(kind)) for kind in kinds]
    unlike: dict[tuple[str, str], Strategy] = {}
    for axis in drawn:
        more = {**unlike, (axis.word, part_of(axis)): axis}
        if math.prod(other.world for other in more.values()) <= MOST:
            unlike = more
    chosen = draw(st.sets(st.sampled_from(list(policies())), max_size=5))
    return Plan(tuple(unlike.values()), tuple(draw(said(policies()[word])) for word in sorted(chosen)))


def fails(text: str) -> BadInput | None:
    try:
        parse(text)
    except BadInput as problem:
        return problem
    return None


@given(plans())
def test_a_plan_prints_as_a_text_that_reads_as_the_plan(plan: Plan) -> None:
    text = str(plan)
    assert parse(text) == plan
    assert hash(parse(text)) == hash(plan)
    assert str(parse(text)) == text
    assert text.isascii() and text == " ".join(text.split())


@given(plans())
def test_a_plan_goes_to_json_and_back(plan: Plan) -> None:
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


@given(plans(), st.randoms(use_true_random=False))
def test_the_order_of_policies_does_not_matter_and_that_of_axes_does(plan: Plan, random: Any) -> None:
    shuffled = list(plan.policies)
    random.shuffle(shuffled)
    assert Plan(plan.axes, tuple(shuffled)) == plan
    words = str(plan).split()
    random.shuffle(words)
    again = parse(" ".join(words))
    assert again.policies == plan.policies
    assert again.axes == tuple(sorted(plan.axes, key=lambda axis: words.index(axis_text(axis))))


@given(plans())
def test_case_and_blanks_do_not_matter_outside_brackets(plan: Plan) -> None:
    loud = Plan(tuple(axis for axis in plan.axes if not part_of(axis)), plan.policies)
    assert parse("\n " + str(loud).upper().replace(" ", "\t ") + " ") == loud


@given(plans())
def test_what_is_not_said_holds_as_if_it_were(plan: Plan) -> None:
    """A plan with every default added to it is the same plan."""
    spoken = {policy.word for policy in plan.policies}
    defaults = tuple(kind() for word, kind in policies().items() if word not in spoken)
    assert Plan(plan.axes, plan.policies + defaults) == plan
    for word, kind in policies().items():
        assert plan.policy(word) == plan.policy(kind)
        assert word in spoken or plan.policy(word) == kind()
    for word, kind in strategies().items():
        assert plan.axis(word) == plan.axis(kind)
        assert (plan.axis(word) is None) == (word not in [axis.word for axis in plan.axes])


@pytest.mark.parametrize("kind", strategies().values(), ids=strategies())
@given(data=st.data())
def test_every_option_of_an_axis_is_read_in_any_order(kind: type[Strategy], data: st.DataObject) -> None:
    axis = data.draw(axes(kind))
    head, colon, options = axis_text(axis).partition(":")
    turned = ",".join(reversed(options.split(",")))
    assert parse(f"{head}{colon}{turned}").axes == (axis,)


@pytest.mark.parametrize("kind", policies().values(), ids=policies())
@given(data=st.data())
def test_every_policy_is_read_alone(kind: type[Policy], data: st.DataObject) -> None:
    policy = data.draw(said(kind))
    plan = Plan((), (policy,))
    assert parse(str(plan)).policy(kind) == policy
    assert policy == kind() or str(plan) == f"{Plan()} {policy_text(policy)}"


def test_every_example_is_the_text_of_its_plan() -> None:
    for kind in strategies().values():
        assert str(parse(kind.example)) == kind.example
        assert isinstance(parse(kind.example).axes[0], kind)
    for kind in policies().values():
        assert str(parse(kind.example)) == f"{Plan()} {kind.example}"


def test_every_member_says_what_it_is_and_whose_idea_it_was() -> None:
    members: Iterable[type[Strategy] | type[Policy]] = (*strategies().values(), *policies().values())
    for kind in members:
        assert kind.summary and kind.references and all(kind.references)
        written = {option.field for option in kind.syntax} | {"ranks", "grid_ranks", "only"}
        assert {field.name for field in msgspec.structs.fields(kind)} <= written


def test_words_are_told_apart() -> None:
    """The word of an axis is letters; no text is a policy of two kinds; places of policies differ."""
    assert all(word.isalpha() and word.islower() for word in strategies())
    for kind in policies().values():
        text = kind.example[1:]
        owners = [
            other.word
            for other in policies().values()
            for option in other.syntax
            if option.read(text if other.bare else text.removeprefix(f"{other.word}:")) is not None
            and (other.bare or text.startswith(f"{other.word}:"))
        ]
        assert owners == [kind.word]
    assert len({kind.place for kind in policies().values()}) == len(policies())


PIECES = st.sampled_from(
    [
        *strategies(),
        *policies(),
        *"0123456789",
        *":,+[]x=/.-* \t",
        "\uff18",
        "\u00e9",
        "zero",
        "bf16",
        "m16",
        "1f1b",
        "dp8",
        "+m4",
    ]
)


@pytest.mark.reaches(plan=2, error=10)
@given(st.one_of(st.text(max_size=40), st.lists(PIECES, max_size=14).map("".join)))
@example("dp8 " * 300)
@example("+m1 " * 249)
@example("a" * LONGEST)
@example("é" * LONGEST)
@example("dp1," * 249)
@example("filter1[a] " * 90)
@example("[" * LONGEST)
@example("pp4:split=" + "/" * 900)
@example("dp" + "9" * 900)
@example("\ud800")
def test_any_text_is_a_plan_or_an_error_with_a_plan_that_works(text: str) -> None:
    problem = fails(text)
    if problem is None:
        assert str(parse(str(parse(text)))) == str(parse(text))
        reached("plan")
        return
    reached("error")
    assert problem.where.startswith("plan")
    assert parse(problem.fix).axes
    if len(text) <= LONGEST:
        _, shown, caret = problem.what.split("\n")
        assert caret.lstrip().startswith("^ expected ")
        assert caret.index("^") <= len(shown)


@given(plans(), st.data())
def test_one_wrong_character_is_pointed_at_and_nothing_before_it_changes(plan: Plan, data: st.DataObject) -> None:
    """No plan has an exclamation mark. Items before the spoilt one are in the suggestion as they were."""
    text = str(plan)
    at = data.draw(st.integers(0, len(text) - 1))
    problem = fails(f"{text[:at]}!{text[at + 1 :]}")
    assert problem is not None
    start = text.rfind(" ", 0, at) + 1
    assert start <= int(problem.where.split()[-1]) - 1 <= at + 1
    assert problem.fix.startswith(text[:start].rstrip())
    assert parse(problem.fix).axes
