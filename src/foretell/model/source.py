"""Where a model comes from: one text, five kinds of source.

resnet50, llama3-8b:layers=16        the zoo, by name, fields set if wished
meta-llama/Llama-3.1-8B, vit_b_16    the same, by names that it has elsewhere
timm/resnet50d:image=288, regnety_032  a model of timm or torchvision: it ships, or is traced
path/to/config.json, path/to/folder  a Hugging Face configuration: a family of the zoo, else transformers' own class
path/to/folder:as=hf                 the same, by transformers' own class (as=zoo: by the zoo)
path/to/model.net                    a layer file of the oracle paper
path/to/graph.json                   a graph written by `foretell analyze --graph`
path/to/file.py:factory              a function that builds any PyTorch module
package.module:factory               the same from an installed package

The last two are code. They run if the person wrote them (`foretell.trust`); of a record that names such a model, the
graph that it keeps is read instead.
"""

from __future__ import annotations

import base64
import re
import zlib
from pathlib import Path
from typing import Any, Final, cast

from foretell import trust
from foretell.errors import BadInput, UnknownName, first_of
from foretell.files import LARGEST
from foretell.model import zoo
from foretell.model.graph import Graph
from foretell.model.naming import MOST_NAMED, meant

LARGEST_BATCH = 10_000_000
LONGEST_TEXT = 250  # file systems refuse longer names


def load(spec: str, batch: int | None = None, seq: int | None = None, dtype: str = "") -> Graph:
    """The graph of the model that this text names, for `batch` samples (1 if it is not said).

    `dtype` is the type of models that do not say theirs: names without `dtype=`, and configurations.
    """
    if batch is not None and not 1 <= batch <= LARGEST_BATCH:
        raise BadInput(f"a batch of {batch} samples", fix=f"a whole number from 1 to {LARGEST_BATCH:,}")
    if seq is not None and not 1 <= seq <= LARGEST_BATCH:
        raise BadInput(f"a sequence of {seq} tokens", fix=f"a whole number from 1 to {LARGEST_BATCH:,}")
    if not spec.strip():
        raise BadInput("the model has no name", fix="resnet50, or any other of `foretell list models`")
    spec = named(spec)
    name, _, rest = spec.partition(":")
    if name in zoo.names():
        return _from_zoo(spec, rest, batch, seq, dtype)
    if len(spec) > LONGEST_TEXT or "\0" in spec:
        raise BadInput(f"no model has a name of {len(spec)} characters like this", fix="foretell list models")
    if (chosen := reading(spec)) is not None:
        return _from_file(chosen[0], batch, seq, dtype, chosen[1])
    path = Path(spec)
    if path.is_dir() or path.suffix in (".json", ".net"):
        return _from_file(path, batch, seq, dtype)
    if is_code(spec):
        from foretell.model.importers import torch_load

        graph = torch_load.load(spec, batch=batch, seq=seq)
        if graph.batch < 1:
            raise BadInput("the example inputs are an empty batch", where=spec, fix="inputs with at least one sample")
        return graph
    from foretell.model.importers import packages

    if not path.exists() and (of_package := packages.parse(spec)) is not None:
        return packages.load(of_package, batch, dtype)
    if path.is_file():
        what = f"{spec} is a file, but not one that holds a model"
        raise BadInput(what, fix="a config.json, its folder, a .net file, a graph in JSON or file.py:factory")
    if "/" in spec or path.suffix[1:].isalpha():  # llama3.1-9b is no file
        raise _no_file(spec)
    try:
        return zoo.load(spec, batch or 1)
    except UnknownName as problem:
        begun = [] if any(known.startswith(name.lower()) for known in zoo.names()) else packages.beginning_with(name)
        fix = first_of(begun, MOST_NAMED) if begun else problem.fix
        raise UnknownName(problem.what, fix=f"{fix}; or a config.json, or file.py:factory") from None


READING: Final = re.compile(r"(.+):as=(hf|zoo)")
"""Who reads a configuration: transformers' own class, or the zoo."""

HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
"""How the Hugging Face hub names a model: who, and which."""


def _no_file(spec: str) -> BadInput:
    """The error for what is written as a path, or as a name of the hub, and is neither."""
    known = "".join(f"{name}, or " for name in meant(spec, zoo.names())[:1])
    if HUB_ID.fullmatch(spec) and not Path(spec).parent.exists():
        get = f"hf download {spec} config.json --local-dir {Path(spec).name}"
        fix = f"{known}its configuration: {get}; then {Path(spec).name} is the model; or file.py:factory that builds it"
        return BadInput(f"{spec} is no model of the zoo, and no file or folder", fix=fix)
    return BadInput(
        f"no such file or folder: {spec}", fix=f"{known}a config.json, its folder, a .net file or file.py:factory"
    )


def named(spec: str) -> str:
    """The text of a model under the zoo's own name; a file or a folder of that name is what was meant instead."""
    if len(spec) > LONGEST_TEXT or "\0" in spec or spec.partition(":")[0] in zoo.names():
        return spec
    return spec if Path(spec).exists() or reading(spec) else zoo.canonical(spec)


def reading(spec: str) -> tuple[Path, str] | None:
    """The file or folder of a text that also says who reads it (`checkpoint:as=hf`)."""
    chosen = READING.fullmatch(spec)
    return (Path(chosen[1]), chosen[2]) if chosen and Path(chosen[1]).exists() else None


