"""Trace the models of `models.txt` and ship their graphs: `python studies/traced/trace.py`, some ten minutes.

Needs torch, timm and torchvision. A line of `models.txt` is a model as its package names it, and images. With names,
only these are traced, and the others stay as they ship: `python studies/traced/trace.py traced/transformer-xl-base`.
"""

from __future__ import annotations

import hashlib
import sys
import time
import zipfile
from importlib.metadata import version
from pathlib import Path

import msgspec

from foretell.model.graph import Graph
from foretell.model.importers import packages, torch_child, torch_load
from foretell.model.importers.packages import ARCHIVE, INDEX, PackageModel, ShippedIndex, ShippedModel
from foretell.model.resize import ANY
from foretell.trust import trust

HERE = Path(__file__).parent


def wanted() -> dict[str, list[int]]:
    """Models and images, as the list has them."""
    lines = (line.split() for line in (HERE / "models.txt").read_text(encoding="utf-8").splitlines())
    return {name: [int(image) for image in images] for name, *images in lines}


def known() -> ShippedIndex:
    """Every name that these versions of the packages have, without graphs yet."""
    import timm
    import torchvision

    models: dict[str, ShippedModel] = {}
    for name in timm.list_models():
        size = timm.models.get_pretrained_cfg(name)
        models[f"timm/{name}"] = ShippedModel(size.input_size[-1] if size else 224)
    for name in torchvision.models.list_models(module=torchvision.models):
        models[f"torchvision/{name}"] = ShippedModel(224)
    former = timm.models.get_deprecated_models() if hasattr(timm.models, "get_deprecated_models") else {}
    renamed = {f"timm/{old}": f"timm/{new.partition('.')[0]}" for old, new in former.items() if new}
    return ShippedIndex({name: version(name) for name in ("timm", "torchvision", "torch")}, models, renamed)


def graphs_of(name: str, image: int) -> dict[str, Graph]:
    """The graphs of a model, without its name: those that differ in nothing else ship once."""
    package, _, own = name.partition("/")
    if package == packages.OWN:
        place = f"{HERE}/{'sequences' if own.startswith('transformer') else 'networks'}.py:{own.replace('-', '_')}"
        trust(place)
        return {f"{image}": torch_load.load(place, ANY)}
    scores = packages.built(PackageModel(package, own, image, "math"))
    attends = any(node.kind == "softmax" for _, node in scores.nodes())
    return {
        f"{image}": packages.built(PackageModel(package, own, image)) if attends else scores,
        f"{image},math": scores,
    }


def shipped() -> dict[str, bytes]:
    """The graphs that ship."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name != INDEX}


def main(names: list[str]) -> None:
    torch_load.trace_in_forks(torch_child.answered)  # which have torch and timm already
    index, texts = packages.index() if names else known(), wanted()
    graphs = shipped() if names else {}
    for name, images in ((name, texts[name]) for name in names or texts):
        start = time.perf_counter()
        made = {key: graph for image in images for key, graph in graphs_of(name, image).items()}
        contents = {key: msgspec.structs.replace(graph, name="").to_json() for key, graph in made.items()}
        found = {key: hashlib.sha256(content).hexdigest()[:16] for key, content in contents.items()}
        graphs |= {found[key]: content for key, content in contents.items()}
        usual = index.models[name].image if name in index.models else images[0]
        index.models[name] = ShippedModel(usual, found)
        print(f"{name:40} {time.perf_counter() - start:6.2f} s", file=sys.stderr, flush=True)
    with zipfile.ZipFile(ARCHIVE, "w", zipfile.ZIP_LZMA) as archive:
        for member, content in [(INDEX, msgspec.json.encode(index)), *sorted(graphs.items())]:
            archive.writestr(zipfile.ZipInfo(member), content, zipfile.ZIP_LZMA)
    print(f"{len(graphs)} graphs, {ARCHIVE.stat().st_size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
