"""A few spoiled inputs of every reader, the same ones each time. `make fuzz` tries 30,000."""

from __future__ import annotations

import pytest

from fuzz.hunt import hunt, names, unanswered

INPUTS = 12
SEED = 0


@pytest.mark.parametrize("name", names())
def test_spoiled_inputs_end_in_an_answer_or_a_message(name: str) -> None:
    found = hunt(name, SEED, range(INPUTS))
    assert found.inputs == INPUTS
    assert not found.faults, "\n".join(
        f"{fault.place}: --reader {name} --seed {SEED} --number {fault.number}\n{fault.shrunk}\n{fault.trace}"
        for fault in found.faults
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_inputs_that_are_not_spoiled_are_answered(name: str) -> None:
    """Else what is spoiled would end at the first message, and show nothing of what comes after."""
    assert unanswered(name) == []


def test_a_fault_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.oracle.anchors.read_bytes", lambda *_, **__: 1 / 0)
    (fault,) = hunt("anchor_log", SEED, range(3)).faults
    assert fault.place.startswith("ZeroDivisionError at oracle/anchors/__init__.py")
    assert fault.shrunk == ""  # it needs no spoiling at all
    assert "ZeroDivisionError" in fault.trace
