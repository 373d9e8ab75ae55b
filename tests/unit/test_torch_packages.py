"""Models of timm traced in a process of their own, and kept on disk."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import stat
from pathlib import Path

import pytest

from foretell.errors import UnknownName
from foretell.model.importers import packages, torch_load
from foretell.model.importers.packages import PackageModel, index
from foretell.model.source import load
from foretell.model.totals import totals

pytestmark = pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="needs timm")

SMALL = PackageModel("timm", "lcnet_050", 64)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "foretell" / "graphs"


def test_traced_once_and_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(SMALL.text, 2)
    assert totals(first).parameters == 1_880_856  # timm, results-imagenet.csv: 1.88 million
    (kept,) = cache.iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    asked: list[str] = []
    traced = torch_load.traced
    monkeypatch.setattr(torch_load, "traced", lambda text, batch: asked.append(text) or traced(text, batch))
    assert load(SMALL.text, 2) == first and asked == []
    kept.write_bytes(kept.read_bytes()[:100])
    assert load(SMALL.text, 2) == first and asked == [SMALL.text]
    assert load(SMALL.text, 2) == first and len(asked) == 1


def test_what_ships_is_what_is_traced(cache: Path) -> None:
    if any(importlib.metadata.version(name) != index().versions[name] for name in ("timm", "torch")):
        pytest.skip("other versions than those of the graphs that ship")
    made = packages.built(PackageModel("timm", "mobilenetv2_050", 224))
    assert made.blocks == load("timm/mobilenetv2_050", made.batch).blocks


def test_a_name_that_timm_does_not_have(cache: Path) -> None:
    with pytest.raises(UnknownName, match="no model of timm is called 'lcnet_051'"):
        load("timm/lcnet_051")
    assert not cache.exists()
