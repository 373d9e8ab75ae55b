"""Files name models, and nothing that a file names is run: by no verb, of no form, unless the person names it too."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import foretell as package
from foretell import trust
from foretell.bench.row import BenchRow
from foretell.bench.study import About, begin, keep
from foretell.cli.kept import digest
from foretell.errors import BadInput
from foretell.files import LARGEST
from foretell.model import source
from foretell.records import store
from foretell.records.record import record
from foretell.runtime.assignment import Assignment, Report
from foretell.runtime.measure import measurement
from foretell.runtime.recording import recorded
from traced_here import traced_here

__all__ = ["traced_here"]

EVIL = """
import pathlib
import torch

pathlib.Path(r"{marker}").write_text("it ran")

def factory(batch=4): return torch.nn.Linear(8, 8), torch.zeros(batch, 8)
def loss(outputs, target): return outputs.mean()
def data(batch): yield torch.zeros(batch, 1, 29, 29), torch.zeros(batch, dtype=torch.int64)
"""

TEXTS = ("evil.py:factory", "evil_pkg.module:factory")
TINY = ("gpt:layers=2,hidden=64,heads=4,vocab=256,seq=32", "--on", "2xh100", "--plan", "dp2", "--batch", "8")
JOB = ("--on", "2xh100", "--plan", "dp2", "--batch", "8")


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that such code writes; the folder that it lies in is the current one."""
    made = tmp_path / "it-ran"
    (tmp_path / "evil_pkg").mkdir()
    (tmp_path / "evil_pkg" / "__init__.py").touch()
    for file in ("evil.py", "evil_pkg/module.py"):
        (tmp_path / file).write_text(EVIL.format(marker=made))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(trust, "_written", set())  # and nobody has written anything
    yield made
    for name in [name for name in sys.modules if name.startswith("evil")]:
        del sys.modules[name]


# files, each of which names a model


def a_measurement(model: str) -> str:
    told = {"model": model, "plan": "dp2", "cluster": "2xh100", "batch": 8, "step_seconds": 0.3}
    Path("measured.json").write_text(json.dumps(told))
    return "measured.json"


def a_run(model: str, name: str = "run.json", **asked: Any) -> str:
    """The record of a run, as one would write it who wants a reader to run something."""
    assignment = Assignment(model="lenet", plan=asked.pop("plan", "dp2"), batch=8, steps=1, dropped=0)
    report = Report(rank=0, steps=[1.0], losses=[1.0], allocated=1000, resting=10, phases={"forward": [1.0]})
    reports = (report, msgspec.structs.replace(report, rank=1))
    made = msgspec.to_builtins(measurement(assignment, "dp2", 8, reports)) | {"model": model}
    content = {
        "assignment": msgspec.to_builtins(assignment) | {"model": model} | asked,
        "measurement": made,
        "place": 0,
    }
    content |= {"reports": [msgspec.to_builtins(one) for one in reports]}
    store.save(Path(name), record("run", content, model=model, plan="dp2", cluster="8xcpu"))
    return name


def a_kept_prediction(model: str, graph: str = "") -> str:
    question = {"model": model, "batch": 8, "plan": "dp2", "cluster": "2xh100", "measured": "none"}
    question |= {"graph": graph} if graph else {}
    answer = {"step_seconds": 0.1, "memory_bytes": 1e9, "fits": True}
    content = {"question": question, "answer": answer, "hash": digest(question, answer)}
    store.save(Path("kept.json"), record("prediction", content, model=model, plan="dp2", cluster="2xh100"))
    return "kept.json"


REFUSED: dict[str, Callable[[str], tuple[str, ...]]] = {
    "predict --anchor measurement": lambda model: ("predict", *TINY, "--anchor", a_measurement(model)),
    "predict --anchor run": lambda model: ("predict", *TINY, "--anchor", a_run(model)),
    "compare": lambda model: ("compare", a_run(model)),
    "check": lambda model: ("check", a_kept_prediction(model)),
    "simulate --record": lambda model: ("simulate", "--record", a_run(model)),
}
"""What needs the model, and says how it would be had."""


@pytest.mark.parametrize("model", TEXTS)
@pytest.mark.parametrize("form", REFUSED)
def test_code_that_a_file_names_is_not_run(foretell: Any, marker: Path, form: str, model: str) -> None:
    ran = foretell(*REFUSED[form](model))
    assert ran.code == (1 if form == "check" else 2)
    assert f"{model} is code that a file names" in " ".join((ran.out + ran.err).split())
    assert f"--trust {model}" in ran.out + ran.err
    assert not marker.exists()


