"""What of the examples and recipes that trainers ship is read: every file of certain folders, at one commit each.

python benchmarks/configurations.py FOLDER            reads all of them again, prints the table by project
python benchmarks/configurations.py FOLDER --write    and writes tests/data/configurations.csv
python benchmarks/configurations.py FOLDER --open     and lists what is not read, without those set aside

FOLDER has a checkout of each project under its name (Megatron-LM, torchtitan, ...), at the commit that RULES says.
Which files belong is a rule, written before they were read: no file is there or missing because of how it is read. A
third, by a hash of its path, was set aside before readers were mended (`held_out`): its share says what to expect of
other files.

  read     plan, batch, sequence and, where such files describe one, the model
  plan     the same, and the model is none of the zoo: a person names theirs (MODEL --from-config FILE)
  refused  by its reason
"""

from __future__ import annotations

import argparse
import ast
import csv
import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from foretell.dialects import Configuration, Launch, Recipe, open_configuration, put_together
from foretell.errors import BadInput

MANIFEST = Path(__file__).parents[1] / "tests" / "data" / "configurations.csv"

WITHOUT_MODEL: Final = ("deepspeed", "accelerate", "lightning")
"""Dialects whose files never describe a model."""

RANKS: Final = (*(2**power for power in range(3, 15)), 4, 2, 1)
"""Tried one after the other where a file does not say how many ranks there are: from a node of eight on."""


class Rule(NamedTuple):
    """The files of a project: those of some folders, by their name; of Python files the functions, by theirs."""

    repository: str
    commit: str
    folders: tuple[str, ...]
    file: str
    function: str = ""

    @property
    def checkout(self) -> str:
        return self.repository.partition("/")[2]


RULES: Final = (
    Rule(
        "pytorch/torchtitan", "b5bcd76c66d0acb1a08b176d9639425bc55e0b2a",
        ("torchtitan/models",), r"config_registry\.py", r"(?!_|.*debug|enable_).*",
    ),
    Rule(
        "NVIDIA/Megatron-LM", "d98e8a64ddf34856e74b24714e3bedb2f5a39553",
        ("examples",), r".*(train|sft|finetune).*\.sh",
    ),
    Rule(
        "NVIDIA-NeMo/Megatron-Bridge", "067f987df03b8355b03192d88d70f1709fedf51a",
        ("src/megatron/bridge/recipes",), r"(?!_).*\.py", r"(?!_).*_pretrain_.*h100.*_config",
    ),
    Rule(
        "NVIDIA/NeMo", "8cfedd7203462cb251a914e700e5605444277561",
        ("nemo/collections/llm/recipes",), r".*\.py", "pretrain_recipe",
    ),
    Rule(
        "deepspeedai/DeepSpeedExamples", "45b4b7156c8794a3452a5a7d03dbd8d797068569",
        ("training",), r"(ds_|deepspeed_|zf_|.*_deepspeed_).*\.json",
    ),
    Rule(
        "huggingface/accelerate", "16cb6eb80dd9aa8b4df1a63ef57863e455d53b83",
        ("examples",), r".*\.(yaml|yml|json)",
    ),
    Rule(
        "huggingface/nanotron", "2411b022a75fb7f7561a1bb4166706da5e1b76de",
        ("examples",), r".*\.yaml",
    ),
)  # fmt: skip


class Example(msgspec.Struct, frozen=True):
    """One example: where it is, and what was read of it."""

    repository: str
    commit: str
    path: str
    function: str
    held_out: bool
    dialect: str = ""
    status: str = "refused"
    ranks: int = 0
    given: str = ""  # what a person had to say beside the file: ranks, batch
    plan: str = ""
    trainer: str = ""
    batch: int = 0
    micro_batch: int = 0
    sequence: int = 0
    model: str = ""
    reason: str = ""

    @property
    def name(self) -> str:
        return f"{self.path}:{self.function}" if self.function else self.path


def held_out(repository: str, path: str, function: str) -> bool:
    """A third of all, by a hash of where they are."""
    return hashlib.sha256(f"{repository}/{path}:{function}".encode()).digest()[0] % 3 == 0


