"""Waiting until other threads rest, on threads and a clock that are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.runtime import quiescence


class Clock:
    """A look moves it on."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_thread_that_never_rests_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, thread = Clock(), tmp_path / "77"
    thread.mkdir()
    monkeypatch.setattr(quiescence, "time", clock)
    monkeypatch.setattr(quiescence, "TASKS", tmp_path)
    monkeypatch.setattr(quiescence, "_TIRELESS", set[str]())

    def waits(state: str) -> bool:
        (thread / "stat").write_text(f"77 (a thread) {state} 1 1")
        before = clock.now
        quiescence.wait_for_other_threads()
        return clock.now - before >= quiescence.LONGEST

    assert [waits("R"), waits("R"), waits("S"), waits("R"), waits("R")] == [True, False, False, True, False]