def other_reading(spec: str) -> str:
    """What to say of a configuration that the zoo reads though nobody chose who does; nothing of other models."""
    path = Path(spec)
    if is_code(spec) or named(spec).partition(":")[0] in zoo.names() or reading(spec) or len(spec) > LONGEST_TEXT:
        return ""
    file = path / "config.json" if path.is_dir() else path
    if file.suffix != ".json" or not file.is_file() or _looks_like_graph(file):
        return ""
    from foretell.model.importers import hf_config

    if not hf_config.known(file):
        return ""
    return "the configuration is read by the zoo; transformers' own class, as its trainers run it, is --as hf"


def in_words(spec: str, seq: int | None = None) -> str:
    """The text of a model; that of a configuration in the words of the zoo, whose modules can be run."""
    spec = named(spec)
    if spec.partition(":")[0] in zoo.names() or len(spec) > LONGEST_TEXT:
        return spec
    path, reader = reading(spec) or (Path(spec), "")
    if reader == "hf":
        what = "transformers' own class is predicted, not run, from a configuration"
        raise BadInput(what, where=spec, fix="--as zoo, or file.py:factory that builds it")
    file = path / "config.json" if path.is_dir() else path
    if file.suffix != ".json" or not file.is_file() or _looks_like_graph(file):
        return spec
    from foretell.model.importers import hf_config

    return hf_config.text(file, seq)


def is_code(spec: str) -> bool:
    """Whether a text names a function that would have to be run."""
    name, _, rest = spec.partition(":")
    if name in zoo.names() or len(spec) > LONGEST_TEXT or "\0" in spec:
        return False
    path = Path(spec)
    written = path.is_dir() or path.suffix in (".json", ".net")
    return not written and (name.endswith(".py") or ("." in name and rest.isidentifier()))


# what records keep of models that are code


def packed(spec: str, graph: Graph) -> str:
    """The graph of a model that is code, as text beside its name; nothing for models that are data."""
    return base64.b64encode(zlib.compress(graph.to_json(), 9)).decode() if is_code(spec) else ""


def kept(spec: str, text: str, where: str, fingerprint: str = "") -> Graph | None:
    """The graph that a file keeps of the model it names. None: the model is data, or the person wrote its name too."""
    if not is_code(spec) or trust.trusted(spec):
        return None
    if not text:
        trust.check(spec, where)
    try:
        opened = zlib.decompressobj()
        content = opened.decompress(base64.b64decode(text, validate=True), LARGEST)
    except (ValueError, zlib.error):
        content, opened = b"", None
    if opened is None or not opened.eof:  # cut, or larger than any graph
        raise BadInput(f"the graph that is kept of {spec} cannot be read", where=where, fix=f"--trust {spec}")
    graph = Graph.from_json(content, where)
    if fingerprint not in ("", graph.fingerprint):
        what = f"the graph that is kept of {spec} is {graph.fingerprint}, and the record is of {fingerprint}"
        raise BadInput(what, where=where, fix=f"--trust {spec}")
    return graph


def _from_zoo(spec: str, rest: str, batch: int | None, seq: int | None, dtype: str) -> Graph:
    said = {item.partition("=")[0].strip() for item in rest.split(",")}
    own = zoo.names()[spec.partition(":")[0]].dtype
    fields = [f"seq={seq}"] if seq is not None else []
    if dtype and "dtype" not in said and dtype != own:
        fields.append(f"dtype={dtype}")
    if fields:
        spec += f"{',' if rest else ':'}{','.join(fields)}"
    return zoo.load(spec, batch or 1)


def _from_file(path: Path, batch: int | None, seq: int | None, dtype: str, reader: str = "") -> Graph:
    file = path / "config.json" if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        raise BadInput(f"{path} is a folder without a config.json", fix="a folder that has one, or another source")
    _refuse_binary(file)
    if path.suffix == ".net" and not path.is_dir():
        from foretell.model.importers import paradl_net

        return paradl_net.load(path, batch or 1)
    if not file.is_file():
        raise BadInput(f"no such file: {file}", fix="a config.json, or a folder that has one")
    if _looks_like_graph(file):
        return _saved_graph(file, batch, seq)
    from foretell.model.importers import hf_config

    if reader == "hf" or (not reader and not hf_config.known(file)):
        from foretell.model.importers import hf_classes

        return hf_classes.load(file, batch or 1, seq, dtype)
    return hf_config.load(file, batch or 1, seq, dtype)


def _refuse_binary(file: Path) -> None:
    """Weights and archives have zeros where a description of a model has text."""
    try:
        with file.open("rb") as content:
            binary = b"\0" in content.read(4096)
    except OSError:  # whoever reads it says why
        return
    if binary:
        what = "a binary file, not the description of a model"
        raise BadInput(what, where=str(file), fix="its config.json, a .net file, or file.py:factory")


def _looks_like_graph(file: Path) -> bool:
    import json

    try:
        content: Any = json.loads(file.read_bytes())
    except (ValueError, OSError, RecursionError):
        return False
    return isinstance(content, dict) and "blocks" in cast("dict[str, Any]", content)


def _saved_graph(file: Path, batch: int | None, seq: int | None) -> Graph:
    graph = Graph.from_json(file.read_bytes(), where=str(file))
    if batch not in (None, graph.batch) or seq is not None:
        what = f"this graph was written for a batch of {graph.batch}"
        raise BadInput(what, where=str(file), fix="leave out --batch and --seq, or write the graph again")
    return graph
