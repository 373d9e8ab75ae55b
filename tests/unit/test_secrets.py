"""Values of the environment are in no error, whatever goes wrong and whoever wrote the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foretell import secrets
from foretell.cli.verbs import VERBS
from foretell.errors import BadInput
from foretell.serve.problem import problem_of
from traced_here import traced_here

__all__ = ["traced_here"]

CANARY = "canary-5f2d9c41"


@pytest.fixture(autouse=True)
def canaries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("A_CANARY", "CANARY_TOKEN"):
        monkeypatch.setenv(name, CANARY)
    monkeypatch.setattr(secrets, "_looked_up", {})
    monkeypatch.chdir(tmp_path)


TINY = ("gpt:layers=2,hidden=64,heads=4,vocab=256,seq=32", "--on", "2xh100", "--batch", "8")
WRONG = [
    *((verb, "--no-such-option") for verb in VERBS if verb not in ("lab", "results")),
    *((verb, "no-such-model", "--on", "2xh100") for verb in ("predict", "plan", "fit", "analyze", "scale", "why")),
    ("predict", *TINY, "--plan", "tp3"),
    ("predict", *TINY, "--plan", "dp2", "--anchor", "nothing.json"),
    ("predict", *TINY, "--plan", "dp2", "--calibration", "nothing.json"),
    ("compare", "nothing.json"),
    ("check", "nothing.json"),
    ("results", "show", "nothing"),
    ("results", "--sql", "select secrets from records"),
    ("simulate", "--record", "nothing.json"),
    ("sweep", "--model", "no-such-model", "--on", "2xh100", "--batch", "8", "--jobs", "1"),
    ("run", "no-such-model", "--plan", "dp2"),
    ("completion", "tcsh"),
    ("describe", "nothing"),
    ("doctor",),
]


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_no_verb_prints_the_environment(foretell: Any, words: tuple[str, ...]) -> None:
    for ran in (foretell(*words), foretell(*words, "--json")):
        assert CANARY not in ran.out + ran.err


def test_a_script_that_names_a_variable_is_told_its_name(foretell: Any) -> None:
    """`$A_CANARY` is looked up as the shell would; an error says the name."""
    options = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --micro-batch-size 1"
    Path("train.sh").write_text(
        f"torchrun --nproc-per-node 2 pretrain_gpt.py {options} --global-batch-size $A_CANARY\n"
    )
    for more in ((), ("--json",)):
        ran = foretell("predict", "--from-config", "train.sh", "--on", "2xh100", *more)
        assert ran.code == 2 and CANARY not in ran.out + ran.err and "$A_CANARY" in ran.err


MINE = """
import os
import torch

def all_of_it(): raise RuntimeError(f"no such thing in {os.environ!r}")
def one_of_it(): raise RuntimeError("login failed with " + os.environ["CANARY_TOKEN"])
"""


@pytest.mark.parametrize("name", ["all_of_it", "one_of_it"])
def test_a_program_that_prints_what_it_was_given(foretell: Any, name: str) -> None:
    Path("mine.py").write_text(MINE)
    for more in ((), ("--json",)):
        ran = foretell("analyze", f"mine.py:{name}", *more)
        assert ran.code == 2 and "RuntimeError" in ran.err and CANARY not in ran.out + ran.err


def test_a_setting_that_is_wrong_is_named_alone(foretell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETELL_SECONDS", "many")
    ran = foretell("plan", *TINY)
    assert ran.code == 2 and "FORETELL_SECONDS" in ran.err and "many" not in ran.err
    monkeypatch.setenv("SHELL", "/bin/odd-shell")
    assert "odd-shell" not in foretell("completion").err


def test_the_page_hides_them_too() -> None:
    assert problem_of(BadInput(f"login failed with {CANARY}", where="here")).what == "login failed with $CANARY_TOKEN"


def test_short_values_and_paths_are_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHORT_KEY", "dp8")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/tmp/agent")
    assert secrets.hidden("dp8 in /tmp/agent") == "dp8 in /tmp/agent"


def test_a_password_may_begin_with_a_slash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DB_PWD", "/5f2d9c41")
    monkeypatch.setenv("APPLICATION_CREDENTIALS", str(tmp_path))
    assert secrets.hidden(f"/5f2d9c41 in {tmp_path}") == f"$DB_PWD in {tmp_path}"


def test_lists_in_what_programs_are_told_are_looked_through() -> None:
    told = {"what": CANARY, "refusals": [{"why": CANARY, "more": (CANARY, 8)}]}
    assert CANARY not in str(secrets.hidden_in(told)) and "8" in str(secrets.hidden_in(told))