@pytest.mark.parametrize("model", TEXTS)
def test_the_way_out_works(foretell: Any, marker: Path, model: str) -> None:
    for form in ("predict --anchor measurement", "compare", "check"):
        ran = foretell(*REFUSED[form](model), "--trust", model)
        assert "a file names" not in ran.out + ran.err
        assert marker.exists(), form
        marker.unlink()
        sys.modules.pop("evil_pkg.module", None)
        foretell(*REFUSED[form](model))
        assert not marker.exists(), "what one command line names is not for the next one"


@pytest.mark.parametrize("what", ["loss", "task"])
def test_losses_and_data_that_a_record_names_are_not_run_either(foretell: Any, marker: Path, what: str) -> None:
    code = f"evil.py:{'loss' if what == 'loss' else 'data'}"
    file = a_run("lenet:image=29", plan="ps2:sync", **{what: code})
    ran = foretell("simulate", "--record", file)
    assert ran.code == 2 and f"--trust {code}" in ran.err and not marker.exists()
    foretell("simulate", "--record", file, "--trust", code)
    assert marker.exists()


SCRIPT = """
torchrun --nproc-per-node 2 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32 \\
  --max-position-embeddings 32 --vocab-size 256 --micro-batch-size 1 --global-batch-size 8 --load {model} \\
  --tokenizer-model {model}
"""


def _a_script(model: str) -> str:
    Path("train.sh").write_text(SCRIPT.format(model=model))
    return "train.sh"


