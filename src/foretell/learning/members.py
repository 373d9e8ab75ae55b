"""Algorithms, topologies and compressors by their names, and as a person writes them together.

ssp:s=3                              an algorithm with an option
downpour@sharded:k=4                 ... on a topology
sync@replicated+topk:share=0.01      ... with a compressor
"""

from __future__ import annotations

import math
import re
from dataclasses import Field, fields
from typing import Any, Final, NamedTuple, TypeVar

from foretell.errors import BadInput, unknown
from foretell.learning.algorithm import Algorithm
from foretell.learning.compressor import Compressor
from foretell.learning.topology import Topology
from foretell.plan.policies.compression import Compression
from foretell.registry import OpenSet

ALGORITHMS: Final = OpenSet("foretell.learning.algorithms", "algorithm")
TOPOLOGIES: Final = OpenSet("foretell.learning.topologies", "topology")
COMPRESSORS: Final = OpenSet("foretell.learning.compressors", "compressor")

ALIASES: Final = {
    "async": "downpour",
    "synchronous": "sync",
    "sparknet": "local",
    "gossip": "gosgd",
    "federated": "fedavg",
    "1bit": "onebit",
}
"""Other names that people have for members."""

Kind = TypeVar("Kind", Algorithm, Topology, Compressor)


def member(found: OpenSet, kind: type[Kind], name: str) -> type[Kind]:
    """The class of a member: the one of its kind that its file defines."""
    known = ALIASES.get(name, name)
    if known not in found:
        raise unknown(found.kind, name, [*found])
    module = found[known]
    own = (thing for thing in vars(module).values() if isinstance(thing, type) and thing.__module__ == module.__name__)
    return next(thing for thing in own if issubclass(thing, kind))


def about(what: str) -> list[dict[str, str]]:
    """Every member of a set, with its summary, paper, options and, of an algorithm, its invariant."""
    sets: dict[str, tuple[OpenSet, type[Any]]] = {
        "algorithms": (ALGORITHMS, Algorithm),
        "topologies": (TOPOLOGIES, Topology),
        "compressors": (COMPRESSORS, Compressor),
    }
    found, kind = sets[what]
    rows: list[dict[str, str]] = []
    for name in found:
        made = member(found, kind, name)
        options = ", ".join(f"{field.name}={field.default}" for field in fields(made) if field.init)
        row = {"name": name, "summary": made.summary, "options": options, "paper": made.paper}
        rows.append(row | ({"invariant": made.invariant} if kind is Algorithm else {}))
    return rows


def of_policy(policy: Compression) -> Compressor | None:
    """The compressor that a plan's policy prices; None where gradients travel as they are."""
    options: dict[str, dict[str, Any]] = {
        "topk": {"share": policy.kept},
        "dgc": {"share": policy.corrected},
        "threshold": {"share": policy.passed},
        "factors": {"samples": policy.factors},
        "powersgd": {"rank": policy.rank},
        "qsgd": {"levels": policy.levels},
    }
    if policy.method == "none":
        return None
    return member(COMPRESSORS, Compressor, policy.method)(**options.get(policy.method, {}))


class Composed(NamedTuple):
    """What runs, with its text."""

    text: str
    algorithm: Algorithm
    topology: Topology
    compressor: Compressor | None


def composed(text: str) -> Composed:
    """The algorithm, topology and compressor that a text names; new ones, since an algorithm remembers its run."""
    form = re.fullmatch(r"([^@+]+)(?:@([^@+]+))?(?:\+([^@+]+))?", text.strip())
    if form is None:
        raise BadInput(f"{text!r} is no algorithm", where="--algorithms", fix="sync, ssp:s=3, async@sharded:k=4+qsgd")
    algorithm = _made(ALGORITHMS, Algorithm, form[1])
    topology = _made(TOPOLOGIES, Topology, form[2] or algorithm.topology)
    if algorithm.topology in _PEERS and form[2] and topology.central:
        raise BadInput(f"{form[1]} has no server", where=text, fix=", ".join(_PEERS))
    if algorithm.topology not in _PEERS and not topology.central:
        raise BadInput(f"{form[1]} needs somebody to push to", where=text, fix="single, sharded, every, replicated")
    if algorithm.topology == "tree" and form[2] and not form[2].startswith("tree"):
        raise BadInput(f"{form[1]} goes up and down a tree", where=text, fix="tree:fan=2")
    return Composed(text.strip(), algorithm, topology, _made(COMPRESSORS, Compressor, form[3]) if form[3] else None)


_PEERS = ("ring", "tree", "mesh")


def _made(found: OpenSet, kind: type[Kind], text: str) -> Kind:
    name, _, said = text.strip().partition(":")
    made = member(found, kind, name)
    known = {field.name: field for field in fields(made) if field.init}
    options: dict[str, Any] = {}
    for item in filter(None, said.split(",")):
        key, _, value = item.partition("=")
        if key not in known:
            raise BadInput(
                f"{name} has no option {key!r}", where=text, fix=", ".join(known) or "none: it has no options"
            )
        options[key] = _read(value, known[key], item)
    return made(**options)


def _read(value: str, option: Field[Any], where: str) -> Any:
    usual, least, most = option.default, option.metadata.get("least", 0.0), option.metadata.get("most", math.inf)
    fix = f"{option.name}={usual}"
    try:
        read = float(value)
    except ValueError:
        raise BadInput(f"{value!r} is no number", where=where, fix=fix) from None
    if isinstance(usual, int) and not read.is_integer():
        raise BadInput(f"{value} is no whole number", where=where, fix=fix)
    if not least <= read <= most:
        said = f"less than {least:g}" if read < least else f"more than {most:g}" if read > most else "no number"
        raise BadInput(f"{value} is {said}", where=where, fix=fix)
    return type(usual)(read)
