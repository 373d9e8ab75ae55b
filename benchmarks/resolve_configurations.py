"""What trainers' own code makes of their recipes, beside what is read of them without running anything.

python benchmarks/resolve_configurations.py FOLDER     writes tests/data/configurations_resolved.csv

FOLDER is that of benchmarks/configurations.py. This runs the functions of torchtitan, Megatron-Bridge and NeMo that
make configurations, and the shell scripts of Megatron-LM with a `torchrun` that prints its words: for checkouts that
one trusts. Recipes are the trainer's own code, as are torchtitan's classes of degrees; what is not installed (models,
tokenizers, data) is a stand-in that has what is set on it. A recipe that asks a stand-in for what it lacks is left out.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from configurations import MANIFEST, RULES, Example, kept

RESOLVED = MANIFEST.with_name("configurations_resolved.csv")

FIELDS = (
    *("tensor", "sequence_parallel", "pipeline", "chunks", "context", "experts", "expert_tensor", "micro_batch"),
    *("batch", "sequence", "low_precision", "recompute", "sharded", "overlap", "model"),
)


class StandIn:
    """Something that is not installed: it has what it was given and what is set on it."""

    def __init__(self, *given: Any, **fields: Any) -> None:
        self.__dict__.update(fields)
        self.given = given

    def __class_getitem__(cls, item: Any) -> Any:
        return cls


class Wrapped(StandIn):
    """NeMo-Run's word for what is called later: `made` is its name."""

    def __init__(self, target: Any, *given: Any, **fields: Any) -> None:
        super().__init__(*given, made=getattr(target, "__name__", ""), **fields)


class StandInModule(types.ModuleType):
    """A module that is not installed: names with a capital are classes, others modules or functions."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __call__(self, *given: Any, **fields: Any) -> StandIn:
        return StandIn(*given, **fields)

    def __getitem__(self, name: str) -> StandIn:
        return StandIn(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made: Any = None
        if name[:1].isupper():
            inner = type("Config", (StandIn,), {"of": name})
            made = type(name, (StandIn,), {"Config": inner})
        else:
            made = StandInModule(f"{self.__name__}.{name}")
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for packages, but for those modules that are the trainer's own."""

    def __init__(self, packages: set[str], own: tuple[str, ...]) -> None:
        self.packages, self.own = packages, own

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if any(fnmatchcase(fullname, own) for own in self.own) or fullname.split(".")[0] not in self.packages:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return StandInModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def package(name: str, folder: Path, **names: Any) -> None:
    """A package whose modules are the trainer's files, and whose own names are stand-ins."""
    module = StandInModule(name)
    module.__path__ = [str(folder / name.replace(".", "/"))]
    module.__dict__.update(names)
    sys.modules[name] = module


def has(value: Any, name: str, usual: Any = None) -> Any:
    return getattr(value, name, usual) if value is not None else usual


# --- projects: how a configuration is made, and what it says


def nemo(root: Path, one: Example) -> dict[str, Any]:
    run = types.ModuleType("nemo_run")
    factory = lambda *given, **fields: given[0] if given and callable(given[0]) else lambda function: function  # noqa: E731
    run.__dict__.update(Config=Wrapped, Partial=Wrapped, autoconvert=factory)
    run.__dict__["cli"] = types.SimpleNamespace(factory=factory)
    sys.modules.setdefault("nemo_run", run)
    for name in ("nemo", "nemo.collections", "nemo.collections.llm", "nemo.collections.llm.recipes"):
        if name not in sys.modules:
            package(name, root)
    made = importlib.import_module(one.path.removesuffix(".py").replace("/", ".")).pretrain_recipe()
    plugin = made.trainer.plugins[0] if isinstance(made.trainer.plugins, list) else made.trainer.plugins
    own = has(made.model, "config")
    return _megatron(made.trainer.strategy, own, has(made.trainer.strategy, "ddp"), made.data) | {
        "low_precision": has(plugin, "fp8"),
        "sharded": has(has(made.optim, "config"), "use_distributed_optimizer"),
        "model": has(own, "made", ""),
    }


