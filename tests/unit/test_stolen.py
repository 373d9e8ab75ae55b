"""How much of its cores a machine did not get."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.lab import stolen

FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")


def counted(folder: Path, **ticks: int) -> Path:
    file = folder / "stat"
    file.write_text("cpu  " + " ".join(str(ticks.get(name, 0)) for name in FIELDS) + "\ncpu0 1 2 3\n")
    return file


def test_it_is_a_share_of_the_time_that_cores_were_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stolen, "STAT", counted(tmp_path, user=100, idle=5000, steal=40))
    found = stolen.Stolen()
    assert found.share() == 0.0
    counted(tmp_path, user=150, system=10, irq=5, softirq=5, idle=9000, iowait=70, steal=70)
    assert found.share() == pytest.approx(30 / 100)


def test_where_nobody_counts_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stolen, "STAT", tmp_path / "none")
    assert stolen.Stolen().share() == 0.0


def test_only_what_makes_times_longer_is_told() -> None:
    assert stolen.told(stolen.CALM) == ""
    assert "37%" in stolen.told(0.37)
