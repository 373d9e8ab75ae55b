"""Hugging Face configurations: published counts, the zoo's totals, and any input at all."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agreement import predicted
from foretell.errors import BadInput, ForetellError
from foretell.model import zoo
from foretell.model.graph import Graph
from foretell.model.importers import hf_config
from foretell.model.source import in_words
from foretell.model.totals import totals
from law_examples import examples, reached

DATA = Path(__file__).parents[1] / "data" / "hf"

# Parameters as the model cards, the weight files and transformers' own counts have them. DeepSeek-V3 has
# 58 x 256 corrections of its router besides, which the zoo holds as buffers: 671,026,419,200 in all. Files of
# newer ones may hold more (vision towers, layers for more tokens, scales): tests/zoo says how their counts are made up.
PUBLISHED = {
    "DeepSeek-V3.2-Exp": 671_877_929_216,
    "Jamba-v0.1": 51_570_323_328,
    "Qwen3-Next-80B-A3B-Instruct": 79_674_391_296,
    "clip-vit-base-patch32": 151_277_313,
    "llava-1.5-7b-hf": 7_063_427_072,
    "whisper-small": 241_734_912,
    "GLM-4.5-Air": 106_852_245_504,
    "Kimi-K2-Base": 1_026_408_209_408,
    "Llama-4-Scout-17B-16E": 107_769_861_120,
    "Mamba-Codestral-7B-v0.1": 7_285_403_648,
    "Nemotron-H-8B-Base-8K": 8_100_852_736,
    "MiniMax-M2": 228_703_644_928 - 62 * 256 - 227_410_968_576 // 128**2,  # corrections, and scales of fp8 weights
    "OLMo-2-1124-7B": 7_298_617_344,
    "gemma-2-2b": 2_614_341_888,
    "gemma-3-1b-pt": 999_885_952,
    "gemma-3-27b-pt": 27_009_346_304,
    "gpt-oss-20b": 20_914_757_184,
    "DeepSeek-V2-Lite": 15_706_484_224,
    "DeepSeek-V3": 671_026_404_352,
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.2-1B": 1_235_814_400,
    "Mistral-7B-v0.1": 7_241_732_096,
    "Mixtral-8x7B-v0.1": 46_702_792_704,
    "Phi-3-mini-4k-instruct": 3_821_079_552,
    "Qwen1.5-MoE-A2.7B": 14_315_784_192,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen3-30B-A3B": 30_532_122_624,
    "Qwen3-8B": 8_190_735_360,
    "bert-base-uncased": 109_514_298,
    "bloom-560m": 559_214_592,
    "convnext-tiny-224": 28_589_128,
    "distilbert-base-uncased": 66_985_530,
    "electra-base-discriminator": 108_891_648,
    "falcon-40b": 41_303_293_952,
    "falcon-rw-1b": 1_311_625_216,
    "flan-t5-base": 247_577_856,
    "gemma-2b": 2_506_172_416,
    "gpt-neo-125m": 125_198_592 + 3 * 768 * 12,  # the zoo's queries, keys and values have a bias
    "gpt-neox-20b": 20_554_567_680,
    "gpt2": 124_439_808,
    "mt5-small": 300_176_768,
    "opt-1.3b": 1_315_758_080,
    "pythia-160m": 162_322_944,
    "resnet-50": 25_557_032,
    "roberta-base": 124_697_433,
    "starcoder2-3b": 3_030_371_328,
    "starcoderbase": 15_517_456_384,
    "swin-tiny-patch4-window7-224": 28_288_354,
    "t5-base": 222_903_552,
    "vit-base-patch16-224": 86_567_656,
    "xlm-roberta-base": 278_295_186,
}

PRESETS = {
    "DeepSeek-V3.2-Exp": "deepseek-v3.2",
    "Jamba-v0.1": "jamba-v0.1",
    "Qwen3-Next-80B-A3B-Instruct": "qwen3-next-80b-a3b",
    "clip-vit-base-patch32": "clip-b-32",
    "llava-1.5-7b-hf": "llava-1.5-7b:seq=4096",
    "whisper-small": "whisper-small",
    "GLM-4.5-Air": "glm-4.5-air",
    "Kimi-K2-Base": "kimi-k2",
    "Llama-4-Scout-17B-16E": "llama4-scout",
    "MiniMax-M2": "minimax-m2",
    "Mamba-Codestral-7B-v0.1": "mamba-codestral-7b",
    "Nemotron-H-8B-Base-8K": "nemotron-h-8b",
    "OLMo-2-1124-7B": "olmo2-7b",
    "gemma-2-2b": "gemma2-2b",
    "gemma-3-1b-pt": "gemma3-1b",
    "gemma-3-27b-pt": "gemma3-27b",
    "gpt-oss-20b": "gpt-oss-20b",
    "DeepSeek-V2-Lite": "deepseek-v2-lite",
    "DeepSeek-V3": "deepseek-v3",
    "Llama-3.1-8B": "llama3-8b",
    "Llama-3.2-1B": "llama3.2-1b",
    "Mistral-7B-v0.1": "mistral-7b",
    "Mixtral-8x7B-v0.1": "mixtral-8x7b",
    "Qwen2.5-7B": "qwen2.5-7b",
    "Qwen3-30B-A3B": "qwen3-30b-a3b",
    "Qwen3-8B": "qwen3-8b",
    "bert-base-uncased": "bert-base-mlm",
    "bloom-560m": "bloom-560m",
    "convnext-tiny-224": "convnext-tiny",
    "distilbert-base-uncased": "distilbert-base:objective=mlm",
    "flan-t5-base": "t5-v1.1-base",
    "gpt2": "gpt2",
    "opt-1.3b": "opt-1.3b",
    "resnet-50": "resnet50",
    "roberta-base": "roberta-base:objective=mlm",
    "swin-tiny-patch4-window7-224": "swin-t",
    "t5-base": "t5-base",
    "vit-base-patch16-224": "vit-b-16",
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("model")


def load(folder: Path, content: Any, seq: int | None = None) -> Graph:
    """The graph of this content: bytes as they are, anything else as JSON."""
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    (folder / "config.json").write_bytes(data)
    return hf_config.load(folder, batch=2, seq=seq)


def refusal(folder: Path, content: Any, seq: int | None = None) -> BadInput:
    with pytest.raises(BadInput) as caught:
        load(folder, content, seq)
    assert str(folder) in caught.value.where
    assert caught.value.fix
    return caught.value


def facts(name: str, **changed: Any) -> dict[str, Any]:
    return {**json.loads((DATA / name / "config.json").read_bytes()), **changed}


def test_every_file_has_its_count() -> None:
    assert {path.name for path in DATA.iterdir()} == set(PUBLISHED)


FAMILIES = ("DeepSeek-V2-Lite", "Qwen2.5-7B", "Qwen3-30B-A3B", "roberta-base", "falcon-40b", "flan-t5-base")
FAMILIES += ("gemma-2-2b", "gemma-3-27b-pt", "gpt-oss-20b", "GLM-4.5-Air", "MiniMax-M2", "OLMo-2-1124-7B")
FAMILIES += ("Llama-4-Scout-17B-16E", "Kimi-K2-Base", "Mamba-Codestral-7B-v0.1", "Nemotron-H-8B-Base-8K")
FAMILIES += ("DeepSeek-V3.2-Exp", "Jamba-v0.1", "Qwen3-Next-80B-A3B-Instruct", "clip-vit-base-patch32")
FAMILIES += ("llava-1.5-7b-hf", "whisper-small")
FAMILIES += ("resnet-50", "convnext-tiny-224", "swin-tiny-patch4-window7-224", "vit-base-patch16-224")


@pytest.mark.parametrize("name", FAMILIES)
def test_the_words_of_the_zoo_say_the_same_model(name: str) -> None:
    """So a configuration can be run, where modules are those of the zoo."""
    said = zoo.load(hf_config.text(DATA / name / "config.json"))
    plain = {"name": "", "source": "", "warnings": ()}
    assert msgspec.structs.replace(said, **plain) == msgspec.structs.replace(hf_config.load(DATA / name), **plain)
    assert in_words(str(DATA / name)) == hf_config.text(DATA / name / "config.json")


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters(name: str, count: int) -> None:
    graph = hf_config.load(DATA / name)
    assert totals(graph).parameters == count
    assert graph.source == "hf"
    assert not any(warning.startswith("not looked at") for warning in graph.warnings)


@pytest.mark.parametrize(("name", "spec"), PRESETS.items())
def test_is_the_same_as_the_zoo(name: str, spec: str) -> None:
    _, fields = zoo.parse(spec)
    graph = hf_config.load(DATA / name, batch=2, seq=getattr(fields, "seq", None))
    assert totals(graph) == predicted(spec, 2)


@pytest.mark.parametrize("kind", [kind for kind in hf_config.KINDS if kind != "kimi_k2"])  # not in transformers
def test_every_type_has_the_defaults_of_transformers(folder: Path, kind: str) -> None:
    """A file may say the type alone; only what transformers leaves open has to be there."""
    from transformers import AutoConfig

    own: dict[str, Any] = {
        "deepseek_v2": {"num_experts_per_tok": 6, "first_k_dense_replace": 1},
        "electra": {"embedding_size": 256},
        "falcon": {"new_decoder_architecture": True},
        "glm4_moe": {"head_dim": 128},
        "nemotron_h": {"layers_block_type": ["mamba", "mlp", "attention"]},  # by itself it has experts
    }
    said = own.get(kind, {})
    written_out = AutoConfig.for_model(kind, **said).to_dict()
    assert totals(load(folder, {"model_type": kind, **said})) == totals(load(folder, written_out))


def test_a_size_that_the_file_does_not_say_is_told(folder: Path) -> None:
    """Files that transformers saved have all of them: one without was cut."""
    content = facts("Qwen3-8B")
    said = load(folder, content)
    assert not [one for one in said.warnings if "the file has no" in one]
    cut = load(folder, {key: value for key, value in content.items() if key != "intermediate_size"})
    told = "the file has no intermediate_size: 22,016 is taken, the default of the type in transformers"
    assert told in cut.warnings
    assert totals(cut).parameters > totals(said).parameters


def test_name_is_that_of_the_model_or_its_folder() -> None:
    assert hf_config.load(DATA / "Llama-3.1-8B").name == "meta-llama/Llama-3.1-8B"
    assert hf_config.load(DATA / "gpt2" / "config.json").name == "gpt2"


def test_long_sequences_are_cut_and_said() -> None:
    cut = hf_config.load(DATA / "Llama-3.1-8B")
    assert cut.nodes
    assert "sequences of 4096 tokens; the model allows 131072 (set it with --seq)" in cut.warnings
    whole = hf_config.load(DATA / "Llama-3.1-8B", seq=131072)
    assert not any("4096" in warning for warning in whole.warnings)
    assert totals(whole).saved_bytes > 30 * totals(cut).saved_bytes


def test_shorter_sequences_keep_the_whole_position_table() -> None:
    for name in ("gpt2", "opt-1.3b", "bert-base-uncased", "roberta-base"):
        assert totals(hf_config.load(DATA / name, seq=100)).parameters == PUBLISHED[name]


def test_learned_positions_end(folder: Path) -> None:
    assert "1024 positions" in refusal(folder, facts("gpt2"), seq=2000).what
    assert "longer" in " ".join(load(folder, facts("t5-base"), seq=2000).warnings)


def test_bert_is_what_its_architecture_says(folder: Path) -> None:
    sizes = {"BertModel": 109_482_240, "BertForMaskedLM": 109_514_298, "BertForPreTraining": 110_106_428}
    for name, count in sizes.items():
        assert totals(load(folder, facts("bert-base-uncased", architectures=[name]))).parameters == count
    other = load(folder, facts("bert-base-uncased", architectures=["BertForQuestionAnswering"]))
    assert totals(other).parameters == sizes["BertModel"]
    assert any("BertForQuestionAnswering" in warning for warning in other.warnings)


def test_classes_are_the_labels(folder: Path) -> None:
    labels = {str(label): f"LABEL_{label}" for label in range(1000)}
    content = facts("vit-base-patch16-224", id2label=labels, num_labels=None)
    assert totals(load(folder, content)).parameters == PUBLISHED["vit-base-patch16-224"]
    graph = load(folder, facts("resnet-50", num_labels=None))
    assert any("2 classes" in warning for warning in graph.warnings)


@pytest.mark.parametrize(
    ("name", "changed", "warning"),
    [
        ("Llama-3.1-8B", {"attention_bias": True}, "attention_bias"),
        ("Llama-3.1-8B", {"mlp_bias": True}, "mlp_bias"),
        ("Llama-3.1-8B", {"hidden_act": "gelu"}, "hidden_act"),
        ("Llama-3.1-8B", {"architectures": ["LlamaForSequenceClassification"]}, "*ForCausalLM"),
        ("Llama-3.1-8B", {"depth_of_thought": 3}, "depth_of_thought"),
        ("Qwen2.5-7B", {"use_sliding_window": True, "sliding_window": 1024, "max_window_layers": 9}, "from 9 on"),
        ("Qwen2.5-7B", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ("gpt2", {}, "dropout is left out"),
        ("pythia-160m", {}, "side by side"),
        ("gpt-neo-125m", {}, "27,648 parameters more"),
        ("gpt-neo-125m", {}, "window of 256"),
        ("DeepSeek-V3", {}, "num_nextn_predict_layers"),
        ("starcoder2-3b", {"sliding_window": 512}, "window of 512"),
    ],
)
def test_says_what_the_graph_has_not(folder: Path, name: str, changed: dict[str, Any], warning: str) -> None:
    assert any(warning in text for text in load(folder, facts(name, **changed)).warnings)


def test_windows_are_masks_of_the_scores(folder: Path) -> None:
    full, windowed = (load(folder, facts("Mistral-7B-v0.1", sliding_window=size)) for size in (None, 1024))
    assert totals(windowed).parameters == totals(full).parameters
    assert totals(windowed).saved_bytes > totals(full).saved_bytes
    late = {"use_sliding_window": True, "sliding_window": 1024, "max_window_layers": 0}
    assert (
        totals(load(folder, facts("Qwen3-8B", **late))).saved_bytes
        > totals(load(folder, facts("Qwen3-8B"))).saved_bytes
    )


@pytest.mark.parametrize(
    ("name", "changed", "where"),
    [
        ("gpt2", {"model_type": "gpt3"}, "model_type"),
        ("gpt2", {"model_type": "mamba"}, "model_type"),
        ("gpt2", {"model_type": "phi"}, "model_type"),
        ("gpt2", {"model_type": None}, "model_type"),
        ("gpt2", {"model_type": ["gpt2"]}, "model_type"),
        ("gpt2", {"n_layer": 0}, "n_layer"),
        ("gpt2", {"n_layer": -3}, "n_layer"),
        ("gpt2", {"n_layer": 100_000}, "n_layer"),
        ("gpt2", {"n_layer": "12"}, "n_layer"),
        ("gpt2", {"n_layer": True}, "n_layer"),
        ("gpt2", {"n_layer": 12.0}, "n_layer"),
        ("gpt2", {"n_embd": 10**40}, "n_embd"),
        ("gpt2", {"n_head": 7}, "n_head"),
        ("gpt2", {"n_embd": 770}, "n_embd"),
        ("gpt2", {"activation_function": "gelus"}, "activation_function"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention"),
        ("gpt2", {"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ("opt-1.3b", {"word_embed_proj_dim": 512}, "word_embed_proj_dim"),
        ("opt-1.3b", {"do_layer_norm_before": False}, "do_layer_norm_before"),
        ("pythia-160m", {"rotary_pct": 0}, "rotary_pct"),
        ("pythia-160m", {"rotary_pct": "half"}, "rotary_pct"),
        ("falcon-40b", {"new_decoder_architecture": False}, "parallel_attn"),
        ("Llama-3.1-8B", {"num_key_value_heads": 5}, "num_key_value_heads"),
        ("Qwen3-30B-A3B", {"mlp_only_layers": [0]}, "mlp_only_layers"),
        ("Qwen3-30B-A3B", {"num_experts_per_tok": 200}, "num_experts_per_tok"),
        ("DeepSeek-V3", {"topk_method": "dice"}, "topk_method"),
        ("DeepSeek-V3", {"scoring_func": "argmax"}, "scoring_func"),
        ("DeepSeek-V2-Lite", {"num_experts_per_tok": None}, "num_experts_per_tok"),
        ("bert-base-uncased", {"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ("roberta-base", {"max_position_embeddings": 2}, "max_position_embeddings"),
        ("electra-base-discriminator", {"embedding_size": 128}, "embedding_size"),
        ("t5-base", {"feed_forward_proj": "gated-"}, "feed_forward_proj"),
        ("t5-base", {"relative_attention_num_buckets": 1}, "relative_attention_num_buckets"),
        ("vit-base-patch16-224", {"image_size": [224, 448]}, "image_size"),
        ("vit-base-patch16-224", {"patch_size": 15}, "patch_size"),
        ("swin-tiny-patch4-window7-224", {"depths": [2, 2]}, "depths"),
        ("swin-tiny-patch4-window7-224", {"mlp_ratio": 3.5}, "mlp_ratio"),
        ("convnext-tiny-224", {"hidden_sizes": [96, 200, 384, 768]}, "hidden_sizes"),
        ("resnet-50", {"hidden_sizes": [64, 128, 256, 512]}, "hidden_sizes"),
    ],
)
def test_refusals_name_the_field(folder: Path, name: str, changed: dict[str, Any], where: str) -> None:
    assert where in refusal(folder, facts(name, **changed)).where


def test_unknown_types_have_near_names_and_a_way_out(folder: Path) -> None:
    fix = refusal(folder, {"model_type": "lama"}).fix
    assert "llama" in fix
    assert "package.module:factory" in fix


@pytest.mark.parametrize("content", [b"", b"{", b'{"model_type": "gpt2"', b"\xff\xfe", b"[1, 2]", b"null", b"[" * 5000])
def test_refuses_what_is_no_object(folder: Path, content: bytes) -> None:
    refusal(folder, content)


def test_images_have_no_sequence(folder: Path) -> None:
    refusal(folder, facts("resnet-50"), seq=512)


def test_refuses_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing.json", tmp_path / "\0"):
        with pytest.raises(BadInput):
            hf_config.load(path)


# Any input is a graph or an error that foretell raises on purpose. Numbers between 5 and 1,000 are left
# out so that no example has hundreds of layers to write down.

_NUMBERS = st.one_of(
    st.integers(max_value=4),
    st.integers(min_value=1001),
    st.floats(allow_nan=False, allow_infinity=False),
)
_LEAVES = st.one_of(st.none(), st.booleans(), _NUMBERS, st.text(max_size=8))
_INNER = st.lists(_LEAVES, max_size=4) | st.dictionaries(st.text(max_size=8), _LEAVES, max_size=3)
_VALUES = _LEAVES | _INNER
_FILES = {path.name: facts(path.name) for path in sorted(DATA.iterdir())}
_KEYS = st.sampled_from(sorted({key for content in _FILES.values() for key in content})) | st.text(max_size=8)
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers")


def _shallow(content: dict[str, Any]) -> dict[str, Any]:
    return {key: min(value, 3) if key in _LAYERS else value for key, value in content.items()}


def survives(folder: Path, content: Any) -> None:
    try:
        graph = load(folder, content)
    except ForetellError as error:
        assert error.what
        reached("message")
        return
    reached("graph")
    assert math.isfinite(totals(graph).parameters)


@examples(60)
@given(content=st.binary(max_size=200))
def test_any_bytes(folder: Path, content: bytes) -> None:
    survives(folder, content)


@pytest.mark.reaches(graph=3, message=3)
@examples(60)
@given(content=st.dictionaries(_KEYS, _VALUES, max_size=6), kind=st.sampled_from([*hf_config.KINDS, "gpt", ""]))
def test_any_object(folder: Path, content: dict[str, Any], kind: str) -> None:
    survives(folder, {**content, "model_type": kind, **dict.fromkeys(_LAYERS, 2)})


@pytest.mark.reaches(graph=10, message=10)
@examples(60)
@given(data=st.data())
def test_any_change_of_a_real_file(folder: Path, data: st.DataObject) -> None:
    content = _shallow(_FILES[data.draw(st.sampled_from(sorted(_FILES)))])
    changed = data.draw(st.lists(st.sampled_from(sorted(content)), min_size=1, max_size=3, unique=True))
    survives(folder, {**content, **{key: data.draw(_VALUES) for key in changed}})


@pytest.mark.reaches(graph=1, message=10)
@examples(60)
@given(data=st.data())
def test_any_cut_or_flipped_byte(folder: Path, data: st.DataObject) -> None:
    text = bytearray(json.dumps(_shallow(_FILES[data.draw(st.sampled_from(sorted(_FILES)))])).encode())
    at = data.draw(st.integers(0, len(text) - 1))
    text[at] = data.draw(st.integers(0, 255))
    survives(folder, bytes(text[: data.draw(st.just(len(text)) | st.integers(at, len(text)))]))
