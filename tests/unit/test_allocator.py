"""What an allocator reserves beside tensors, from the program of a plan, by hand."""

from __future__ import annotations

import pytest

from foretell.cost.allocator import gathered_pool, largest_block, reserved_bytes
from foretell.oracle.request import Request
from foretell.oracle.resolve import resolve
from foretell.plan.text import parse
from foretell.program.expand import expand
from foretell.program.lower import lower
from foretell.program.program import Program

HIDDEN, HEADS, FFN, VOCAB, SEQ = 256, 8, 1024, 4096, 128
LLAMA = f"llama:layers=4,hidden={HIDDEN},heads={HEADS},kv_heads={HEADS},ffn={FFN},vocab={VOCAB},seq={SEQ}"
LAYER = 4 * HIDDEN * HIDDEN + 3 * HIDDEN * FFN + 2 * HIDDEN
ROOT = 2 * VOCAB * HIDDEN + HIDDEN


def _program(plan: str, batch: int = 8) -> Program:
    return lower(resolve(Request(model=LLAMA, plan=parse(plan), batch=batch, trainer="pytorch")).setting)


@pytest.mark.parametrize(
    "plan, pool",
    [
        ("dp8:zero3 +bf16:pure", 2 * (ROOT + LAYER)),  # the root and a layer, in two bytes
        ("dp8:zero3 +fp32", 4 * (ROOT + LAYER)),
        ("dp4:zero3 +bf16:pure +m2", 2 * (ROOT + LAYER)),  # twice, one after the other
        ("dp8:zero2 +bf16:pure", 2 * (ROOT + LAYER)),
        ("dp8 +bf16:pure", 0),
        ("dp8:zero1 +bf16:pure", 0),
    ],
)
def test_two_units_of_weights_in_shares_are_gathered_at_once(plan: str, pool: int) -> None:
    program = _program(plan)
    own = expand(program)
    assert gathered_pool(program, own, own.kinds[0]) == pytest.approx(pool, rel=1e-3)


@pytest.mark.parametrize("plan, sequences", [("dp8 +bf16:pure", 1), ("dp4 +bf16:pure", 2), ("dp4 +bf16:pure +m2", 1)])
def test_the_largest_block_of_a_small_language_model_is_its_logits_in_four_bytes(plan: str, sequences: int) -> None:
    own = expand(_program(plan))
    assert largest_block(own, own.kinds[0]) == 4 * sequences * SEQ * VOCAB


def test_a_stage_without_the_head_has_smaller_blocks() -> None:
    program = _program("pp2 dp4 +bf16:pure +m2")
    own = expand(program)
    first, last = (largest_block(own, kind) for kind in own.kinds)
    assert first < last == 4 * SEQ * VOCAB
    assert reserved_bytes(program, 1, 1e9) == 1e9 + last and reserved_bytes(program, 0, 1e9) == 1e9 + first
