"""A Hugging Face `config.json` as the graph of transformers' own class, traced as its users run it.

The class is chosen by `model_type` (or by the name that the file gives it) among those that are installed, built
without memory and run in training mode: no cache of keys and values, whole sequences, the attention that transformers
takes by itself. A configuration runs no code: what names code (`auto_map`, kernels of the hub) is taken out before
transformers sees it. Graphs are kept on disk, by configuration, length, type and versions. This file needs neither
torch nor transformers.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import msgspec

from foretell.caches import forgettable
from foretell.errors import BadInput, MissingExtra, TraceFailed
from foretell.model import fold
from foretell.model.dims import Dim, Dims, Loop
from foretell.model.graph import SCHEMA, Block, Graph, Tensor, check
from foretell.model.importers import hf_config, packages, torch_load
from foretell.model.importers.hf_fields import DEEPEST, LARGEST
from foretell.model.resize import ANY, SAMPLE, with_samples
from foretell.records.home import cache_home

PREFIX: Final = "transformers::"
"""What the tracing process is asked: this, a type, a colon and a path. No path of a file of code begins so."""

INSTEAD: Final = "the file as it lies beside the weights"

COMMAND: Final = "pip install torch transformers"
"""The one command after which any type that transformers has is answered."""

NATIVE: Final = ("bf16", "fp16")
"""Types that a module is traced in: where norms and softmax go to fp32 and back is then seen.

For others it is traced in fp32 and given the type afterwards; one that has experts in bf16, the only type in which
PyTorch says the shape of their grouped product.
"""

FOREIGN: Final = (
    "_attn_implementation", "_attn_implementation_internal", "_experts_implementation", "_name_or_path",
    "attn_implementation", "auto_map", "custom_pipelines", "dtype", "experts_implementation", "quantization_config",
    "torch_dtype", "transformers_version", "use_cache", "use_kernels",
)  # fmt: skip
"""Fields that name code (a repository may stand for an attention), or say what the plan and the trainer say."""

Sized = TypeVar("Sized", Tensor, Loop)


def load(file: Path, batch: int, seq: int | None, dtype: str) -> Graph:
    """The graph of the model that a configuration describes, for this many samples."""
    content = cleaned(hf_config.content(file))
    longest = _positions(content)
    length = seq or min(longest, hf_config.USUAL_LENGTH)
    if not 1 <= length <= LARGEST:
        raise BadInput(f"a sequence of {length} tokens", where=str(file), fix=f"1 to {LARGEST:,}")
    notes: list[str] = []
    if seq is None and longest > length:
        notes.append(f"sequences of {length} tokens; the model allows {longest} (set it with --seq)")
    encoded = msgspec.json.encode(content, order="deterministic")
    traced_in = dtype if dtype in NATIVE else "bf16" if b"expert" in encoded else "fp32"
    graph = _graph(encoded, length, traced_in, str(file.resolve()))
    if traced_in != dtype:
        graph = packages.retyped(packages.retyped(graph, "fp32", traced_in), dtype)
    name = file.resolve().parent.name or "config"
    graph = msgspec.structs.replace(graph, name=name, source="hf", warnings=(*graph.warnings, *notes))
    return with_samples(graph, batch)


def cleaned(content: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without what names code; parts of it (`text_config`) too."""
    kept = {key: value for key, value in content.items() if key not in FOREIGN}
    return {
        key: cleaned(cast("dict[str, Any]", value)) if key.endswith("_config") and isinstance(value, dict) else value
        for key, value in kept.items()
    }


def _positions(content: Mapping[str, Any]) -> int:
    """The longest sequence that the file speaks of."""
    inside: Any = content.get("text_config")
    parts: list[Any] = [content, inside if isinstance(inside, dict) else {}]
    for part in parts:
        for key in ("num_hidden_layers", "n_layer", "num_layers"):
            if isinstance(part.get(key), int) and part[key] > DEEPEST:
                raise BadInput(f"{key} is {part[key]}", where=key, fix=f"at most {DEEPEST:,} layers")
        for key in ("max_position_embeddings", "n_positions", "max_seq_len"):
            if isinstance(part.get(key), int) and part[key] > 0:
                return part[key]
    return hf_config.USUAL_LENGTH


@forgettable
@functools.lru_cache(maxsize=8)
def _graph(content: bytes, seq: int, dtype: str, file: str) -> Graph:
    """For `ANY` samples: traced before, or now."""
    parts = (content.decode(), str(seq), dtype, str(SCHEMA), _tracer(), *packages.versions("transformers"))
    place = cache_home() / "graphs" / f"{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:32]}.json.xz"
    found = packages.kept(place)
    if found is not None:
        return found
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        kind = msgspec.json.decode(content).get("model_type")
        what = f"model type {kind} is no family of the zoo, and tracing its own class needs {' and '.join(missing)}"
        raise MissingExtra(what, where=file, fix=COMMAND)
    try:
        graph = _followed(torch_load.traced(f"{PREFIX}{dtype}:{file}", ANY, seq))
    except TraceFailed as problem:  # of transformers' own code: what a person can change is the file
        module = re.search(r"\bmodule [\w.]+", problem.where)
        where = f"{file}, {module[0]}" if module else file
        zoo = ", or --as zoo, which says what does not divide" if hf_config.known(Path(file)) else ""
        raise TraceFailed(problem.what, where=where, fix=problem.fix or f"{INSTEAD}{zoo}") from None
    check(graph, file)
    packages.keep(place, graph)
    return graph


@functools.cache
def _tracer() -> str:
    """What traces, by its sources: graphs that an earlier one left behind are made again."""
    own = hashlib.sha256()
    for file in sorted((*Path(__file__).parent.glob("torch_*.py"), Path(fold.__file__))):
        own.update(file.read_bytes())
    return own.hexdigest()


def _followed(graph: Graph) -> Graph:
    """The graph with its samples named where nothing tied them to the inputs.

    Masks and lists of positions are made inside a model, from numbers: their samples are known by their number alone,
    which is a prime that no size of the model is a multiple of (of such a size, only the number itself is taken).
    """
    sizes = {dim.size for block in graph.blocks for one in block.tensors if _weight(one) for dim in one.dims}
    sizes |= {dim.size for block in graph.blocks for one in block.tensors for dim in one.dims if dim.name != "feature"}

    def apart(dims: Dims) -> Dims:
        if any(dim.name == SAMPLE for dim in dims):
            return dims
        for at, dim in enumerate(dims):
            if dim.size == ANY:
                return (*dims[:at], Dim(SAMPLE, ANY), *dims[at + 1 :])
            if dim.size and dim.size % ANY == 0 and dim.size not in sizes:
                return (*dims[:at], Dim(SAMPLE, ANY), Dim(dim.name, dim.size // ANY), *dims[at + 1 :])
        return dims

    def named(one: Sized) -> Sized:
        found = apart(one.dims)
        return one if found is one.dims else msgspec.structs.replace(one, dims=found)

    def block_of(block: Block) -> Block:
        tensors = tuple(one if _weight(one) else named(one) for one in block.tensors)
        nodes = tuple(msgspec.structs.replace(node, loops=tuple(map(named, node.loops))) for node in block.nodes)
        return msgspec.structs.replace(block, tensors=tensors, nodes=nodes)

    return msgspec.structs.replace(graph, blocks=tuple(map(block_of, graph.blocks)))


def _weight(tensor: Tensor) -> bool:
    return tensor.role in ("parameter", "buffer")
