"""Laws of recomputation, over every rule that there is and over drawn ones: any operators of a layer may run again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.model.graph import Block, Node
from foretell.model.operators.attention import Attention
from foretell.plan.policies.recompute import Recompute
from foretell.plan.recomputation import Recomputation, Saving, recomputations
from foretell.program.action import Actions, Allocate, Communicate, Compute, Free
from foretell.program.lifetimes import storage_number
from foretell.program.program import Program
from foretell.program.rank_program import BlockKind, RankProgram
from foretell.program.recomputed import recomputed
from foretell.program.sharding.computations import Computations
from law_examples import examples
from program_cases import left_after_forward, lowered

MODELS = (
    "llama:layers=3,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=50,seq=32",
    "gpt:layers=3,hidden=64,heads=4,vocab=50,seq=32,attention=math,dropout=0.1",
    "mixture:layers=2,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=50,seq=32,experts=4",
)
LATENT = (
    "deepseek:layers=2,hidden=64,heads=4,vocab=50,seq=32,first_dense=1,query_rank=32,kv_rank=16,head_dim=16,rotary_dim=8,"
    "value_dim=16,ffn=96,experts=4,top_k=2,expert_ffn=48,groups=2,top_groups=1"
)
PLANS = ("dp2", "tp2 +bf16", "tp2:sp", "cp2:ring +bf16")
NOTHING = Recompute().rule


class Drawn(Recomputation, frozen=True):
    """Saves or recomputes each operator by chance, that of its seed."""

    summary = "by chance"
    place = 0
    seed: int = 0

    def saving(self, node: Node, in_layer: bool) -> Saving:
        chance = crc32(f"{self.seed} {node.path} {node.kind} {node.outputs}".encode()) % 3
        if isinstance(node.operator, Attention) and chance == 1:
            return Saving.INSIDE
        return Saving.AGAIN if in_layer and chance else Saving.SAVE


class DrawnAtOnce(Drawn, frozen=True):
    at_once = True


RULES = st.builds(Drawn, seed=st.integers(0, 2**16)) | st.builds(DrawnAtOnce, seed=st.integers(0, 2**16))


def kinds(found: Program) -> list[BlockKind]:
    return list(found.partition.kinds)


def left_over(made: RankProgram, kind: BlockKind) -> Counter[str]:
    """Replays both passes: nothing begins twice or ends before it began; what is there after the backward pass."""
    alive = Counter[str]()
    both = (made.bodies.forward(*kind.operators, ""), made.bodies.backward(*kind.operators, ""))
    for action in (action for body in both for action in body.actions):
        if isinstance(action, Allocate):
            alive[action.name] += 1
            assert alive[action.name] == 1, action
        elif isinstance(action, Free) and ".import" not in action.name:
            assert alive[action.name] == 1, action
            del alive[action.name]
    return alive


def worked_again(made: RankProgram, kind: BlockKind) -> Counter[tuple[str, str]]:
    backward = made.bodies.backward(*kind.operators, "").actions
    return Counter((one.path, one.operator) for one in backward if isinstance(one, Compute) and one.again)


def worked(bodies: tuple[Actions, Actions]) -> tuple[Actions, ...]:
    """What two passes compute and send."""
    return tuple(tuple(one for one in body if not isinstance(one, Allocate | Free)) for body in bodies)


def check(found: Program, rule: Recomputation) -> None:
    """A layer frees what it makes, and works again as often as its rule says."""
    layout = found.rank_program.layout
    plain, made = RankProgram(layout, NOTHING), RankProgram(layout, rule)
    alone = RankProgram(replace(layout, alike=Computations({}, {})), rule)
    marks = made.writes.recomputed
    for kind in kinds(found):
        assert left_over(made, kind) == left_over(plain, kind)
        forward = (plain.bodies.forward(kind.block, at, at + 1, "").actions for at in range(kind.start, kind.stop))
        again = {at for block, at in marks.again | marks.inside if block == kind.block}
        expected = Counter(
            (action.path, action.operator)
            for at, actions in zip(range(kind.start, kind.stop), forward, strict=True)
            for action in actions
            if at in again and isinstance(action, Compute)
        )
        assert worked_again(made, kind) == expected
        bodies = worked(made.actions(kind))
        assert made.work(kind) == bodies == alone.work(kind)  # also of what other layouts have computed
        divided = made.dividing_inputs(2)
        assert divided.work(kind) == worked(divided.actions(kind))
        sent = (one for one in (action for body in bodies for action in body) if isinstance(one, Communicate))
        assert marks.again or Counter(map(repr, made.messages(kind))) == Counter(map(repr, sent))


@pytest.mark.parametrize("name", recomputations())
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("model", [*MODELS, LATENT], ids=lambda model: model.partition(":")[0])
def test_every_rule(model: str, plan: str, name: str) -> None:
    check(lowered(model, plan), recomputations()[name])


@examples(20)
@given(st.sampled_from(MODELS), st.sampled_from(PLANS), RULES)
def test_drawn_rules(model: str, plan: str, rule: Recomputation) -> None:
    check(lowered(model, plan), rule)


def needed_by(block: Block, index: int, inside: bool) -> set[int]:
    node = block.nodes[index]
    read = [operand.tensor for operand in node.inputs] if inside else []
    return {storage_number(block, number) for number in (*node.keeps, *read)}


@examples(20)
@given(st.sampled_from(MODELS), RULES)
def test_what_runs_again_is_there_when_it_is_needed(model: str, rule: Recomputation) -> None:
    graph = lowered(model, "dp2").graph
    marks = recomputed(graph, rule)
    for at, block in enumerate(graph.blocks):
        reruns = marks.reruns(at, block, 0, len(block.nodes))
        when = {index: trigger for trigger, indices in reruns.items() for index in indices}
        assert set(when) == {index for place, index in marks.again if place == at}
        made = {block.tensors[number].storage: index for index in when for number in block.nodes[index].outputs}
        for index in range(len(block.nodes)):
            if index not in when:
                late = [made[s] for s in needed_by(block, index, (at, index) in marks.inside) if s in made]
                assert all(when[maker] >= index for maker in late)
        for index, trigger in when.items():
            assert trigger >= index and (not rule.at_once or trigger == len(block.nodes) - 1)
            for operand in block.nodes[index].inputs:
                maker = made.get(storage_number(block, operand.tensor), index)
                assert when[maker] >= trigger


@pytest.mark.parametrize("name", recomputations())
@pytest.mark.parametrize("model", [*MODELS, LATENT], ids=lambda model: model.partition(":")[0])
def test_no_rule_keeps_more_than_all(model: str, name: str) -> None:
    found = lowered(model, "dp2")
    kept: list[float] = []
    for rule in (NOTHING, recomputations()[name]):
        made = RankProgram(found.rank_program.layout, rule)
        kept.append(sum(left_after_forward(made, kind) for kind in kinds(found)))
    marks = recomputed(found.graph, recomputations()[name])
    assert kept[1] < kept[0] if marks.again or marks.inside else kept[1] == kept[0]


@pytest.mark.parametrize("name", [name for name in recomputations() if name != "none"])
def test_every_rule_drops_something_of_some_model(name: str) -> None:
    marks = (recomputed(lowered(model, "dp2").graph, recomputations()[name]) for model in (*MODELS, LATENT))
    assert any(one.again or one.inside for one in marks)
