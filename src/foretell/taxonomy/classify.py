"""A plan, or an algorithm of virtual time, on the axes of the taxonomy."""

from __future__ import annotations

from typing import Final, TypeAlias

from foretell.learning.members import Composed
from foretell.plan.plan import Plan
from foretell.plan.policies.compression import Compression
from foretell.plan.policies.offload import Offload
from foretell.plan.strategies.server import Server
from foretell.plan.strategy import Strategy
from foretell.plan.together import storage
from foretell.runtime.methods import choice

Classes: TypeAlias = dict[str, tuple[str, ...]]

VERTICAL: Final = ("pp",)
HORIZONTAL: Final = ("tp", "cp", "spatial", "filter", "channel")

COMPRESSIONS: Final = {
    "none": "none",
    "topk": "sparsification",
    "dgc": "sparsification",
    "threshold": "sparsification",
    "powersgd": "factors",
    "factors": "factors",
}
"""By method; all others take fewer bits."""


def plan_classes(plan: Plan) -> Classes:
    """Where a plan lies on every axis."""
    words = {axis.word: axis for axis in plan.axes if axis.world > 1}
    method = plan.policy(Compression).method
    return {
        "parallelism": _parallelism(plan, tuple(words)),
        "optimization": ("decentral" if {"local", "gossip", "ring"} & set(words) else "central",),
        "scheduling": (_scheduling(words, plan),),
        "exchange": (_exchange(words, plan),),
        "topology": (_topology(words),),
        "compression": (COMPRESSIONS.get(method, "quantization"),),
        "consolidation": ("direct" if {"local", "gossip", "ring"} & set(words) else "none",),
        "order": ("first",),
    }


def _parallelism(plan: Plan, words: tuple[str, ...]) -> tuple[str, ...]:
    found = ["vertical"] if set(words) & set(VERTICAL) else []
    found += ["horizontal"] if set(words) & set(HORIZONTAL) else []
    found += ["data"] if set(words) - set(VERTICAL) - set(HORIZONTAL) or not words else []
    return (*found, "out-of-core") if plan.policy(Offload) != Offload() else tuple(found)


def _scheduling(words: dict[str, Strategy], plan: Plan) -> str:
    server = words.get("ps")
    if isinstance(server, Server):
        return {"sync": "synchronous", "ssp": "bounded", "async": "asynchronous"}[server.mode]
    if "gossip" in words:
        return "soft-bounded"
    return "bounded" if ":stash" in str(plan) else "synchronous"  # a pipeline without a flush has stale weights


def _exchange(words: dict[str, Strategy], plan: Plan) -> str:
    server = words.get("ps")
    if isinstance(server, Server):
        return "reduce" if server.mode == "sync" else "ad-hoc"
    if "ring" in words:
        return "neighbours"
    if "gossip" in words:
        return "ad-hoc"
    if not {"dp", "local"} & set(words):
        return "none"
    return "scatter-reduce" if storage(plan).states else "all-reduce"


def _topology(words: dict[str, Strategy]) -> str:
    server = words.get("ps")
    if isinstance(server, Server):
        if server.group:
            return "proxies"
        if server.servers == 1:
            return "single-server"
        return "every-worker" if server.servers == server.ranks else "distributed-servers"
    for word, name in (("ring", "ring"), ("gossip", "mesh"), ("dp", "replicated"), ("local", "replicated")):
        if word in words:
            return name
    return "distributed-array" if words else "replicated"


def of_run(plan: Plan, method: str = "") -> Classes:
    """Where a run of real processes lies: by the algorithm that its plan means, or that was named beside it."""
    found = choice.method(plan, method)
    return of_algorithm(found) if found is not None else plan_classes(plan)


def of_algorithm(found: Composed) -> Classes:
    """Where an algorithm with its topology and compressor lies."""
    parts = (found.algorithm, found.topology, found.compressor)
    names = [type(one).__module__.rpartition(".")[2] if one is not None else "none" for one in parts]
    return run_classes(*names)


BOUNDED: Final = ("ssp", "essp", "vap", "reject", "quorum", "adam75", "priority", "tree_easgd")
SOFT: Final = ("gosgd", "mpca", "population")
WAITING: Final = ("sync", "backup", "local", "fedavg", "post_local", "diloco", "admm", "dpsgd")
CONSOLIDATIONS: Final = {
    **dict.fromkeys(("local", "fedavg", "post_local", "diloco", "averaging", "dpsgd", "gosgd"), "direct"),
    **dict.fromkeys(("easgd", "tree_easgd", "mpca", "admm"), "elastic"),
    "ensemble": "ensemble",
    "distillation": "distillation",
}
TOPOLOGIES: Final = {
    **dict.fromkeys(("single", "binomial", "scatter"), "single-server"),
    **dict.fromkeys(("every", "shares"), "every-worker"),
    **dict.fromkeys(("replicated", "doubling"), "replicated"),
    "sharded": "distributed-servers",
    "proxies": "proxies",
    "ring": "ring",
    "tree": "tree",
    "mesh": "mesh",
}
EXCHANGES: Final = {
    "binomial": "binomial-tree",
    **dict.fromkeys(("scatter", "shares"), "scatter-reduce"),
    **dict.fromkeys(("replicated", "doubling"), "all-reduce"),
    "ring": "neighbours",
}


def run_classes(algorithm: str, topology: str, compressor: str = "none") -> Classes:
    """Where an algorithm of virtual time lies, by the names of its files."""
    scheduling = "synchronous" if algorithm in WAITING else "bounded" if algorithm in BOUNDED else "asynchronous"
    waits = EXCHANGES.get(topology, "reduce" if algorithm in WAITING else "ad-hoc")
    silent = algorithm in ("averaging", "ensemble", "hogwild")
    eager = ("eager-scatter",) if algorithm == "essp" else ()
    return {
        "parallelism": ("data",),
        "optimization": ("decentral" if algorithm in CONSOLIDATIONS or algorithm == "population" else "central",),
        "scheduling": ("soft-bounded" if algorithm in SOFT else scheduling,),
        "exchange": ("none",) if silent else (waits, *eager),
        "topology": (TOPOLOGIES[topology],),
        "compression": (COMPRESSIONS.get(compressor, "quantization"),),
        "consolidation": (CONSOLIDATIONS.get(algorithm, "none"),),
        "order": ("search" if algorithm == "population" else "first",),
    }