def bridge(root: Path, one: Example) -> dict[str, Any]:
    class AutoBridge:
        def __init__(self, hub: str, *given: Any, **fields: Any) -> None:
            self.hub = hub

        from_hf_pretrained = from_hf_config = classmethod(lambda cls, hub, *given, **fields: cls(hub))

        def get_model_config(self, *given: Any, **fields: Any) -> StandIn:
            return StandIn(hub=self.hub)

        to_megatron_provider = get_model_config

    source = root / "src"
    names = [path.parent for path in (source / "megatron/bridge/recipes").rglob("*.py")]
    for path in (source / "megatron", source / "megatron/bridge", source / "megatron/bridge/training", *names):
        name = path.relative_to(source).as_posix().replace("/", ".")
        if name not in sys.modules and not name.endswith(".utils"):
            package(name, source, AutoBridge=AutoBridge)
    module = importlib.import_module(one.path.removeprefix("src/").removesuffix(".py").replace("/", "."))
    made = getattr(module, one.function)()
    precision = made.mixed_precision
    name = precision if isinstance(precision, str) else (*has(precision, "given", ()), "")[0]
    low = has(precision, "fp8") or has(precision, "fp4") or any(word in str(name) for word in ("fp8", "fp4"))
    figures = _megatron(made.model, made.model, made.ddp, made.train)
    return figures | {
        "sequence": has(made.model, "seq_length") or made.dataset.seq_length,
        "low_precision": low,
        "sharded": has(made.ddp, "use_distributed_optimizer"),
        "model": has(made.model, "hub", ""),
    }


def _megatron(strategy: Any, model: Any, ddp: Any, data: Any) -> dict[str, Any]:
    return {
        "tensor": has(strategy, "tensor_model_parallel_size", 1),
        "sequence_parallel": has(strategy, "sequence_parallel", False),
        "pipeline": has(strategy, "pipeline_model_parallel_size", 1),
        "chunks": has(strategy, "virtual_pipeline_model_parallel_size") or 1,
        "context": has(strategy, "context_parallel_size", 1),
        "experts": has(strategy, "expert_model_parallel_size", 1) or 1,
        "expert_tensor": has(strategy, "expert_tensor_parallel_size") or 0,
        "micro_batch": data.micro_batch_size,
        "batch": data.global_batch_size,
        "sequence": has(data, "seq_length", 0),
        "recompute": has(model, "recompute_granularity"),
        "overlap": has(ddp, "overlap_grad_reduce", False),
    }


