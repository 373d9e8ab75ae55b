"""Programs that are damaged on purpose: each check of `verify` must find its damage."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from foretell.program.action import Action, Communicate, Compute, Free, Update
from foretell.program.body import Body
from foretell.program.expanded import ExpandedProgram, Stage
from foretell.program.verify import verify
from program_cases import load, program

LLAMA = "llama:layers=4,hidden=64,heads=8,kv_heads=8,ffn=128,vocab=256,seq=32"
PLANS = ("dp2 tp2", "dp2:zero3", "pp2:1f1b dp2 +m4", "pp2:zb-v dp2 +m4")

Damage = Callable[[Action], list[Action]]


def _without(*kinds: type) -> Damage:
    return lambda action: [] if isinstance(action, kinds) else [action]


def _damaged(
    made: ExpandedProgram, damage: Damage, phases: tuple[str, ...] = ("forward", "backward", "step")
) -> ExpandedProgram:
    def body(old: Body) -> Body:
        if old.phase not in phases:
            return old
        return msgspec.structs.replace(old, actions=tuple(new for action in old.actions for new in damage(action)))

    def stage(old: Stage) -> Stage:
        layers = tuple(
            msgspec.structs.replace(layer, forward=body(layer.forward), backward=body(layer.backward))
            for layer in old.layers
        )
        ends = {name: body(getattr(old, name)) for name in ("enter", "leave", "enter_back", "leave_back", "finish")}
        return msgspec.structs.replace(old, layers=layers, **ends)

    return msgspec.structs.replace(made, stages=tuple(map(stage, made.stages)))


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(
    ("damage", "phases", "found"),
    [
        (_without(Compute), ("forward",), "needed"),
        (lambda action: [action] * (9 if isinstance(action, Compute) else 1), ("forward",), "needed"),
        (_without(Free), ("backward",), "never freed"),
        (_without(Update), ("step",), "are trained"),
        (_without(Communicate), ("forward", "backward", "step"), "nothing travels"),
    ],
    ids=["work left out", "work done again", "memory kept", "no update", "no messages"],
)
def test_damage_is_found(plan: str, damage: Damage, phases: tuple[str, ...], found: str) -> None:
    made = program(LLAMA, plan, 8)
    graph = load(LLAMA, 8 // made.microbatches)
    assert verify(made, graph) == ()
    assert any(found in problem for problem in verify(_damaged(made, damage, phases), graph))


def test_a_message_that_nobody_receives_is_found() -> None:
    made = program(LLAMA, "pp2:1f1b +m4", 8)

    def lost(action: Action) -> list[Action]:
        return [] if isinstance(action, Communicate) and action.kind == "receive" else [action]

    assert any("sent" in problem for problem in verify(_damaged(made, lost), load(LLAMA, 2)))


def test_ranks_that_wait_for_each_other_are_found() -> None:
    made = program(LLAMA, "pp2:1f1b +m4", 8)
    first, second = made.kinds
    backwards = msgspec.structs.replace(second, slots=second.slots[::-1])
    stuck = msgspec.structs.replace(made, kinds=(first, backwards))
    assert any("waits for ever" in problem for problem in verify(stuck, load(LLAMA, 2)))
