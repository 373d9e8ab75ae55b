"""Models that other packages build by name, as graphs.

timm/resnet50d                    timm's, for the image that it says is usual
timm/resnet50d:image=288          for another
timm/vit_small_patch16_384:attention=math    with scores written out, as before PyTorch 2
torchvision/shufflenet_v2_x1_0    torchvision's
regnety_032                       the plain name, where the zoo has none of that name

Many were traced before and ship (`packages.zip`, made by `studies/traced/trace.py`): they need neither torch nor the
package. Others are traced in a process of their own and kept on disk, by name and versions.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import itertools
import lzma
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from foretell.errors import BadInput, ForetellError, MissingExtra, near
from foretell.files import PRIVATE, read_bytes, write_whole
from foretell.model.graph import SCHEMA, Graph, check
from foretell.model.importers import torch_load
from foretell.model.resize import ANY, with_samples
from foretell.records.home import cache_home
from foretell.units import FLOATING

ARCHIVE: Final = Path(__file__).with_name("packages.zip")
INDEX: Final = "index.json"

PACKAGES: Final = {"timm": "pip install 'foretell[timm]'", "torchvision": "pip install torchvision"}
"""Packages that build models by name, and what installs them (torchvision must be the build for torch's own)."""

OWN: Final = "traced"
"""Networks of published runs that no package has, written in PyTorch in `studies/traced/networks.py`."""

KERNELS: Final = ("flash", "math")
"""How attention is computed: by one kernel, or with its scores written out."""

LARGEST_IMAGE: Final = 8192
LARGEST_GRAPH: Final = 64 << 20


class PackageModel(NamedTuple):
    """A model as it is asked for; image 0: the usual one."""

    package: str
    name: str
    image: int = 0
    attention: str = "flash"
    dtype: str = ""

    @property
    def text(self) -> str:
        """Without its type, which a graph is given afterwards."""
        fields = [f"image={self.image}"] if self.image else []
        fields += [f"attention={self.attention}"] if self.attention != KERNELS[0] else []
        return f"{self.package}/{self.name}{':' if fields else ''}{','.join(fields)}"


class ShippedModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model of the index: its graphs by image and attention (`224`, `224,math`), and its usual image."""

    image: int = 0
    graphs: dict[str, str] = {}


class ShippedIndex(msgspec.Struct, frozen=True):
    """What the archive holds, and all names that packages of these versions know."""

    versions: dict[str, str]
    models: dict[str, ShippedModel]  # package/name
    renamed: dict[str, str]  # former names, package/name, to today's


@functools.cache
def index() -> ShippedIndex:
    """The names that ship."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        return msgspec.json.decode(archive.read(INDEX), type=ShippedIndex)


def parse(spec: str) -> PackageModel | None:
    """The model that a text names; None where no package is named and none is known to have it."""
    full, _, rest = spec.partition(":")
    found = _found(full)
    if found is None:
        return None
    said: dict[str, str] = {}
    for item in rest.split(",") if rest else ():
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or key not in ("image", "attention", "dtype"):
            raise BadInput(
                f"{item!r} is no field of {found.text}", where=spec, fix="image=288, attention=math, dtype=bf16"
            )
        said[key] = value
    image = said.get("image", "0")
    if not image.isdigit() or int(image) > LARGEST_IMAGE:
        raise BadInput(f"image={image}", where=spec, fix=f"a whole number of pixels, up to {LARGEST_IMAGE:,}")
    if said.get("attention", KERNELS[0]) not in KERNELS:
        raise BadInput(f"attention={said['attention']}", where=spec, fix=f"attention={' or attention='.join(KERNELS)}")
    if said.get("dtype", "") not in ("", *FLOATING):
        raise BadInput(f"no floating-point type is called {said['dtype']!r}", where=spec, fix=", ".join(FLOATING))
    return found._replace(image=int(image), attention=said.get("attention", KERNELS[0]), dtype=said.get("dtype", ""))


def _found(full: str) -> PackageModel | None:
    """By its name and the package's, or by its name alone; weights (resnet50.a1_in1k) do not count."""
    package, slash, name = full.rpartition("/")
    if slash and package not in PACKAGES:
        return None
    name = name.partition(".")[0]
    spellings = (name,) if slash else dict.fromkeys((name, name.lower().replace("-", "_")))
    for spelt, own in itertools.product(spellings, (package,) if slash else (*PACKAGES, OWN)):
        today = index().renamed.get(f"{own}/{spelt}", f"{own}/{spelt}")
        if slash or today in index().models:
            return PackageModel(own, today.partition("/")[2])
    return None


LEAST_SAID: Final = 3
"""Letters from which on the beginning of a name says something."""


def beginning_with(text: str) -> list[str]:
    """Names of packages that begin with these letters, those that ship first; `beit`: beit_base_patch16_224, ..."""

    def letters(name: str) -> str:
        return "".join(filter(str.isalnum, name.lower()))

    said = letters(text.partition(":")[0])
    if len(said) < LEAST_SAID:
        return []
    found = {name.partition("/")[2]: model for name, model in index().models.items()}
    like = [name for name in found if letters(name).startswith(said)]
    return sorted(like, key=lambda name: (not found[name].graphs, name))


def load(model: PackageModel, batch: int | None = None, dtype: str = "") -> Graph:
    """The graph of a model: one that ships, one that was traced before, or traced now."""
    graph = _shipped(model) or built(model)
    graph = msgspec.structs.replace(graph, name=model.text, source="package")
    return with_samples(retyped(graph, model.dtype or dtype), batch or 1)


def retyped(graph: Graph, dtype: str, own: str = "fp32") -> Graph:
    """A graph in fp32 (or the type it is in) as that of the same module after it was given another type."""
    if dtype in ("", own):
        return graph
    replace = msgspec.structs.replace
    typed = ("activation", "input", "parameter")
    blocks = (
        replace(
            block,
            tensors=tuple(
                replace(one, dtype=dtype) if one.dtype == own and one.role in typed else one for one in block.tensors
            ),
        )
        for block in graph.blocks
    )
    return replace(graph, blocks=tuple(blocks))


# what ships


def _shipped(model: PackageModel) -> Graph | None:
    known = index().models.get(f"{model.package}/{model.name}")
    if known is None:
        return None
    image = model.image or known.image
    member = known.graphs.get(f"{image}{',math' if model.attention == 'math' else ''}")
    return _member(member) if member else None


@functools.lru_cache(maxsize=8)
def _member(name: str) -> Graph:
    with zipfile.ZipFile(ARCHIVE) as archive:
        return msgspec.json.decode(archive.read(name), type=Graph)


# what is traced


def built(model: PackageModel) -> Graph:
    """What the installed package builds, for `ANY` samples: traced before, or now."""
    return kept(_place(model)) or _traced(model)


def _traced(model: PackageModel) -> Graph:
    _installed(model)
    graph = torch_load.traced(model.text, ANY)
    check(graph, model.text)
    keep(_place(model), graph)
    return graph


def keep(place: Path, graph: Graph) -> None:
    """Write down what was traced; where there is no place to keep it, it is traced again next time."""
    with contextlib.suppress(OSError):
        write_whole(place, lzma.compress(graph.to_json(), preset=0), mode=PRIVATE)


def _installed(model: PackageModel) -> None:
    if model.package == OWN:
        raise BadInput(f"{model.name} was traced for images of {_sizes(model)} only", where=model.text, fix=model.name)
    missing = [name for name in ("torch", model.package) if importlib.util.find_spec(name) is None]
    if missing:
        known = f"{model.package}/{model.name}" in index().models
        close = [] if known else [f"{name}, or " for name in _similar(model)[:1]]
        what = f"{model.text} is traced from {model.package}, which needs {' and '.join(missing)}"
        raise MissingExtra(what, where=model.text, fix="".join((*close, PACKAGES[model.package])))


def _sizes(model: PackageModel) -> str:
    return " and ".join(sorted({key.partition(",")[0] for key in index().models[f"{OWN}/{model.name}"].graphs}))


def _similar(model: PackageModel) -> list[str]:
    return near(f"{model.package}/{model.name}", [name for name in index().models if name.startswith(model.package)])


def kept(place: Path) -> Graph | None:
    """What was traced before with these versions; a file that is damaged, or is no such graph, is made again."""
    try:
        if not place.is_file():
            return None
        content = lzma.LZMADecompressor().decompress(read_bytes(place, "graph", LARGEST_GRAPH), LARGEST_GRAPH)
        return Graph.from_json(content, where=str(place))
    except (OSError, lzma.LZMAError, ForetellError):
        return None


def _place(model: PackageModel) -> Path:
    digest = hashlib.sha256("\n".join((model.text, str(SCHEMA), *versions(model.package))).encode()).hexdigest()
    return cache_home() / "graphs" / f"{digest[:32]}.json.xz"


def versions(package: str) -> Iterator[str]:
    """What a traced graph depends on."""
    import importlib.metadata  # slow to import, and only a traced model needs it

    for name in (package, "torch", "foretell"):
        try:
            yield f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            yield name
