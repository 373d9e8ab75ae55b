"""Models that are named: the same graph from the name and from the published `config.json`.

That the configuration is the class of transformers is in `test_hugging_face_classes.py`, kind by kind with fewer
layers; this table says of each model which kind it is, or why it has no class or no configuration.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_hugging_face_classes import OTHERS, SCANNED, SIMPLE

from foretell.model import zoo
from foretell.model.importers import hf_config
from foretell.model.source import load

DATA = Path(__file__).parents[1] / "data"
HUB, CHECKPOINTS = DATA / "hf", DATA / "checkpoints"

NAMED = {
    "deepseek-v3": HUB / "DeepSeek-V3",  # R1 has the same file but for its name
    "deepseek-v3.2": HUB / "DeepSeek-V3.2-Exp",
    "kimi-k2": HUB / "Kimi-K2-Base",
    "glm-4.5": CHECKPOINTS / "GLM-4.5",
    "glm-4.5-air": HUB / "GLM-4.5-Air",
    "qwen3-next-80b-a3b": HUB / "Qwen3-Next-80B-A3B-Instruct",
    "gpt-oss-20b": HUB / "gpt-oss-20b",
    "gpt-oss-120b": CHECKPOINTS / "gpt-oss-120b",
    "llama4-scout": HUB / "Llama-4-Scout-17B-16E",
    "mixtral-8x7b": HUB / "Mixtral-8x7B-v0.1",
    "minimax-m2": HUB / "MiniMax-M2",
    "mamba-codestral-7b": HUB / "Mamba-Codestral-7B-v0.1",
    "nemotron-h-8b": HUB / "Nemotron-H-8B-Base-8K",
    "jamba-v0.1": HUB / "Jamba-v0.1",
    "gemma3-1b": HUB / "gemma-3-1b-pt",
    "gemma3-27b": HUB / "gemma-3-27b-pt",
    "whisper-small": HUB / "whisper-small",
    "clip-b-32": HUB / "clip-vit-base-patch32",
    "llava-1.5-7b": HUB / "llava-1.5-7b-hf",
}
"""The models that the zoo has since 2025, with the configuration that their authors published."""

TYPES = {"deepseek_v3": "kimi_k2", "gemma3": "gemma3_text", "llama4": "llama4_text"}
"""Types whose class another one has inside: that of a model that sees is its language model's."""

WITHOUT_CONFIGURATION = {
    "dit-xl-2": "the authors' repository has no config.json; diffusers' class has an embedder of its own in each block",
    "sd-1.5": "a configuration of diffusers: studies/traced/unets_of_diffusers.py compares them",
    "sd-2.1": "the same",
    "sdxl": "the same",
}


@pytest.mark.parametrize("name", NAMED)
def test_the_name_is_the_configuration(name: str) -> None:
    named = load(name)
    fields = zoo.parse(name)[1]
    seq = getattr(fields, "seq", None) if "whisper" not in name and "clip" not in name else None
    read = hf_config.load(NAMED[name], batch=named.batch, seq=seq)
    assert read.blocks == named.blocks


@pytest.mark.parametrize("name", NAMED)
def test_the_configuration_is_of_a_class_that_was_traced(name: str) -> None:
    said = json.loads((NAMED[name] / "config.json").read_text())["model_type"]
    kinds = {*SIMPLE, *SCANNED, *OTHERS}
    assert {said, TYPES.get(said, said), *(own for own, other in TYPES.items() if other == said)} & kinds, said


def test_what_has_no_configuration_is_in_the_zoo() -> None:
    for name in WITHOUT_CONFIGURATION:
        assert load(name, 1).blocks
