"""A sample of predictions, searches, simulations and programs: what they were when it was stored.

`make replay` compares thousands of them with another commit, to the last bit. A change that is meant to move numbers
stores the sample anew: `make replay-accept REASON="..."`.
"""

from __future__ import annotations

from foretell.errors import BadInput
from replay import compare, run, sample
from replay.cases import cases

WITHIN = 1e-9
"""Relative: other processors and other versions of numpy move last bits."""


def test_the_stored_sample_is_reproduced() -> None:
    now = sample.kept(dict(run.digits(run.in_order(sample.chosen(cases())))), run.DIGEST)
    found = list(compare.moves(sample.stored(), now, WITHIN))
    assert not found, "\n" + compare.table(compare.by_kind(found))
    assert sum(compare.counted(now).values()) > 500
    assert not compare.crashes(now)


def test_what_moved_is_told() -> None:
    """Of two files of digits the last bit, a word and what only one of them has."""
    one = {"a": {"step": {"seconds": (1.0).hex(), "plan": "dp2", "count": 3}}}
    other = {"a": {"step": {"seconds": (1.0 + 2**-52).hex(), "plan": "dp4", "count": 3}}, "b": {"step": {"x": 1}}}
    moves = list(compare.moves(one, other))
    assert [(move.case, move.quantity) for move in moves] == [("a", "seconds"), ("a", "plan"), ("b", "x")]
    assert moves[0].far == 2**-52 / (1 + 2**-52)
    assert [move.quantity for move in compare.moves(one, other, WITHIN)] == ["plan", "x"]
    (kind,) = compare.by_kind(moves)
    assert (kind.values, kind.cases, kind.largest) == (3, 2, "2.2e-16, 2 words")
    assert not list(compare.moves(one, one))
    assert not list(compare.moves({"a": {"k": {"x": 2, "y": "-0x0.0p+0"}}}, {"a": {"k": {"x": (2.0).hex(), "y": 0}}}))


def test_a_tree_that_cannot_answer_is_told() -> None:
    def refuses(_: object) -> run.Digits:
        raise BadInput("no such plan", fix="another")

    def crashes(_: object) -> run.Digits:
        raise ZeroDivisionError("by zero")

    assert run.answered(refuses, None)["problem"]["text"].startswith("no such plan")
    assert compare.crashes({"a": run.answered(crashes, None)}) == ["a: ZeroDivisionError: by zero"]
