"""A few spoiled inputs of every reader, the same ones each time. `make fuzz` tries 30,000."""

from __future__ import annotations

import signal
import warnings

import pytest

from fuzz import hunt as hunting
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


def test_the_clock_stands_while_kernels_are_compiled() -> None:
    event = pytest.importorskip("numba.core.event")
    left = list[float]()
    with hunting._bounded_time():
        with event.trigger_event("numba:compile"), event.trigger_event("numba:compile"):
            left.append(signal.getitimer(signal.ITIMER_PROF)[0])
        left.append(signal.getitimer(signal.ITIMER_PROF)[0])
    left.append(signal.getitimer(signal.ITIMER_PROF)[0])
    assert left[0] == left[2] == 0 < left[1]


@pytest.mark.parametrize(("module", "faults"), [("numba.core", 0), ("foretell.cli.main", 1), ("<unknown>", 1)])
def test_warnings_of_foretell_are_faults_and_those_of_packages_are_not(
    module: str, faults: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warns(*_: object, **__: object) -> bytes:
        warnings.warn_explicit("old", DeprecationWarning, "file.py", 1, module)
        return b""

    monkeypatch.setattr("foretell.oracle.anchors.read_bytes", warns)
    assert len(hunt("anchor_log", SEED, range(1)).faults) == faults
