"""foretell describe: a page about every member of every set, its sources on it, and how it refuses."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from foretell.cli.members import KINDS, names, page
from foretell.errors import BadInput, UnknownName
from foretell.hardware import members
from foretell.plan.schedule import draw, schedules
from foretell.plan.trainer import CONSTANTS, trainer

FAMILIES = ["alexnet", "bert-base", "deepseek-v2-lite", "gpt2", "llama3-8b", "mixtral-8x7b", "resnet50", "vgg16-paradl"]

ALWAYS = ("describe",)


def _members() -> list[tuple[str, str]]:
    found = [(kind, name) for kind in KINDS if kind != "model" for name in names(kind)]
    return [*found, *(("model", name) for name in names("model") if name in FAMILIES)]


def test_every_member_has_a_page() -> None:
    for kind, name in _members():
        found = page(name, kind)
        assert found.kind == kind
        text = found.render()
        assert found.name in text.splitlines()[0]
        wide = [line for line in text.splitlines() if len(line) > 80]
        assert not wide, (kind, name, wide)
        answer = json.loads(msgspec.json.encode(found.json()))
        assert {"kind", "name", "title", kind} == set(answer)


def test_a_name_alone_is_found_in_its_set() -> None:
    for kind in KINDS:
        name = names(kind)[0]
        assert page(name) == page(name, kind)


def _flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("name", members.names("devices"))
def test_every_source_of_a_device_is_on_its_page(name: str) -> None:
    text = _flat(page(name, "device").render())
    for source in members.device(name).sources.values():
        assert _flat(source) in text


@pytest.mark.parametrize("name", members.names("links"))
def test_every_source_of_a_link_is_on_its_page(name: str) -> None:
    found = members.link(name)
    text = _flat(page(name, "link").render())
    for key, source in found.sources.items():
        shown = key != "ceiling" or found.ceiling < found.bandwidth
        assert _flat(source) in text or not shown or (key == "hop" and not found.hop_seconds), key


def test_a_cluster_says_how_narrow_it_is() -> None:
    text = page("abci").render()
    assert "1:3 over-subscribed" in text
    assert "ib-edr" in text


@pytest.mark.parametrize("name", schedules())
def test_a_schedule_is_drawn(name: str) -> None:
    found = page(name).json()["schedule"]["example"]
    drawn = draw(name, found["ranks"], found["microbatches"])
    text = page(name).render().splitlines()
    for row in drawn.splitlines():  # a long one is cut into pieces
        pieces = [line.removeprefix(row[:8]) for line in text if line.startswith(row[:8].rstrip())]
        assert "".join(piece.ljust(72) for piece in pieces).rstrip() == row[8:]


def test_a_trainer_says_its_own_constants_and_all_of_them_to_programs() -> None:
    found = page("torchtitan")
    own = [key for key in CONSTANTS if not trainer("torchtitan").source(key).startswith("carried over")]
    assert [figure.name for figure in found.figures] == own
    assert set(found.json()["trainer"]["constants"]) == set(CONSTANTS)


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("dp8:zero3", "strategy", "dp"),
        ("spatial2x2", "strategy", "spatial"),
        ("+bf16", "policy", "precision"),
        ("+recompute:block", "policy", "recompute"),
        ("64xh100", "cluster", "64xh100"),
        ("abci:64", "cluster", "abci:64"),
        ("llama3-8b:layers=16", "model", "llama3-8b:layers=16"),
        ("H100", "device", "h100"),
        ("a100", "device", "a100-80"),
    ],
)
def test_texts_that_mean_a_member(text: str, kind: str, name: str) -> None:
    found = page(text)
    assert (found.kind, found.name) == (kind, name)


def test_fields_that_were_set_are_shown() -> None:
    assert page("llama3-8b:layers=16").json()["model"]["fields"]["layers"] == 16
    assert page("llama3-8b").json()["model"]["parameters"] == 8_030_261_248


def test_unknown_names_have_near_ones() -> None:
    with pytest.raises(UnknownName, match=r"nvlink4 \(link\)"):
        page("nvlonk4")
    with pytest.raises(UnknownName, match="foretell list"):
        page("qqqqqqqqq")


def test_a_name_in_two_sets_must_say_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KINDS["schedule"], "names", lambda: ["ring"])
    with pytest.raises(BadInput, match="foretell describe schedule ring or foretell describe strategy ring"):
        page("ring")
    assert page("ring", "strategy").kind == "strategy"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "describe what"),
        (("a", "b", "c"), "nothing is called 'a b c'"),
        (("devise", "h100"), "device"),
        (("device", "h101"), "h100"),
        (("dp8:zero9",), "zero3"),
        (("+bf17",), "bf16"),
        (("8xh101",), "h100"),
        (("llama3-8b:lairs=2",), "layers"),
        (("nowhere/config.json",), "no such file"),
        (("link", "nvlink"), "nvlink4"),
        (("trainer", "megatron"), "megatron-lm"),
    ],
)
def test_bad_input_is_a_message(foretell: Any, arguments: tuple[str, ...], said: str) -> None:
    ran = foretell(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_the_command_prints_the_page(foretell: Any) -> None:
    assert foretell("h100").out == page("h100").render() + "\n"
    assert json.loads(foretell("device", "h100", "--json").out)["device"]["sources"]