def torchtitan(root: Path, one: Example) -> dict[str, Any]:
    folders = [path.parent for path in (root / "torchtitan/models").glob("*/config_registry.py")]
    for path in (root / "torchtitan", root / "torchtitan/models", root / "torchtitan/config", *folders):
        name = path.relative_to(root).as_posix().replace("/", ".")
        if name not in sys.modules:
            package(name, root)
            sys.modules[name].__dict__["model_registry"] = lambda flavor, _name=path.name, **fields: StandIn(
                name=_name, flavor=flavor, **fields
            )
    own = importlib.import_module("torchtitan.config.configs")
    sys.modules["torchtitan.config"].__dict__.update(vars(own))

    def config(**fields: Any) -> StandIn:
        usual = {"training": own.TrainingConfig(), "parallelism": own.ParallelismConfig()}
        return StandIn(**{**usual, "compile": own.CompileConfig(), **fields})

    trainer = StandInModule("torchtitan.trainer")
    trainer.__dict__["Trainer"] = types.SimpleNamespace(Config=config)
    sys.modules["torchtitan.trainer"] = trainer
    made = getattr(importlib.import_module(one.path.removesuffix(".py").replace("/", ".")), one.function)()
    training, degrees = made.training, made.parallelism
    return {
        "tensor": degrees.tensor_parallel_degree,
        "sequence_parallel": degrees.enable_sequence_parallel,
        "pipeline": degrees.pipeline_parallel_degree,
        "chunks": 1,
        "context": degrees.context_parallel_degree,
        "experts": degrees.expert_parallel_degree,
        "expert_tensor": 1,
        "micro_batch": training.num_tokens_per_microbatch_per_dp_rank // training.max_context_length,
        "batch": max(0, training.num_tokens_per_train_step // training.max_context_length),
        "sequence": training.max_context_length,
        "low_precision": has(made.model_spec, "converters"),
        "recompute": {"FullAC": "full"}.get(has(has(made, "activation_checkpoint"), "of", "")),
        "sharded": degrees.data_parallel_shard_degree != 1,
        "overlap": True,
        "model": f"{made.model_spec.name} {made.model_spec.flavor}",
    }


def megatron_lm(root: Path, one: Example) -> dict[str, Any]:
    """Bash runs the script; `torchrun` prints its words, and nothing else of Python is found."""
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder) / "words"
        command = Path(folder) / "torchrun"
        command.write_text(f'#!/bin/bash\nprintf "%s\\n" "$@" > {said}\n')
        command.chmod(0o755)
        variables = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": folder}
        arguments = ["bash", str(root / one.path), *(f"{folder}/{place}" for place in range(6))]
        subprocess.run(arguments, cwd=root, env=variables, capture_output=True, timeout=20, check=False)
        words = said.read_text().splitlines()
    found: dict[str, Any] = {}
    for word, after in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            found[name] = value if equals else True if after.startswith("--") else after
    number = lambda name, usual=1: int(found.get(name, usual))  # noqa: E731
    return {
        "tensor": number("tensor-model-parallel-size"),
        "sequence_parallel": found.get("sequence-parallel", False),
        "pipeline": number("pipeline-model-parallel-size"),
        "chunks": 1,
        "context": number("context-parallel-size"),
        "experts": number("expert-model-parallel-size"),
        "expert_tensor": number("expert-tensor-parallel-size", 0),
        "micro_batch": number("micro-batch-size"),
        "batch": number("global-batch-size"),
        "sequence": number("seq-length", 0),
        "low_precision": found.get("fp8-format"),
        "recompute": found.get("recompute-granularity"),
        "sharded": found.get("use-distributed-optimizer", False),
        "overlap": found.get("overlap-grad-reduce", False),
        "model": f"{found.get('num-layers')} x {found.get('hidden-size')}",
    }


PROJECTS: dict[str, tuple[Callable[[Path, Example], dict[str, Any]], set[str], tuple[str, ...]]] = {
    "torchtitan": (torchtitan, {"torchtitan", "torchao", "grain"}, ("*.config_registry", "*.configs")),
    "Megatron-LM": (megatron_lm, set(), ()),
    "Megatron-Bridge": (
        bridge,
        {"megatron", "transformer_engine", "transformers", "omegaconf", "datasets", "modelopt", "diffusers"},
        ("megatron.bridge.recipes*",),
    ),
    "NeMo": (nemo, {"nemo", "lightning", "megatron", "transformer_engine"}, ("nemo.collections.llm.recipes*",)),
}


def project(folder: Path, name: str) -> None:
    """Print what one project's own code makes of each example that is read, a line of JSON each."""
    resolve, packages, own = PROJECTS[name]
    sys.meta_path.insert(0, Finder(packages, own))
    sys.path.insert(0, str(folder / name))
    for one in kept():
        if one.repository.endswith(f"/{name}") and one.status != "refused":
            try:
                figures = resolve(folder / name, one)
            except (AttributeError, TypeError, ValueError, OSError, NotImplementedError, ImportError) as problem:
                print(f"{one.name}: {type(problem).__name__}: {problem}", file=sys.stderr)
                continue
            print(
                json.dumps([one.repository, one.path, one.function, *(figures[word] for word in FIELDS)], default=str)
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--project", choices=PROJECTS)
    asked = parser.parse_args()
    if asked.project:
        project(asked.folder, asked.project)
        return
    lines = []
    for name in (rule.checkout for rule in RULES if rule.checkout in PROJECTS):
        command = [sys.executable, __file__, str(asked.folder), "--project", name]
        said = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=dict(os.environ)).stdout
        lines += [json.loads(line) for line in said.decode().splitlines() if line.startswith('["')]
        print(f"{name}: {sum(line[0].endswith(f'/{name}') for line in lines)}")
    with RESOLVED.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["repository", "path", "function", *FIELDS])
        writer.writerows(lines)


if __name__ == "__main__":
    main()
