"""Names that people type: which model they stand for, and what is offered where they stand for none."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from foretell.errors import BadInput, UnknownName
from foretell.model import zoo
from foretell.model.importers import hf_config
from foretell.model.naming import aliases, meant, spelling, unknown_model
from foretell.model.source import in_words, load, named
from foretell.model.totals import totals
from foretell.oracle.request import read

HUB = Path("tests/data/hf")

TORCHVISION = {
    "alexnet": 61_100_840, "convnext_base": 88_591_464, "convnext_large": 197_767_336, "convnext_small": 50_223_688,
    "convnext_tiny": 28_589_128, "densenet121": 7_978_856, "densenet161": 28_681_000, "densenet169": 14_149_480,
    "densenet201": 20_013_928, "efficientnet_b0": 5_288_548, "efficientnet_b3": 12_233_232,
    "efficientnet_b7": 66_347_960, "inception_v3": 27_161_264, "mobilenet_v2": 3_504_872,
    "mobilenet_v3_large": 5_483_032, "mobilenet_v3_small": 2_542_856, "resnet18": 11_689_512, "resnet50": 25_557_032,
    "resnet152": 60_192_808, "resnext50_32x4d": 25_028_904, "resnext101_64x4d": 83_455_272, "swin_t": 28_288_354,
    "swin_s": 49_606_258, "swin_b": 87_768_224, "vgg11": 132_863_336, "vgg16_bn": 138_365_992, "vit_b_16": 86_567_656,
    "vit_b_32": 88_224_232, "vit_l_16": 304_326_632, "wide_resnet50_2": 68_883_240, "wide_resnet101_2": 126_886_696,
}  # fmt: skip
"""`num_params` of torchvision's weights (commit e6f0400)."""

TIMM = {
    "vit_base_patch16_224": 86.57, "vit_base_patch32_224": 88.22, "vit_large_patch16_224": 304.33,
    "deit_base_patch16_224": 86.57, "swin_tiny_patch4_window7_224": 28.29, "swin_small_patch4_window7_224": 49.61,
    "swin_base_patch4_window7_224": 87.77, "swin_large_patch4_window7_224": 196.53, "mobilenetv1_100": 4.23,
    "mobilenetv2_100": 3.50, "mobilenetv3_large_100": 5.48, "mobilenetv3_small_100": 2.54, "tf_efficientnet_b0": 5.29,
    "tf_efficientnet_b4": 19.34, "tf_efficientnet_b7": 66.35, "convnext_tiny": 28.59, "resnet101": 44.55,
}  # fmt: skip
"""Millions of parameters by timm's results-imagenet.csv (commit aa4b585)."""

LITGPT = {
    "meta-llama/Llama-2-70b-chat-hf": (80, 8192, 64, 8, 28672, 32000),
    "meta-llama/Meta-Llama-3-70B": (80, 8192, 64, 8, 28672, 128256),
    "meta-llama/Meta-Llama-3.1-405B-Instruct": (126, 16384, 128, 8, 53248, 128256),
    "meta-llama/Llama-3.2-1B": (16, 2048, 32, 8, 8192, 128256),
    "meta-llama/Llama-3.2-3B-Instruct": (28, 3072, 24, 8, 8192, 128256),
    "meta-llama/Llama-3.3-70B-Instruct": (80, 8192, 64, 8, 28672, 128256),
    "Qwen/Qwen2.5-14B": (48, 5120, 40, 8, 13824, 152064),
    "Qwen/QwQ-32B": (64, 5120, 40, 8, 27648, 152064),
    "Qwen/Qwen3-0.6B-Base": (28, 1024, 16, 8, 3072, 151936),
    "Qwen/Qwen3-4B-Instruct-2507": (36, 2560, 32, 8, 9728, 151936),
    "Qwen/Qwen3-14B": (40, 5120, 40, 8, 17408, 151936),
    "Qwen/Qwen3-32B": (64, 5120, 64, 8, 25600, 151936),
}
"""Layers, hidden size, heads, key heads, feed-forward and vocabulary by litgpt's table (commit 2685705)."""


def parameters(model: str) -> int:
    return totals(load(model)).parameters


@pytest.mark.parametrize("name", TORCHVISION)
def test_names_of_torchvision(name: str) -> None:
    assert parameters(name) == TORCHVISION[name]


@pytest.mark.parametrize("name", TIMM)
def test_names_of_timm(name: str) -> None:
    assert round(parameters(name) / 1e6, 2) == pytest.approx(TIMM[name], abs=0.006)


@pytest.mark.parametrize("name", LITGPT)
def test_ids_of_the_hub(name: str) -> None:
    _, found = zoo.parse(name)
    figures = msgspec.structs.asdict(found)
    ffn: int = getattr(found, "inner")  # noqa: B009
    own = *(figures[key] for key in ("layers", "hidden", "heads", "kv_heads")), ffn, figures["vocab"]
    assert own == LITGPT[name]


def test_ids_of_the_hub_are_what_their_configurations_say() -> None:
    """Every configuration that is kept here and has a name in the table."""
    folders = {spelling(folder.name): folder for folder in HUB.iterdir()}
    found = {alias: folders[spelling(alias.rpartition("/")[2])] for alias in aliases().members if "/" in alias
             and spelling(alias.rpartition("/")[2]) in folders}  # fmt: skip
    assert len(found) >= 18
    for alias, folder in found.items():
        assert parameters(zoo.canonical(alias)) == totals(hf_config.load(folder)).parameters, alias


