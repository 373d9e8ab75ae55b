"""What is waited for is told while it lasts, and its end without words."""

from __future__ import annotations

import pytest

from foretell import patience
from foretell.patience import told_to, waiting_for


def test_waiting_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_listeners", [])
    with waiting_for("nobody listens") as still:
        still()
    heard: list[str] = []
    told_to(lambda what, seconds: heard.append(what))
    with pytest.raises(KeyError), waiting_for("tracing") as still:
        still()
        raise KeyError
    assert heard == ["tracing", ""]