def _a_configuration(model: str) -> str:
    """Of the Hugging Face hub, which may name code of its own."""
    shape = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}
    remote = {"auto_map": {"AutoModelForCausalLM": model.replace(":", ".")}, "trust_remote_code": True}
    Path("config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 256, **shape, **remote}))
    return "config.json"


def _published(model: str) -> str:
    with (Path(__file__).parents[2] / "studies" / "sanity" / "sanity.csv").open(newline="") as file:
        row = next(csv.DictReader(file)) | {"model": model}
    with Path("sanity.csv").open("w", newline="") as file:
        made = csv.DictWriter(file, list(row))
        made.writeheader()
        made.writerow(row)
    return "sanity.csv"


def _a_study(model: str) -> str:
    begin(Path("study"), About(command="foretell bench", created="", foretell="", machine="here", cores=2))
    alike = {"pair": "image", "ranks": 2, "seed": 0, "batch_rule": "survey", "batch": 8, "epoch_samples": 80}
    run = {"step_seconds": 0.1, "phases": {"forward": 0.1}, "memory_by_rank": (10**8, 10**8)}
    row = BenchRow(engine="ddp", fingerprint="a", plan="dp2", device="cpu", task="digits", model=model, **alike, **run)
    keep(Path("study"), row)
    return "study"


READERS: dict[str, Callable[[str], tuple[str, ...]]] = {
    "results": lambda model: (a_run(model, "kept-here/run.json"), "results", "--records", "kept-here")[1:],
    "results --sql": lambda model: (
        a_run(model, "kept-here/run.json"),
        *("results", "--records", "kept-here", "--sql", "select model from records"),
    )[1:],
    "results show": lambda model: ("results", "show", a_run(model)),
    "goodput": lambda model: ("goodput", a_run(model)),
    "systems --record": lambda model: ("systems", "--record", a_run(model)),
    "predict --from-config": lambda model: ("predict", "--from-config", _a_script(model), "--on", "2xh100"),
    "plan --from-config": lambda model: ("plan", "--from-config", _a_script(model), "--on", "2xh100", "--only", "dp"),
    "analyze config.json": lambda model: ("analyze", _a_configuration(model)),
    "validate": lambda model: ("validate", _published(model)),
    "bench --show": lambda model: ("bench", "--show", _a_study(model)),
    "simulate --record --record": lambda model: (
        *("simulate", "--record", a_run(model)),
        *("--record", a_run(model, "other.json")),
    ),
}
"""What reads such a file, and needs no code for its answer, or has none to give."""


@pytest.mark.parametrize("model", TEXTS)
@pytest.mark.parametrize("form", READERS)
def test_whatever_reads_a_file_runs_nothing_of_it(foretell: Any, marker: Path, form: str, model: str) -> None:
    ran = foretell(*READERS[form](model))
    assert ran.code in (0, 1, 2) and not marker.exists()


# graphs that are kept in the place of code


def test_a_prediction_of_code_is_checked_without_the_code(foretell: Any, marker: Path) -> None:
    assert foretell("predict", "evil.py:factory", *JOB, "--keep", "kept.json").code == 0
    marker.unlink()
    ran = foretell("check", "kept.json")
    assert ran.code == 0 and "holds" in ran.out and not marker.exists()
    Path("evil.py").unlink()
    assert foretell("check", "kept.json").code == 0
    assert "no such file" in foretell("check", "kept.json", "--trust", "evil.py:factory").out


def test_a_run_of_code_is_compared_and_an_anchor_without_the_code(foretell: Any, marker: Path) -> None:
    trust.trust(f"{marker.parent}/evil.py:factory")
    asked = Assignment(model=f"{marker.parent}/evil.py:factory", plan="dp2", batch=8, steps=1, dropped=0)
    report = Report(rank=0, steps=[1.0], losses=[1.0], allocated=1000, resting=10, phases={"forward": [1.0]})
    file = recorded(asked, (report, msgspec.structs.replace(report, rank=1)), str(marker.parent), "8xcpu").record
    assert store.read(Path(file)).fingerprint == asked.setting.graph.fingerprint
    assert len(store.read(Path(file)).content["assignment"]["graph"]) < 1000
    marker.unlink()
    trust._written.clear()
    for words in (("compare", file, "--calibration", "none"), ("predict", *TINY, "--anchor", file)):
        ran = foretell(*words)
        assert ran.code == 0, ran.err
        assert not marker.exists()
    changed = Path(file).read_text().replace(asked.setting.graph.fingerprint, "0" * 16)
    Path("changed.json").write_text(changed)
    for words in (("compare", "changed.json"), ("predict", *TINY, "--anchor", "changed.json")):
        ran = foretell(*words)
        assert ran.code == 2 and "and the record is of 0000000000000000" in " ".join(ran.err.split())


def test_graphs_that_cannot_be_read_are_refused(marker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = source.packed("evil.py:factory", source.load("mlp"))
    assert source.kept("evil.py:factory", whole, "here") == source.load("mlp")
    for text in ("§", whole[:-8], "AAAA", "eJw="):
        with pytest.raises(BadInput, match="cannot be read"):
            source.kept("evil.py:factory", text, "here")
    monkeypatch.setattr(source, "LARGEST", 100)  # what unpacks to more than memory
    with pytest.raises(BadInput, match="cannot be read"):
        source.kept("evil.py:factory", whole, "here")
    assert LARGEST > 100 and source.packed("resnet50", source.load("mlp")) == ""
    assert source.kept("resnet50", "whatever it says", "here") is None


# programs, and words


def test_a_program_runs_what_it_names_itself(marker: Path) -> None:
    with pytest.raises(BadInput, match="a file names"):
        package.predict("mlp", "2xh100", "dp2", 8, anchor=[a_measurement("evil.py:factory")])
    assert not marker.exists()
    assert package.load("evil.py:factory", 4).batch == 4 and marker.exists()
    assert package.predict("mlp", "2xh100", "dp2", 8, anchor=[a_measurement("evil.py:factory")]).step_seconds > 0


@pytest.mark.parametrize(
    "words", [("m.py:f",), ("--model", "gpt2,m.py:f"), ("--trust=m.py:f",), ("--model=a.py:b,m.py:f",), ("x m.py:f",)]
)
def test_what_counts_as_typed(words: tuple[str, ...]) -> None:
    with trust.typed(words):
        assert trust.trusted("m.py:f") and not trust.trusted("m.py:g") and not trust.trusted("n/m.py:f")
    assert not trust.trusted("m.py:f")


def test_a_path_with_blanks_is_typed_too() -> None:
    with trust.typed(("analyze", "my models/a,b.py:f", "--trust=c d.py:g")):
        assert trust.trusted("my models/a,b.py:f") and trust.trusted("c d.py:g")


def test_code_comes_in_at_one_place() -> None:
    """What imports by a name that it is given, and what starts Python: a new place is a new hole."""
    root = Path(package.__file__).parent
    sources = {str(file.relative_to(root)): file.read_text() for file in root.rglob("*.py")}

    def having(pattern: str) -> set[str]:
        return {name for name, text in sources.items() if re.search(pattern, text)}

    stand_in = "model/importers/torch_packages.py"  # for a torchvision that does not load: an empty module
    assert having(r"\bexec_module\(") == {"compiling.py", "model/importers/torch_factory.py", stand_in}
    assert having(r"\bsys\.executable\b") == {"bench/environments.py", "processes.py", "runtime/launch.py"}
    assert having(r"\[sys\.executable") == set()
    assert having(r"\bpickle\b|\byaml\.(unsafe_)?load\(|(?<!\.)\bexec\(|(?<![.\w])eval\(") == set()
