"""Readers of names and graphs: whatever comes in, an answer or a message comes out."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from foretell import analyze
from foretell.errors import BadInput, ForetellError
from foretell.model import zoo
from foretell.model.graph import Graph
from foretell.model.source import load
from law_examples import reached

NAMES = sorted(zoo.names())
FIELDS = sorted({field for fields in zoo.names().values() for field in fields.__struct_fields__})
VALUES = st.integers(-3, 300).map(str) | st.sampled_from(
    ["", "true", "nan", "1e9", "9" * 30, "2/2/2/2", "bf16", "flash"]
)


@given(st.text(st.characters(exclude_characters="/\\\\.\x00"), max_size=30))
def test_any_text_that_is_no_name_is_a_message(text: str) -> None:
    assume(text not in NAMES)
    with pytest.raises(ForetellError) as caught:
        load(text)
    assert caught.value.what


@pytest.mark.reaches(model=2, message=5)
@given(st.sampled_from(NAMES), st.data())
def test_any_fields_are_a_model_or_a_message(name: str, data: st.DataObject) -> None:
    own = st.sampled_from(sorted(zoo.names()[name].__struct_fields__))
    right = st.dictionaries(own, st.sampled_from(["1", "2", "8", "64"]), min_size=1, max_size=2)
    fields = data.draw(right | st.dictionaries(own | st.sampled_from(FIELDS), VALUES, min_size=1, max_size=3))
    spec = f"{name}:{','.join(f'{key}={value}' for key, value in fields.items())}"
    try:
        assert zoo.load(spec).blocks
        reached("model")
    except BadInput as problem:
        assert name in problem.where
        reached("message")


def _places(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return [path, *(place for key, value in items for place in _places(value, (*path, key)))]


GRAPH = json.loads(zoo.load("llama:layers=3,hidden=32,heads=4,vocab=50,seq=8").to_json())
PLACES = [place for place in _places(GRAPH) if place]
SPOILED = st.sampled_from([None, -1, 0, 7, 10**30, 0.5, "", "x", [], {}, [[]], True])


@pytest.mark.reaches(message=5)
@given(st.lists(st.tuples(st.sampled_from(PLACES), SPOILED), min_size=1, max_size=3))
def test_a_spoiled_graph_is_a_graph_or_a_message(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    content = json.loads(json.dumps(GRAPH))
    for place, value in changes:
        target = content
        try:
            for key in place[:-1]:
                target = target[key]
            target[place[-1]] = value
        except (LookupError, TypeError):
            continue  # an earlier change took the place away
    try:
        analyze(Graph.from_json(json.dumps(content).encode()))
    except BadInput as problem:
        assert problem.what
        reached("message")


@given(st.binary(max_size=100), st.integers(0, 2000))
def test_a_cut_graph_is_a_message(junk: bytes, length: int) -> None:
    text = json.dumps(GRAPH).encode()
    with pytest.raises(BadInput):
        Graph.from_json(text[:length] + junk)


def test_too_many_layers_are_refused_at_once() -> None:
    with pytest.raises(BadInput, match="at most 10,000 layers"):
        load("llama:layers=9000000")


def test_every_name_has_a_graph_that_folds_and_prices() -> None:
    for name in random.Random(0).sample(NAMES, 12):
        answer = analyze(name)
        assert answer.forward_flops > 0
        assert answer.backward_flops > answer.forward_flops
