"""Configurations of checkpoints that people train today: every one is answered, with the published count.

The files have the figures that the authors' `config.json` on the Hugging Face hub have. Counts are those of their
weight files, and where model cards round, agree with what they print. Of those that the zoo does not know,
transformers' own class is built; it is traced with fewer layers, since all layers of all of them take minutes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import foretell
from foretell import trust
from foretell.errors import BadInput, ForetellError, MissingExtra
from foretell.model import source, zoo
from foretell.model.graph import Graph
from foretell.model.importers import hf_classes, hf_config, torch_load
from foretell.model.resize import with_samples
from foretell.model.totals import totals
from foretell.serve import question, uploads
from traced_here import traced_here

__all__ = ["traced_here"]

DATA = Path(__file__).parents[1] / "data" / "checkpoints"

# Those of whole files where they hold the same tensors: not predictors of further tokens (GLM-4.5, MiniMax-M2,
# Qwen3-Next), not towers for images (Gemma 3, Llama 4), not scales of 8 bits (Kimi K2).
PUBLISHED = {
    "DeepSeek-R1-Distill-Llama-70B": 70_553_706_496,
    "DeepSeek-R1-Distill-Qwen-32B": 32_763_876_352,
    "ERNIE-4.5-0.3B-PT": 360_748_032,
    "ERNIE-4.5-21B-A3B-PT": 21_825_437_888,
    "EXAONE-4.0-1.2B": 1_279_391_488,
    "GLM-4-9B-0414": 9_400_094_720,
    "GLM-4.5": 352_797_814_784,
    "GLM-4.5-Air": 106_852_245_504,
    "Kimi-K2-Instruct": 1_026_408_209_408,
    "Llama-4-Scout-17B-16E": 107_769_861_120,
    "MiniMax-M2": 228_689_748_992,
    "MiniMax-Text-01": 456_089_655_296,
    "Mistral-7B-v0.3": 7_248_023_552,
    "Mistral-Nemo-Base-2407": 12_247_782_400,
    "Mistral-Small-24B-Base-2501": 23_572_403_200,
    "ModernBERT-base": 149_655_232,
    "Nemotron-H-8B-Base-8K": 8_100_852_736,
    "OLMo-2-0425-1B": 1_484_916_736,
    "OLMo-2-1124-7B": 7_298_617_344,
    "Olmo-3-1025-7B": 7_298_011_136,
    "Phi-4-mini-instruct": 3_836_021_760,
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen2.5-VL-7B-Instruct": 8_292_166_656,
    "Qwen3-0.6B": 596_049_920,
    "Qwen3-Next-80B-A3B-Instruct": 79_674_391_296,
    "SmolLM2-135M": 134_515_008,
    "SmolLM3-3B": 3_075_098_624,
    "TinyLlama-1.1B": 1_100_048_384,
    "c4ai-command-r7b-12-2024": 8_028_033_024,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-3-1b-it": 999_885_952,
    "gemma-3-4b-it": 3_880_263_168,
    "gpt-oss-120b": 116_829_156_672,
    "gpt-oss-20b": 20_914_757_184,
    "granite-3.3-8b-instruct": 8_170_864_640,
    "mamba-1.4b-hf": 1_372_178_432,
    "mamba2-2.7b-hf": 2_702_599_680,
    "phi-2": 2_779_683_840,
    "phi-4": 14_659_507_200,
}

TRACED = tuple(name for name in PUBLISHED if not hf_config.known(DATA / name / "config.json"))


def test_every_file_has_its_count() -> None:
    assert {path.name for path in DATA.iterdir()} == set(PUBLISHED)
    assert len(PUBLISHED) == 40


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters(name: str, count: int) -> None:
    file = DATA / name / "config.json"
    if hf_config.known(file):
        assert totals(source.load(str(file.parent))).parameters == count
        return
    import torch

    from foretell.model.importers import torch_transformers

    factory, _ = torch_transformers.factory(f"{hf_classes.PREFIX}bf16:{file}")
    with torch.device("meta"):
        module = factory(1, 8)[0]
    assert sum(one.numel() for one in module.parameters()) == count


def shortened(name: str, folder: Path, **more: Any) -> Path:
    """The configuration with four layers, which are of each kind that it has."""
    found = json.loads((DATA / name / "config.json").read_bytes()) | more
    for part in (found, found.get("text_config", {})):
        part["num_hidden_layers"] = 4
        for key in ("layer_types", "no_rope_layers"):
            if key in part:
                part[key] = part[key][-4:]
    if "hybrid_override_pattern" in found:
        found["hybrid_override_pattern"] = "M-*-"
    path = folder / name / "config.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found))
    return path


def figures(graph: Graph) -> dict[str, Any]:
    """Totals, and what each operator does."""
    nodes = [(node.kind, node.path, sorted(node.sizes().values())) for _, node in graph.nodes()]
    return msgspec.to_builtins(totals(graph)) | {"nodes": nodes}


@pytest.mark.parametrize("name", TRACED)
def test_its_samples_are_followed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that is kept for any number of samples is, for five, what a trace of five samples is."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = shortened(name, tmp_path)
    graph = hf_classes.load(file, 5, 64, "bf16")
    exact = torch_load.traced(f"{hf_classes.PREFIX}bf16:{file}", 5, 64)
    assert graph.batch == 5
    assert figures(graph)["nodes"] == figures(exact)["nodes"]
    assert {key: value for key, value in figures(graph).items() if key != "nodes"} == {
        key: value for key, value in figures(exact).items() if key != "nodes"
    }


def test_is_traced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = shortened("SmolLM3-3B", tmp_path)
    first = source.load(str(file.parent), 2, 32, "bf16")
    hf_classes._graph.cache_clear()  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(torch_load, "_asked", None)  # whoever asks again fails
    assert source.load(str(file.parent), 2, 32, "bf16") == first
    assert source.load(str(file), 4, 32, "bf16") == with_samples(first, 4)


def test_the_process_is_as_it_was(tmp_path: Path) -> None:
    """What a trace needs of transformers holds while the model is built and run, and no longer."""
    import torch
    from huggingface_hub import constants
    from transformers import masking_utils

    from foretell.model.importers import torch_transformers

    small = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 4}
    file = shortened("SmolLM3-3B", tmp_path, **small, vocab_size=128, pad_token_id=0, bos_token_id=0, eos_token_id=0)

    def state() -> tuple[Any, ...]:
        return masking_utils.find_packed_sequence_indices, constants.HF_HUB_OFFLINE, os.environ.get("HF_HUB_OFFLINE")

    before = state()
    during: list[tuple[Any, ...]] = []

    def note(module: torch.nn.Module, arguments: Any) -> None:
        during.append(state())

    factory, _ = torch_transformers.factory(f"{hf_classes.PREFIX}fp32:{file}")
    module, inputs, loss = factory(2, 8)
    assert state() == before
    module.model.layers[0].register_forward_pre_hook(note)
    assert torch.isfinite(loss(module(**inputs)))
    assert state() == before
    assert during[0][0] is not before[0]
    assert during[0][1] is True
    with pytest.raises(IndexError):  # a token that is not in the vocabulary
        module(input_ids=torch.full((1, 8), 128))
    assert state() == before


def test_a_folder_may_have_the_name_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code in a folder called transformers is a person's own, and no type with a path."""
    from foretell.model.importers import torch_factory

    (tmp_path / "transformers").mkdir()
    (tmp_path / "transformers" / "own.py").write_text("def build():\n    return 7\n")
    monkeypatch.chdir(tmp_path)
    with trust.typed(["transformers/own.py:build"]):
        found, _ = torch_factory.find("transformers/own.py:build")
    assert found() == 7


