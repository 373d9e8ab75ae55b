"""Factories: what they may return, where they are found, and the process that runs them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from data import factories
from foretell.errors import BadInput, MissingExtra, TraceFailed, UnknownName
from foretell.model.importers import torch_factory, torch_load
from foretell.trust import trust

FILE = str(Path(factories.__file__))


def built(name: str, batch: int | None = None, seq: int | None = None) -> torch_factory.Built:
    factory, home = torch_factory.find(f"{FILE}:{name}")
    return torch_factory.build(factory, home, batch, seq, name)[0]


def test_what_a_factory_may_return() -> None:
    assert built("perceptron").inputs.shape == (3, 8)
    assert built("perceptron", batch=7).inputs.shape == (7, 8)
    assert built("language_model", batch=5, seq=9).inputs[0].shape == (5, 9)
    assert built("WithExample").inputs.shape == (5, 8)
    assert built("WithExample", batch=2).inputs.shape == (2, 8)
    assert built("half").module.weight.dtype is torch.bfloat16
    assert [layer.in_features for layer in built("counts_while_building").module] == [8, 12]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "the factory returned NoneType, not a module"),
        ("needs_arguments", "needs arguments that nobody gives: width"),
        ("only_a_module", r"no example inputs of Linear.forward\(input\)"),
        ("not_a_function", "is a int, not a function"),
    ],
)
def test_factories_that_do_not_keep_to_it(name: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        built(name)


def test_factories_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mistyped = f"{FILE}:perceptrom", "no_such_package.models:build", "no/such/file.py:build"
    trust(*mistyped, *(f"{tmp_path}/{name}.py:build" for name in ("typo", "needs")))
    with pytest.raises(UnknownName, match="no factory") as problem:
        torch_factory.find(f"{FILE}:perceptrom")
    assert "perceptron" in problem.value.fix
    with pytest.raises(BadInput, match="no module is called 'no_such_package'"):
        torch_factory.find("no_such_package.models:build")
    (tmp_path / "typo.py").write_text("def build(:\n")
    with pytest.raises(TraceFailed, match="SyntaxError") as trouble:
        torch_factory.find(f"{tmp_path}/typo.py:build")
    assert "typo.py:1" in trouble.value.where
    (tmp_path / "needs.py").write_text("import no_such_package\n")
    with pytest.raises(TraceFailed) as trouble:
        torch_factory.find(f"{tmp_path}/needs.py:build")
    assert trouble.value.fix == "pip install no_such_package"
    with pytest.raises(BadInput, match="no such file"):
        torch_load.load("no/such/file.py:build")
    with pytest.raises(BadInput, match="does not name a factory"):
        torch_load.load("file.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra) as missing:
        torch_load.load(f"{FILE}:perceptron")
    assert missing.value.fix == "pip install 'foretell[torch]'"


def test_a_folder_may_be_called_as_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "timm").mkdir()
    (tmp_path / "timm" / "a_file_of_mine.py").write_text("def build(): ...\n")
    trust("timm/a_file_of_mine.py:build")
    assert torch_factory.find("timm/a_file_of_mine.py:build")[0].__name__ == "build"


def test_a_process_of_its_own() -> None:
    graph = torch_load.load(f"{FILE}:language_model", batch=4)
    assert (graph.batch, graph.source, graph.name) == (4, "torch", f"{FILE}:language_model")
    assert [block.times for block in graph.blocks if block.times > 1] == [4]


def test_an_error_in_the_process() -> None:
    with pytest.raises(TraceFailed, match="this model is not finished"):
        torch_load.load(f"{FILE}:broken")


def test_a_process_that_aborts() -> None:
    with pytest.raises(TraceFailed, match="was ended by SIGABRT") as problem:
        torch_load.load(f"{FILE}:aborts")
    assert "factories.py" in problem.value.where
    assert "in forward" in problem.value.where


def test_a_process_that_hangs() -> None:
    with pytest.raises(TraceFailed, match=r"not traced within 0\.2 seconds"):
        torch_load.load(f"{FILE}:hangs", seconds=0.2)
