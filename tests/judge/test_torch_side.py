"""What torch's collectives must be by its own rules: were the recorder blind, the comparison would prove nothing."""

from __future__ import annotations

from math import prod

import pytest
import torch
from hypothesis import given

from foretell import modules
from foretell.model import zoo
from foretell.modules import DTYPES
from judge.cases import GOLDEN, Case, cases
from judge.torch_side import Judge, counts, traffic
from law_examples import examples

SMALL = "llama:layers=2,hidden=64,heads=8,kv_heads=8,ffn=128,vocab=256,seq=48,dtype=bf16"


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: f"{case.model}-{'x'.join(map(str, case.axes().values()))}")
def test_an_8b_model_on_many_ranks(judge: Judge, case: Case) -> None:
    assert counts(judge.observe(case)) == GOLDEN[case]


def _groups(case: Case) -> list[list[torch.nn.Parameter]]:
    """The weights that FSDP2 gathers together: the root's own first, then those of each layer."""
    with torch.device("meta"):
        module = modules.build(case.model)
    layers = [list(layer.parameters()) for layer in module.layers]
    taken = {weight for layer in layers for weight in layer}
    return [[weight for weight in module.parameters() if weight not in taken], *layers]


def _share(weights: list[torch.nn.Parameter], ranks: int) -> int:
    """Elements of one rank's share, each weight cut along its first dim into equal pieces, the last filled up."""
    return sum(-(-weight.shape[0] // ranks) * prod(weight.shape[1:]) for weight in weights)


def _bytes(case: Case, word: str) -> int:
    _, fields = zoo.parse(case.model)
    return (DTYPES[word] if word else DTYPES[fields.dtype]).itemsize


@examples(6)
@given(case=cases(degrees=(1,)))
def test_fsdp2_gathers_twice_and_reduces_once(judge: Judge, case: Case) -> None:
    """Layers are gathered in both passes (once, if they keep their weights), the root once; pieces are padded."""
    compute = _bytes(case, case.compute)
    reduce = _bytes(case, case.reduce or case.compute)
    expected: dict[tuple[str, str, int, int], int] = {}

    def add(kind: str, axis: str, given: int, made: int, times: int = 1) -> None:
        expected[kind, axis, given, made] = expected.get((kind, axis, given, made), 0) + times

    for at, weights in enumerate(_groups(case)):
        share = _share(weights, case.shard)
        whole = share * case.shard
        add("all-gather", "shard", share * compute, whole * compute, 2 if at and case.reshard else 1)
        add("reduce-scatter", "shard", whole * reduce, share * reduce)
        if case.replicate > 1:
            add("all-reduce", "replicate", share * reduce, share * reduce)
    assert traffic(judge.observe(case)) == expected


def _tensor(judge: Judge, **choices: object) -> dict[tuple[str, str], int]:
    return counts(judge.observe(Case(model=SMALL, tensor=4, **choices)))  # type: ignore[arg-type]


def test_every_consumer_of_a_shared_input_reduces_its_gradient(judge: Judge) -> None:
    """Per layer: two sums forward; backward one each for query, key, value, gate and up, or two if they share."""
    ends = 1 + 1  # the table's sum forward, the head's backward
    assert _tensor(judge)["all-reduce", "tensor"] == 2 * (2 + 5) + ends
    assert _tensor(judge, shared_input=True)["all-reduce", "tensor"] == 2 * (2 + 2) + ends


def test_a_loss_over_shares_sums_three_numbers_a_token(judge: Judge) -> None:
    """The largest logit, the sum of exponentials and the loss, in fp32, in the place of gathered logits."""
    seen = judge.observe(Case(model=SMALL, tensor=4, logits="parallel"))
    assert ("all-gather", "tensor") not in counts(seen)
    assert traffic(seen)["all-reduce", "tensor", 48 * 4, 48 * 4] == 3


def test_sequence_parallelism_moves_the_bytes_of_the_sums_it_replaces(judge: Judge) -> None:
    """A sum becomes a scattered sum and a gather; the norms' gradients are summed besides."""
    one = 48 * 64 * 2
    seen = traffic(judge.observe(Case(model=SMALL, tensor=4, sequence=True, logits="parallel")))
    blocks = 2 * 2 + 1  # two in each layer, and the table forward, the head backward
    assert seen == {
        ("all-gather", "tensor", one // 4, one): 2 * blocks,
        ("reduce-scatter", "tensor", one, one // 4): 2 * blocks,
        ("all-reduce", "tensor", 64 * 2, 64 * 2): 2 * 2 + 1,
        ("all-reduce", "tensor", 48 * 4, 48 * 4): 3,
    }


def test_unsettled_gradients_are_summed_by_every_operator_of_the_optimizer(judge: Judge) -> None:
    """Without FSDP2 nobody sums the norms' gradients before AdamW, which then does so three times each."""
    case = Case(model=SMALL, tensor=4, sequence=True, settled=False)
    late = [one for one in judge.observe(case) if one.phase == "optimizer"]
    assert [(one.kind, one.input_bytes, one.count) for one in late] == [("all-reduce", 64 * 2, 3 * 5)]


def test_cases_do_not_leak_into_each_other(judge: Judge) -> None:
    """Meshes of as many ranks with the same tensor axis: a process that made both mixed their groups up."""
    one, other = Case(model=SMALL, shard=16, tensor=4), Case(model=SMALL, replicate=4, shard=4, tensor=4)
    first, second = judge.observe_again(one), judge.observe_again(other)
    assert (judge.observe_again(other), judge.observe_again(one)) == (second, first)
    for case, seen in ((one, first), (other, second)):
        assert {call.axis for call in seen} == set(case.axes())


@examples(8)
@given(case=cases())
def test_torch_runs_every_case(judge: Judge, case: Case) -> None:
    """The comparison draws from the same cases; along each axis with ranks something happens."""
    seen = judge.observe(case)
    assert {one.axis for one in seen} == set(case.axes())
    assert all(one.phase != "optimizer" for one in seen)
