"""The same question has the same answer at every door: the command line, Python, the page's API, a sweep."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from click.testing import CliRunner

import foretell
from foretell import caches
from foretell.cli.command import cli
from foretell.errors import ForetellError
from foretell.hardware.catalog import cluster
from foretell.plan.text import parse
from foretell.serve.calls import predict as page_predict
from foretell.serve.calls import search as page_search
from foretell.serve.question import Question

TINY = "llama:layers=4,hidden=256,heads=8,kv_heads=4,ffn=512,vocab=512"

ONE_PLAN: list[dict[str, Any]] = [
    {"model": "lenet", "on": "2xh100", "plan": "dp2", "batch": 8},
    {"model": "gpt2", "on": "8xa100", "plan": "dp4:zero3 tp2:sp +m2 +bf16", "batch": 16},
    {"model": "gpt2", "on": "16xh100", "plan": "dp8 +bf16", "batch": 32, "seq": 512},
    {"model": TINY, "on": "8xh100", "plan": "pp4:1f1b dp2:zero1 +m8 +recompute:block +bf16", "batch": 32, "seq": 128},
    {"model": TINY, "on": "8xh100", "plan": "dp8:zero1", "batch": 64, "seq": 64, "trainer": "megatron-core"},
    {"model": "resnet18", "on": "4xv100-16", "plan": "spatial4", "batch": 8, "optimizer": "sgd"},
]

SEARCHES: list[dict[str, Any]] = [
    {"model": "lenet", "on": "2xh100", "batch": 8},
    {"model": TINY, "on": "4xh100", "batch": 8, "only": ("dp", "tp"), "precision": "fp16"},
    {"model": TINY, "on": "4xh100", "batch": 16, "without": ("pp", "cp"), "fix": "+recompute:block", "seq": 64},
    {"model": "gpt2", "on": "2xa100", "batch": 4, "only": ("dp",), "max_memory": "30 GB", "optimizer": "sgd"},
]


IN_TURN = {
    "chainer": ("resnet50", "abci:4", 64, ("dp2 filter2 +fp32", "pp2:gpipe filter2 +m2 +fp32")),
    "pytorch": (TINY, "8xh100", 32, ("dp4 tp2 +bf16", "pp4:1f1b tp2 +m4 +bf16")),
}
"""Plans that have the layers of a rank in common, and what is remembered of them."""


@pytest.mark.parametrize("trainer", IN_TURN)
def test_an_answer_does_not_depend_on_what_was_asked_before(trainer: str) -> None:
    model, on, batch, plans = IN_TURN[trainer]
    answers: list[dict[str, Any]] = []
    for order in (plans, plans[::-1]):
        caches.make_room(rows=1000 * caches.BUDGET * caches.BLOCK)  # as in a new process
        answers.append({plan: foretell.predict(model, on, plan, batch, trainer=trainer) for plan in order})
    assert answers[0] == answers[1]


def command(verb: str, asked: dict[str, Any]) -> dict[str, Any]:
    """What the command line says, for programs."""
    options = {name: ",".join(value) if isinstance(value, tuple) else str(value) for name, value in asked.items()}
    words = [word for name, text in options.items() if name != "model" for word in (_option(name), text)]
    ran = CliRunner().invoke(cli, [verb, asked["model"], *words, "--json"], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def page(asked: dict[str, Any]) -> dict[str, Any]:
    """The words of the page's API, which has called the cluster so from the first."""
    return {"cluster" if name == "on" else name: value for name, value in asked.items()}


def digits(step: Any) -> tuple[str, ...]:
    return tuple(float(step[name]).hex() for name in ("step_seconds", "memory_bytes"))


def of(value: Any) -> tuple[str, ...]:
    return digits({name: getattr(value, name) for name in ("step_seconds", "memory_bytes")})


@pytest.mark.parametrize("asked", ONE_PLAN, ids=lambda asked: asked["plan"])
def test_one_plan_has_the_same_digits_at_every_door(asked: dict[str, Any]) -> None:
    told = command("predict", asked)
    values = {**asked, "on": cluster(asked["on"]), "plan": parse(asked["plan"])}
    (row,) = foretell.sweep(**asked, jobs=1).rows
    doors = {
        "python": foretell.predict(**asked),
        "values": foretell.predict(**values),
        "page": page_predict.answer(Question(**page(asked))),
        "sweep": row,
    }
    assert {name: of(found) for name, found in doors.items()} == dict.fromkeys(doors, digits(told))
    assert {found.plan for found in doors.values()} == {told["plan"]}
    assert doors["python"].breakdown == doors["page"].breakdown == told["breakdown"]


@pytest.mark.parametrize("asked", SEARCHES, ids=lambda asked: f"{asked['model']} on {asked['on']}")
def test_a_search_has_the_same_best_plan_at_every_door(asked: dict[str, Any]) -> None:
    told = command("plan", asked)
    (row,) = foretell.sweep(**asked, jobs=1).rows
    search = page_search.Search(**page(asked))
    doors = {
        "python": foretell.plan(**asked),
        "values": foretell.plan(**{**asked, "on": cluster(asked["on"])}),
        "page": page_search.answer(search, lambda sofar: None).found,
    }
    for found in doors.values():
        assert found.best is not None
        assert (of(found.best), found.best.plan) == (digits(told["best"]), told["best"]["plan"])
        assert (found.evaluated, found.fitting, found.refused) == (told["evaluated"], told["fitting"], told["refused"])
    assert (of(row), row.plan) == (digits(told["best"]), told["best"]["plan"])


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"plan": "dp4"}, "enough ranks"),
        ({"batch": 7}, "batch divides"),
        ({"optimizer": "nobody"}, "nobody"),
        ({"trainer": "nobody"}, "nobody"),
        ({"plan": "dq2"}, "dq2"),
        ({"model": "nothing"}, "nothing"),
    ],
)
def test_what_is_refused_is_refused_at_every_door_for_the_same_reason(wrong: dict[str, Any], word: str) -> None:
    asked = {"model": "lenet", "on": "2xh100", "plan": "dp2", "batch": 8, **wrong}
    doors = (
        lambda: command("predict", asked),
        lambda: foretell.predict(**asked),
        lambda: page_predict.answer(Question(**page(asked))),
        lambda: foretell.why(**asked) if word in ("nobody", "dq2", "nothing") else foretell.predict(**asked),
    )
    for door in doors:
        with pytest.raises(ForetellError, match=word):
            door()
    (row,) = foretell.sweep(**asked, jobs=1).rows
    assert row.status == "failed" and word in row.reason


def test_a_search_reads_no_text_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are values inside: what a search, its stages, layouts and page ask of a plan needs no parsing."""
    asked = {"model": TINY, "on": "4xh100", "batch": 8, "only": ("dp", "tp", "pp"), "seq": 64}
    command("plan", asked)  # whatever is imported late, is imported now
    read: list[str] = []
    for module in list(sys.modules.values()):
        if getattr(module, "parse", None) is parse and module.__name__.startswith("foretell."):
            monkeypatch.setattr(module, "parse", lambda text, *where: read.append(text) or parse(text, *where))
    assert command("plan", asked)["evaluated"] > 20
    assert read == []
    command("predict", {"model": "lenet", "on": "2xh100", "plan": "dp2", "batch": 8})
    assert read == ["dp2"]  # at the door, once