def test_who_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The zoo's family where it has one; transformers' class, with its casts, for those who say so."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = shortened("SmolLM2-135M", tmp_path)
    zoo, own = (source.load(f"{file.parent}{reader}", 2, 64, "bf16") for reader in (":as=zoo", ":as=hf"))
    assert source.load(str(file.parent), 2, 64, "bf16") == zoo
    assert totals(own).parameters == totals(zoo).parameters
    kinds = [[node.kind for _, node in graph.nodes()] for graph in (own, zoo)]
    assert kinds[0].count("matmul") == kinds[1].count("matmul")
    assert len(kinds[0]) > len(kinds[1])  # norms are written out, and go to fp32 and back


def test_what_transformers_cannot_run_is_told_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of transformers' own code, which nobody is meant to change."""
    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path / "cache"))
    said = json.loads((DATA / "Qwen3-0.6B" / "config.json").read_bytes())
    file = tmp_path / "config.json"
    for changed, told in ({"num_key_value_heads": 7}, "heads"), ({"hidden_size": "1024"}, "expected int, got str"):
        file.write_text(json.dumps({**said, **changed}))
        with pytest.raises(ForetellError, match=told) as caught:
            source.load(f"{file}:as=hf", 1, 64, "bf16")
        assert caught.value.where.startswith(str(file))
        assert "site-packages" not in caught.value.where
        assert "beside the weights" in caught.value.fix


def test_without_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = shortened("phi-2", tmp_path)
    found = importlib.util.find_spec

    def none_of_transformers(name: str) -> Any:
        return None if name == "transformers" else found(name)

    monkeypatch.setattr(importlib.util, "find_spec", none_of_transformers)
    with pytest.raises(MissingExtra) as caught:
        source.load(str(file), 1, 48)
    assert caught.value.fix == hf_classes.COMMAND
    assert "phi" in caught.value.what


def test_a_file_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What names code is taken out: of a type that is its author's own, the class it is like is built, or none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    marker = tmp_path / "it-ran"
    evil = {"auto_map": {"AutoModelForCausalLM": "evil.Evil"}, "_attn_implementation": "who/kernel"}
    file = shortened("phi-2", tmp_path, **evil)
    (file.parent / "evil.py").write_text(f"open({str(marker)!r}, 'w')")
    source.load(str(file), 1, 32)
    unheard = shortened("phi-2", tmp_path, **evil, model_type="evil", architectures=["Evil"])
    with pytest.raises(BadInput, match="evil"):
        source.load(str(unheard), 1, 32)
    assert not marker.exists()
    assert "evil" not in sys.modules


