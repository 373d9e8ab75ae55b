"""What an installed foretell consists of, as CycloneDX in JSON: `python -m foretell.sbom > sbom.json`.

The list is made of what the installed distributions say of themselves; extras that are not installed are not in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import metadata
from typing import Any, Final

ROOT: Final = "foretell"


def bill() -> dict[str, Any]:
    """foretell, and all that it needs here, directly or not."""
    needs: dict[str, list[str]] = {}
    waiting = [ROOT]
    while waiting:
        name = waiting.pop()
        if name not in needs:
            needs[name] = sorted(set(_installed_needs(name)))
            waiting += needs[name]
    reference = {name: f"pkg:pypi/{name}@{metadata.version(name)}" for name in needs}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _component(ROOT, reference[ROOT], "application")},
        "components": [_component(name, reference[name], "library") for name in sorted(needs) if name != ROOT],
        "dependencies": [
            {"ref": reference[name], "dependsOn": [reference[other] for other in needs[name]]} for name in sorted(needs)
        ],
    }


def _installed_needs(name: str) -> Iterator[str]:
    """What a distribution requires, extras too, as far as it is installed."""
    for text in metadata.requires(name) or ():
        found = re.match(r"[\w.-]+", text)
        other = re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""
        if other and next(iter(metadata.distributions(name=other)), None) is not None:
            yield other


def _component(name: str, reference: str, kind: str) -> dict[str, Any]:
    about = metadata.metadata(name)
    told: dict[str, Any] = {"type": kind, "bom-ref": reference, "name": name, "version": about["Version"]}
    told["purl"] = reference
    said = [value for key in ("License-Expression", "License") for value in about.get_all(key) or ()]
    if said and said[0]:
        told["licenses"] = [{"license": {"name": str(said[0]).splitlines()[0]}}]
    return told


if __name__ == "__main__":
    print(json.dumps(bill(), indent=1))