def examples(folder: Path) -> Iterator[tuple[Path, Example]]:
    """Every example of the rules, with the folder of its checkout."""
    for rule in RULES:
        checkout = folder / rule.checkout
        files = [file for one in rule.folders for file in (checkout / one).rglob("*") if file.is_file()]
        if not files:
            raise SystemExit(f"{checkout} has no {rule.folders[0]}: a checkout of {rule.repository} at {rule.commit}")
        for file in sorted(files):
            if not re.fullmatch(rule.file, file.name):
                continue
            path = file.relative_to(checkout).as_posix()
            for function in _functions(file, rule.function):
                aside = held_out(rule.repository, path, function)
                yield checkout, Example(rule.repository, rule.commit, path, function, aside)


def _functions(file: Path, pattern: str) -> list[str]:
    if not pattern:
        return [""]
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [name for name in names if re.fullmatch(pattern, name)]


def as_read(checkout: Path, one: Example) -> Example:
    """An example with what is read of it."""
    try:
        found = open_configuration(str(checkout / one.path) + (f":{one.function}" if one.function else ""))
        recipe, given = _recipe(found)
        plan = str(put_together(recipe))
    except BadInput as problem:
        return msgspec.structs.replace(one, reason=" ".join(problem.what.split())[:200])
    whole = recipe.model or found.dialect.name in WITHOUT_MODEL
    return msgspec.structs.replace(
        one,
        dialect=found.dialect.name,
        status="read" if whole else "plan",
        ranks=recipe.ranks,
        given=given,
        plan=plan,
        trainer=found.dialect.trainer(recipe),
        batch=recipe.batch,
        micro_batch=recipe.micro_batch,
        sequence=recipe.sequence,
        model=recipe.model,
    )


def _recipe(found: Configuration) -> tuple[Recipe, str]:
    """What a file says by itself; else with as few nodes as it can have, and a sample for each rank without a batch."""
    first: BadInput | None = None
    for ranks, batch in [
        (0, 0),
        *((ranks, 0) for ranks in RANKS),
        *((0, ranks) for ranks in RANKS),
        *zip(RANKS, RANKS, strict=True),
    ]:
        try:
            recipe = found.recipe(Launch(ranks, batch))
        except BadInput as problem:
            first = first or problem
            if not problem.fix.startswith(("--on", "--batch")) and "does not divide" not in problem.what:
                raise
            continue
        beside = [f"{ranks} ranks" if ranks else "", f"batch {batch}" if batch else ""]
        return recipe, ", ".join(word for word in beside if word)
    assert first is not None
    raise first


def rows(found: list[Example]) -> list[dict[str, Any]]:
    return [{name: str(value) for name, value in msgspec.structs.asdict(one).items()} for one in found]


def kept() -> list[Example]:
    """The examples of the manifest."""
    with MANIFEST.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    return [msgspec.convert({**line, "held_out": line["held_out"] == "True"}, Example, strict=False) for line in lines]


def share(found: list[Example], *statuses: str) -> str:
    count = sum(one.status in statuses for one in found)
    return f"{count:4} {count / max(len(found), 1):5.0%}"


def table(found: list[Example]) -> str:
    """By project: how many there are, how many are read, and of those set aside."""
    lines = [f"{'project':28} files  with model  or its plan   set aside: files, with model, or its plan"]
    for name in [*dict.fromkeys(one.repository for one in found), "all"]:
        of = [one for one in found if name in ("all", one.repository)]
        aside = [one for one in of if one.held_out]
        lines.append(
            f"{name:28} {len(of):5}  {share(of, 'read')}  {share(of, 'read', 'plan')}"
            f"   {len(aside):16}  {share(aside, 'read')}  {share(aside, 'read', 'plan')}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help="write the manifest")
    parser.add_argument("--open", action="store_true", help="list what is not read, without those set aside")
    asked = parser.parse_args()
    found = [as_read(checkout, one) for checkout, one in examples(asked.folder)]
    if asked.open:
        for one in found:
            if not one.held_out and one.status != "read":
                print(f"{one.status:8} {one.repository}/{one.name}: {one.reason or one.plan}")
    print(table(found))
    if asked.write:
        with MANIFEST.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(
                file, [field.name for field in msgspec.structs.fields(Example)], lineterminator="\n"
            )
            writer.writeheader()
            writer.writerows(rows(found))
        print(f"{MANIFEST} has {len(found)} examples", file=sys.stderr)


if __name__ == "__main__":
    main()
