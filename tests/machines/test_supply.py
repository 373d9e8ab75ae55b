"""Where packages come from: pinned, hashed, and listed."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata

from foretell.sbom import bill
from machines.distribution import ROOT, declared

LOCKED = re.compile(r"([\w.-]+)==([\w.+!-]+) --hash=sha256:[0-9a-f]{64}")


def _pinned(text: str) -> dict[str, str]:
    found = (line.split(" ")[0].partition("==") for line in text.splitlines() if line and not line.startswith("#"))
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, _, version in found}


def test_what_is_pinned_has_its_hash() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    lines = [line for line in lock.splitlines() if not line.startswith("#")]
    assert all(LOCKED.fullmatch(line) for line in lines)
    hashed, pinned = _pinned(lock), _pinned((ROOT / "constraints.txt").read_text())
    assert hashed == {name: pinned[name] for name in hashed}
    assert set(declared()) <= set(hashed) and "torch" not in hashed


def test_the_build_backend_is_pinned_as_what_the_tests_build_with() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["build-system"]["requires"] == [f"hatchling=={metadata.version('hatchling')}"]


def test_the_bill_of_materials_has_what_is_installed() -> None:
    made = bill()
    components = {one["name"]: one["version"] for one in made["components"]}
    assert {name: components[name] for name in declared()} == {name: metadata.version(name) for name in declared()}
    references = {one["bom-ref"] for one in [made["metadata"]["component"], *made["components"]]}
    told = {one["ref"]: one["dependsOn"] for one in made["dependencies"]}
    assert set(told) == references and {other for needs in told.values() for other in needs} <= references


def test_the_workflow_runs_what_the_makefile_has() -> None:
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    makefile = (ROOT / "Makefile").read_text()
    versions = re.search(r"versions: \[(.*)\]", workflow)
    assert versions is not None
    for target in ("test", *versions[1].split(", ")):
        assert re.search(rf"^[\w ]*\b{target}\b[\w ]*:", makefile, re.MULTILINE)
    pythons = re.findall(r'"(3\.\d+)"', workflow.partition("matrix:")[2].partition("versions:")[0])
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    assert pythons == [one.rpartition(" ")[2] for one in classifiers if "Python :: 3." in one]
