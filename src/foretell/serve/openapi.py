"""The description of the API, made from the types that bodies are read into and answers are written from."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from foretell.serve.calls import CALLS, JSON, call, summary
from foretell.serve.calls.model import ModelAnswer
from foretell.serve.calls.search import Search, SearchFound
from foretell.serve.choices import Choices
from foretell.serve.guards import HEALTH
from foretell.serve.problem import Problem
from foretell.serve.searches import SearchProgress
from foretell.version import __version__

PROBLEMS = {
    "400": "the body is not JSON of this form",
    "401": "the token is missing or wrong",
    "403": "a page of another origin asks",
    "404": "nothing is here",
    "408": "the body took too long",
    "413": "the body is too large",
    "415": "the body is of another type",
    "421": "the request is for another host",
    "422": "the question has no answer: what is wrong, and what would work",
    "429": "too many questions at once",
    "503": "no process that answers could be started",
}


def quick() -> list[str]:
    """The calls that are answered at once."""
    return [name for name in CALLS if not call(name).long]


@functools.cache
def description() -> bytes:
    """OpenAPI 3.1."""
    bodies = [call(name).body for name in quick()]
    answers = [call(name).gives for name in quick() if call(name).media == JSON]
    types = [*bodies, *answers, Search, SearchFound, SearchProgress, ModelAnswer, Choices, Problem]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    for name, kind in (("answer", "SearchFound"), ("problem", "Problem")):  # passed on as they are, already written
        components["SearchProgress"]["properties"][name] = {
            "anyOf": [{"$ref": f"#/components/schemas/{kind}"}, {"type": "null"}]
        }
    known = dict(zip(map(str, types), schemas, strict=True))

    def schema(kind: Any) -> dict[str, Any]:
        return known[str(kind)]

    paths: dict[str, Any] = {}
    for name in quick():
        one = call(name)
        given = {"content": {JSON: {"schema": schema(one.body)}}, "required": True}
        shape = schema(one.gives) if one.media == JSON else {"type": "string"}
        paths[f"/api/{name}"] = {"post": _operation(name, summary(name), _good(shape, one.media), given)}
    paths |= _others(schema)
    about = {
        "title": "foretell",
        "version": __version__,
        "description": "How a training run will go: the answers of the command line, as JSON, on this machine.",
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    }
    token = {"token": {"type": "http", "scheme": "bearer", "description": "what `foretell serve` prints"}}
    parts = {"schemas": components, "securitySchemes": token}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": about,
        "security": [{"token": []}],
        "paths": paths,
        "components": parts,
    }
    return msgspec.json.encode(document)


def _others(schema: Any) -> dict[str, Any]:
    """What is not one call and its answer."""
    named = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string", "pattern": "^[0-9a-f]{16}$"}}]
    file = {"content": {"application/octet-stream": {"schema": {"type": "string"}}}, "required": True}
    search = {"content": {JSON: {"schema": schema(Search)}}, "required": True}
    told = _good(schema(SearchProgress))
    ok = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    well = _good(ok) | {"503": {**_good(ok)["200"], "description": "predictions do not work"}}
    return {
        HEALTH: {
            "get": {"operationId": "health", "summary": "Whether predictions work", "security": [], "responses": well}
        },
        "/api/choices": {"get": _operation("choices", "Every name that a question can have", _good(schema(Choices)))},
        "/api/models": {
            "post": _operation(
                "upload",
                "Hand in a model: a config.json, a graph of `foretell analyze --graph`, a .net file, a kept prediction",
                _good(schema(ModelAnswer)),
                file,
            )
        },
        "/api/searches": {
            "post": _operation("start", "Search for the best plans", _good(schema(SearchProgress), code="202"), search)
        },
        "/api/searches/{id}": {
            "parameters": named,
            "get": _operation("watch", "How far a search is, and what it found", told),
            "delete": _operation("stop", "End a search with what it found so far", told),
        },
    }


def _good(schema: dict[str, Any], media: str = JSON, code: str = "200") -> dict[str, Any]:
    return {code: {"description": "the answer", "content": {media.partition(";")[0]: {"schema": schema}}}}


def _operation(name: str, summary: str, good: dict[str, Any], given: dict[str, Any] | None = None) -> dict[str, Any]:
    wrong = {"content": {JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    found: dict[str, Any] = {"operationId": name, "summary": summary.rstrip(".")}
    found["responses"] = good | {code: {"description": why, **wrong} for code, why in PROBLEMS.items()}
    return found | ({"requestBody": given} if given else {})