def test_every_alias_is_a_member_and_no_spelling_has_two_meanings() -> None:
    for alias, member in aliases().members.items():
        name, _ = zoo.parse(member)
        assert name in zoo.names()
        assert zoo.canonical(alias) == member
    own = [spelling(name) for name in zoo.names()]
    assert len(set(own)) == len(own)
    assert not {spelling(name) for name in zoo.names()} & aliases().members.keys()


def test_spelling_does_not_count() -> None:
    for name in (
        "Llama-3-8B",
        "LLAMA3_8B",
        "llama3.1-8b",
        "meta-llama/Llama-3.1-8B",
        "meta-llama/llama-3.1-8b-instruct",
    ):
        assert named(name) == "llama3-8b"
    assert named("llama3.1-8b:layers=2,seq=128") == "llama3-8b:layers=2,seq=128"
    assert named("mistralai/Mixtral-8x22B-v0.1:layers=2") == "mixtral-8x22b:vocab=32768,layers=2"
    assert named("mistralai/Mixtral-8x22B-v0.1:vocab=100") == "mixtral-8x22b:vocab=100"
    assert named("llama-17b") == "llama-17b"  # and not the first Llama with 7 billion
    assert named("somebody/llama3-8b") == "somebody/llama3-8b"  # whose sizes nobody knows
    assert in_words("vit_b_16") == "vit-b-16"


def test_a_folder_of_that_name_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Qwen" / "Qwen3-32B").mkdir(parents=True)
    assert named("Qwen/Qwen3-32B") == "Qwen/Qwen3-32B"
    with pytest.raises(BadInput, match=r"folder without a config.json"):
        load("Qwen/Qwen3-32B")


def test_an_answer_says_which_model_it_took() -> None:
    request = read(model="Qwen/Qwen3-32B", on="8xh100")
    assert request.model == "qwen3-32b"
    assert "Qwen/Qwen3-32B is qwen3-32b of the zoo" in request.notes
    assert not read(model="qwen3-32b", on="8xh100").notes


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("lama3-8b", "llama3-8b"),
        ("llama3-9b", "llama3-8b"),
        ("llama3.1-9b", "llama3.1-8b"),
        ("meta-llama/Llama-3.1-9B", "llama3.1-8b"),
        ("resent50", "resnet50"),
        ("bert-bse", "bert-base"),
        ("qwen3-31b", "qwen3-32b"),
        ("mobilenet_v3_larg", "mobilenet-v3-large"),
        ("qwen", "qwen3-8b"),
    ],
)
def test_names_that_could_be_meant(typed: str, offered: str) -> None:
    assert offered in meant(typed, zoo.names())


@pytest.mark.parametrize(
    "typed",
    [
        *("llama6", "llama6-scout", "meta-llama/Llama-6-Scout-17B", "qwen4-8b", "gpt4", "gemma7-7b"),
        *("EleutherAI/gpt-neox-20b", "openai/gpt-9-oss", "google/gemma-5-9b", "deepseek-v4", "llama5-8b"),
    ],
)
def test_another_version_is_not_a_slip_of_the_pen(typed: str) -> None:
    assert meant(typed, zoo.names()) == []
    with pytest.raises(BadInput) as problem:
        load(typed)
    assert "did you mean" not in str(problem.value)


def test_others_of_the_family_are_named_as_such() -> None:
    assert unknown_model("resnet51", zoo.names()).fix.startswith("others of that family: resnet18, resnet50")
    assert unknown_model("zebra-7b", zoo.names()).fix == "foretell list models"
    with pytest.raises(UnknownName, match=r"no model is called 'llama6'"):
        load("llama6")


def test_the_nearest_version_is_named_first() -> None:
    assert unknown_model("llama6", zoo.names()).fix.startswith("others of that family: llama4")
    assert unknown_model("llama5-8b", zoo.names()).fix.startswith("others of that family: llama4, llama4-")
    assert unknown_model("deepseek-v4", zoo.names()).fix.startswith("others of that family: deepseek-v3, deepseek-v3.2")


def test_names_with_the_weights_that_timm_has() -> None:
    assert zoo.canonical("resnet50.a1_in1k") == "resnet50"
    assert zoo.canonical("vit_base_patch16_224.augreg2_in21k_ft_in1k") == "vit-b-16"
    assert zoo.canonical("my_in.py:factory") == "my_in.py:factory"


def test_a_name_of_the_hub_says_how_to_get_its_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="google/gemma-5-9b is no model of the zoo, and no file or folder") as problem:
        load("google/gemma-5-9b")
    assert problem.value.fix.startswith("its configuration: hf download google/gemma-5-9b config.json --local-dir")
    for path in ("./google/x", "/google/x", "google/x/y", "models/missing.json"):
        with pytest.raises(BadInput, match="no such file"):
            load(path)
    (tmp_path / "google").mkdir()
    with pytest.raises(BadInput, match="no such file or folder"):
        load("google/gemma-5-9b")


def test_a_model_type_of_another_version_is_not_offered(tmp_path: Path) -> None:
    for name, offered in (("llama6", False), ("qwen9_next", False), ("lama", True)):
        (tmp_path / "config.json").write_text(f'{{"model_type": "{name}"}}')
        with pytest.raises(BadInput) as problem:
            load(str(tmp_path))
        assert ("did you mean llama" in problem.value.fix) == offered, problem.value.fix
