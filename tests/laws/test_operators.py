"""Laws that every operator obeys."""

from __future__ import annotations

from dataclasses import astuple, fields

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.model.operator import PARTS, Need, Operator, OperatorPart
from foretell.model.operators import any_operator, operators
from laws.instances import INSTANCES, Instance

every = pytest.mark.parametrize("instance", INSTANCES, ids=lambda i: repr(i.operator)[:60])


def test_every_operator_has_an_instance() -> None:
    tried = {type(instance.operator).__struct_config__.tag for instance in INSTANCES}
    assert tried == set(operators())


@every
@given(data=st.data())
def test_an_array_of_sizes_is_each_size_alone(instance: Instance, data: st.DataObject) -> None:
    count = 4
    columns = {loop: data.draw(st.lists(st.integers(1, 50), min_size=count, max_size=count)) for loop in instance.sizes}
    arrays = {loop: np.array(column, dtype=np.int64) for loop, column in columns.items()}
    for name in PARTS:
        together = instance.operator.part(name, arrays, instance.widths)
        for at in range(count):
            sizes = {loop: column[at] for loop, column in columns.items()}
            alone = instance.operator.part(name, sizes, instance.widths)
            for field in fields(OperatorPart):
                value = np.broadcast_to(getattr(together, field.name), (count,))[at]
                assert value == getattr(alone, field.name), (name, field.name)


@every
@pytest.mark.parametrize("name", PARTS)
def test_more_of_anything_never_costs_less(instance: Instance, name: str) -> None:
    before = instance.operator.part(name, instance.sizes, instance.widths)
    for loop, size in instance.sizes.items():
        after = instance.operator.part(name, {**instance.sizes, loop: 2 * size}, instance.widths)
        for field in fields(OperatorPart):
            assert getattr(after, field.name) >= getattr(before, field.name), (loop, field.name)


@every
def test_costs_are_whole_and_not_negative(instance: Instance) -> None:
    for name in PARTS:
        for value in astuple(instance.operator.part(name, instance.sizes, instance.widths)):
            assert value == int(value) >= 0


@every
def test_a_split_of_an_output_loop_shares_the_work_out(instance: Instance) -> None:
    """Matrix work divides exactly over any loop that every product has."""
    sizes = {loop: 2 * size for loop, size in instance.sizes.items()}
    whole = instance.operator.part("forward", sizes, instance.widths).matrix
    spanned = {loop for loops in instance.operator.spans.values() for loop in loops} & set(sizes)
    tag = str(type(instance.operator).__struct_config__.tag)
    partly = {"scan": {"share", "feature", "state"}, "delta_rule": {"key"}, "index_scores": {"feature"}}.get(tag, set())
    all_have = spanned - {"expert", "vocab", "qk", "value", "in", "unit", "chosen"} - partly
    for loop in all_have:  # the others are loops of some of its products
        half = instance.operator.part("forward", {**sizes, loop: sizes[loop] // 2}, instance.widths).matrix
        assert 2 * half == whole, loop


@every
def test_what_is_kept_is_an_operand_or_an_extra(instance: Instance) -> None:
    operator = instance.operator
    extras = operator.extras()
    for kept in operator.keeps(instance.operands):
        assert kept in operator.spans or kept in extras, kept
    for loops, dtype in extras.values():
        assert dtype
        assert set(loops) <= set(instance.sizes), loops


@every
def test_at_least_the_operands_are_moved(instance: Instance) -> None:
    """A pass that computes reads every input once and writes the output once, at least."""
    operator, n = instance.operator, instance.sizes
    part = operator.forward(n, instance.widths)
    if part.read == 0:
        assert type(operator).__struct_config__.tag == "view"
        return
    # rows that are looked up
    sparse = {"embedding": "w", "gather": "x", "bounds": "x"}.get(str(type(operator).__struct_config__.tag))
    inputs = [name for name in instance.operands if name in operator.spans and name != sparse]
    held = operator.bytes_of([name for name in inputs if set(operator.spans[name]) <= set(n)], n, instance.widths)
    assert part.read >= held
    assert part.written >= operator.elements("y", n) * instance.widths["y"]


@every
def test_need_answers_for_every_loop(instance: Instance) -> None:
    for loop in instance.sizes:
        assert isinstance(instance.operator.need(loop), Need)


@every
def test_goes_to_json_and_back(instance: Instance) -> None:
    text = msgspec.json.encode(instance.operator)
    back: Operator = msgspec.json.decode(text, type=any_operator())
    assert back == instance.operator
    assert hash(back) == hash(instance.operator)