def test_a_page_traces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration that is handed in to a server is read by the zoo, or refused."""
    monkeypatch.setenv(uploads.FOLDER, str(tmp_path))
    monkeypatch.setattr(torch_load, "_asked", None)
    name = uploads.keep((DATA / "phi-2" / "config.json").read_bytes(), tmp_path)
    with pytest.raises(BadInput, match="phi"):
        question.graph_of(name, 64, "bf16")


@pytest.mark.parametrize(("name", "left_out"), [("Mistral-7B-v0.3", 7), ("gpt-oss-20b", 4), ("GLM-4.5-Air", 6)])
def test_layers_that_are_alike_need_not_all_be_traced(name: str, left_out: int, tmp_path: Path) -> None:
    """Ten layers written from some of them are the ten layers traced: each of them, in pairs, behind a dense one."""
    from foretell.model.importers import torch_factory, torch_repeats, torch_trace

    found = json.loads((DATA / name / "config.json").read_bytes()) | {"num_hidden_layers": 10}
    found |= {"layer_types": found["layer_types"][:10]} if "layer_types" in found else {}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(found))
    spec = f"{hf_classes.PREFIX}bf16:{file}"
    built, mode = torch_factory.build(*torch_factory.find(spec), 3, 16, spec)
    with torch_repeats.shortened(built.module) as some:
        assert sum(one.count for one in some) == left_out
        few = torch_trace.trace_in(mode, built.module, built.inputs, built.loss, name, left_out=some)
    whole: Any = built.module
    assert len(whole.model.layers) == 10
    assert few == torch_trace.trace_in(mode, built.module, built.inputs, built.loss, name)


def test_layers_that_share_weights_are_all_traced() -> None:
    import torch

    from foretell.model.importers import torch_repeats

    one, other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    for layers, left_out in (([one] * 8, 0), ([torch.nn.Linear(4, 4) for _ in range(8)], 5), ([one, other] * 4, 0)):
        module = torch.nn.Module()
        module.layers = listed = torch.nn.ModuleList(layers)
        with torch_repeats.shortened(module) as some:
            assert sum(part.count for part in some) == left_out
            assert len(listed) == 8 - left_out
        assert len(listed) == 8


@pytest.mark.parametrize(
    ("name", "kind"), [("mamba-1.4b-hf", "selective_scan"), ("Qwen3-Next-80B-A3B-Instruct", "delta_rule")]
)
def test_scans_are_one_operator_each(name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the sequence is: the loops of transformers' own fallback are not traced."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = shortened(name, tmp_path)
    short, long = (hf_classes.load(file, 1, seq, "bf16") for seq in (64, 256))
    counts = [sum(block.times for block, node in graph.nodes() if node.kind == kind) for graph in (short, long)]
    assert counts == [4, 4] if kind == "selective_scan" else [3, 3]
    assert sum(block.times for block, _ in long.nodes()) == sum(block.times for block, _ in short.nodes())
    assert totals(long).parameters == totals(short).parameters


@pytest.mark.parametrize(
    ("name", "spec", "kind"),
    [
        ("mamba-1.4b-hf", "jamba:layers=2,hidden=2048,seq=256,dtype=bf16", "selective_scan"),
        ("Qwen3-Next-80B-A3B-Instruct", "qwen3_next:layers=2,seq=256,dtype=bf16", "delta_rule"),
    ],
)
def test_a_traced_scan_is_that_of_the_zoo(
    name: str, spec: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many operations for as many numbers. A gate that the kernel has inside keeps two outputs more; what is left
    of steps is kept by operators before the rule."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = shortened(name, tmp_path)
    graphs = hf_classes.load(file, 2, 256, "bf16"), zoo.load(spec, 2)
    both = [next((block, node) for block, node in graph.nodes() if node.kind == kind) for graph in graphs]
    assert both[0][1].sizes() == both[1][1].sizes()
    counts: list[list[Any]] = []
    kept: list[set[str]] = []
    for block, node in both:
        names = {one.tensor: one.name for one in node.inputs}
        kept.append({names.get(at) or block.tensors[at].name for at in node.keeps})
        widths = dict.fromkeys((*names.values(), "y"), 2)
        costs = [node.operator.part(part, node.sizes(), widths) for part in ("forward", "input_gradient")]
        counts.append([(one.matrix, one.vector) for one in costs])
    assert counts[0] == counts[1]
    more = {"selective_scan": ({"z", "ungated"}, set()), "delta_rule": (set(), {"dt"})}
    assert (kept[0] - kept[1], kept[1] - kept[0]) == more[kind]
    assert foretell.predict(f"{file.parent}:as=hf", "8xh100", "dp8:zero3 +bf16", 8, seq=256).step_seconds > 0  # priced


def test_a_configuration_that_the_zoo_reads_says_so() -> None:
    folder = str(DATA / "gpt-oss-20b")
    assert "--as hf" in source.other_reading(folder)
    for spec in (f"{folder}:as=zoo", f"{folder}:as=hf", "llama3-8b", str(DATA / "SmolLM3-3B"), "nothing/here"):
        assert not source.other_reading(spec)
