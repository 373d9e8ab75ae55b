"""A Hugging Face `config.json` as a graph, without torch and without transformers.

The file names a model type; a table says which family of the zoo that is and where its fields are
found (`hf_gpt`, `hf_llama`, `hf_encoders`, `hf_images`). The element type is the zoo's (fp32) whatever the
file says: precision belongs to the plan. Dropout is left out, and the graph says so.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from foretell.errors import BadInput, first_of, near
from foretell.model import zoo
from foretell.model.graph import Graph
from foretell.model.importers import hf_encoders, hf_gpt, hf_images, hf_llama, hf_recent, hf_scans, hf_senses
from foretell.model.importers.hf_fields import LARGEST, TORCH, Config, HfModelType, named_in, shown

KINDS: dict[str, HfModelType] = {
    **hf_gpt.KINDS,
    **hf_llama.KINDS,
    **hf_recent.KINDS,
    **hf_scans.KINDS,
    **hf_encoders.KINDS,
    **hf_images.KINDS,
    **hf_senses.KINDS,
}

USUAL_LENGTH = 4096
"""Files allow very long sequences; a person who wants them says so."""

LARGEST_FILE = 16 * 1024 * 1024

UNFIT = {
    "gptj": "its attention and feed-forward share one norm",
    "phi": "its attention and feed-forward share one norm",
}
"""Types that people will try, and why no family of the zoo is the same."""

_HARMLESS_ENDINGS = ("_token_id", "_token_ids", "_index", "_eps", "_epsilon", "_range", "_value", "_coef", "_std")
_HARMLESS_BEGINNINGS = ("_", "output_", "return_", "rope_", "scale_attn", "summary_", "task_specific", "use_cache")
_HARMLESS = {
    "apply_residual_connection_post_layernorm", "architectures", "attention_softmax_in_fp32", "attn_implementation",
    "attn_softmax_bf16", "auto_map", "aux_loss_alpha", "bias_dropout_fusion", "chunk_size_feed_forward",
    "classifier_activation", "dense_act_fn", "dtype", "encoder_stride", "ep_size", "finetuning_task",
    "gradient_checkpointing", "id2label", "initializer_factor", "is_encoder_decoder", "is_gated_act", "label2id",
    "language", "layer_types", "masked_softmax_fusion", "max_window_layers", "model_type", "n_ctx", "offset_alibi",
    "original_max_position_embeddings", "out_features", "out_indices", "pooler_act", "pooler_output_size",
    "pretraining_tp", "problem_type", "quantization_config", "reorder_and_upcast_attn", "return_dict", "seq_aux",
    "sinusoidal_pos_embds", "skip_bias_add", "sliding_window", "slow_but_exact", "stage_names", "tie_weights_",
    "tie_word_embeddings", "torch_dtype", "transformers_version", "unk_index", "use_bfloat16", "use_sliding_window",
}  # fmt: skip
"""Fields that change neither sizes nor layers, or that say again what another field said."""


_SIZES = ("_layers", "_size", "_heads")
"""How keys end that every configuration has which transformers saved: it leaves none of them out."""


def load(path: Path, batch: int = 1, seq: int | None = None, dtype: str = "") -> Graph:
    """The graph of the model that a `config.json` (or the folder that has it) describes, in fp32 or another type."""
    file = path / "config.json" if path.is_dir() else path
    config = _config(file)
    kind, fields, keys = _read(config, seq, dtype)
    _remark(config, kind, dtype)
    try:
        family = msgspec.convert(fields, kind.family)
        graph = family.graph(_name(config, file), config.whole("batch", batch))
    except (msgspec.ValidationError, BadInput) as problem:
        raise _placed(problem, config, keys) from None
    return msgspec.structs.replace(graph, source="hf", warnings=(*graph.warnings, *config.warnings))


def text(file: Path, seq: int | None = None) -> str:
    """The same model in the words of the zoo, whose modules can be run."""
    kind, fields, keys = _read(config := _config(file), seq, "")
    try:
        return zoo.text(msgspec.convert(fields, kind.family))
    except msgspec.ValidationError as problem:
        raise _placed(problem, config, keys) from None


def known(file: Path) -> bool:
    """Whether the zoo has a family for what a configuration describes."""
    kind = content(file).get("model_type")
    return not isinstance(kind, str) or kind in KINDS or kind in hf_recent.LANGUAGE


def _read(config: Config, seq: int | None, dtype: str) -> tuple[HfModelType, dict[str, Any], dict[str, str]]:
    """What kind of model it is, the fields of its family, and the key of the file that each comes from."""
    kind = _kind(config)
    config.seq = _length(config, kind, seq)
    kind.check(config)
    keys: dict[str, str] = {}
    fields: dict[str, Any] = {"seq": config.seq} if kind.positions else {}
    for name, source in kind.fields.items():
        start = len(config.read)
        fields[name] = source(config)
        if len(config.read) > start:
            keys[name] = config.read[start]
    for name in ("layers", "hidden", "heads", "ffn", "vocab"):
        key, value = keys.get(name, ""), fields.get(name)
        if key.endswith(_SIZES) and key not in config.names and isinstance(value, int) and value:
            config.warn(f"the file has no {key}: {value:,} is taken, the default of the type in transformers")
    if dtype:
        fields["dtype"] = dtype
    return kind, fields, keys


def _config(file: Path) -> Config:
    """The file; of a model that sees, what it says of the language model inside."""
    said = content(file)
    inner: Any = said.get("text_config", {})
    word = said.get("model_type")
    if word in hf_senses.NESTED:
        return Config(hf_senses.flattened(said), str(file))
    if not isinstance(word, str) or word not in hf_recent.LANGUAGE or not isinstance(inner, dict):
        return Config(said, str(file))
    names = {key: said[key] for key in ("_name_or_path", "architectures") if key in said}
    config = Config({**inner, **names, "model_type": hf_recent.LANGUAGE[word]}, str(file))
    config.warn(f"the language model of {word} alone: what looks at images is left out")
    return config


def content(file: Path) -> dict[str, Any]:
    """What a configuration says."""
    fix = "a config.json as Hugging Face's save_pretrained writes it"
    try:
        size = file.stat().st_size
        text = file.read_bytes() if size <= LARGEST_FILE else b""
    except (OSError, ValueError) as problem:  # a path may hold what no file system takes
        why = getattr(problem, "strerror", None) or "no such path"
        raise BadInput(f"cannot read the file: {why}", where=str(file), fix=fix) from None
    if size > LARGEST_FILE:
        raise BadInput(f"{size:,} bytes are too many for a configuration", where=str(file), fix=fix)
    try:
        # Python writes and reads numbers without end, which JSON has not: Mamba's files have some
        found: Any = json.loads(text) if b"Infinity" in text else msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as problem:
        raise BadInput(f"not JSON: {problem}", where=str(file), fix=fix) from None
    if not isinstance(found, dict):
        raise BadInput(f"a configuration is a JSON object, not {shown(found)}", where=str(file), fix=fix)
    return found  # pyright: ignore[reportUnknownVariableType]


def _kind(config: Config) -> HfModelType:
    key, name = config.get("model_type")
    if name is None:
        fix = f'"model_type": "llama", or another of {len(KINDS)} types: {", ".join(KINDS)}'
        raise config.bad(key, "the file does not say what model it is: no model_type", fix)
    if not isinstance(name, str):
        raise config.bad(key, f"model_type should be a word, not {shown(name)}", fix=", ".join(KINDS))
    if name in UNFIT:
        raise config.bad(key, f"{name} fits no family of the zoo: {UNFIT[name]}", fix=TORCH)
    if name not in KINDS:
        known = f"did you mean {', '.join(close)}?" if (close := meant(name)) else f"known: {', '.join(KINDS)}"
        raise config.bad(key, f"no model type is called {shown(name)}", fix=f"{known}; for any other model {TORCH}")
    return KINDS[name]


def meant(name: str) -> list[str]:
    """Types of the zoo that one may have meant; llama4 is no llama."""
    return [kind for kind in near(name, KINDS) if _numbers(kind) == _numbers(name)]


def _numbers(name: str) -> list[str]:
    return re.findall(r"[0-9.]+", name)


def _length(config: Config, kind: HfModelType, seq: int | None) -> int:
    """The sequence length that the graph is for; 0 for images."""
    if kind.positions is None:
        if seq is not None:
            raise BadInput("an image model has no sequence length", where=config.file, fix="leave out --seq")
        return 0
    longest: int = kind.positions(config)
    if seq is None:
        if longest > USUAL_LENGTH:
            config.warn(f"sequences of {USUAL_LENGTH} tokens; the model allows {longest} (set it with --seq)")
        return min(longest, USUAL_LENGTH)
    if not 1 <= seq <= LARGEST:
        raise BadInput(f"a sequence of {seq} tokens", where=config.file, fix=f"1 to {LARGEST:,}")
    if seq > longest and kind.learned:
        what = f"a sequence of {seq} tokens is longer than the {longest} positions that the model learns"
        raise BadInput(what, where=config.file, fix=f"--seq {longest}")
    if seq > longest:
        config.warn(f"sequences of {seq} tokens are longer than the {longest} that the file speaks of")
    return seq


def _remark(config: Config, kind: HfModelType, chosen: str) -> None:
    """Say what in the file is not in the graph."""
    name = config.architecture()
    if name and not name.endswith(kind.heads):
        config.warn(f"the file is for {name}; the graph is that of *{kind.heads[0]}")
    turns = "layer_types" in config.read  # the family has layers that take turns
    kinds: Any = config.get("layer_types")[1]
    mixed = isinstance(kinds, list) and "full_attention" in kinds and "sliding_attention" in kinds
    if mixed and not turns:
        config.warn("layer_types mixes full and sliding attention; the graph has one kind in all layers")
    rates = {key: config.get(key)[1] for key in config.names if re.search(r"dropout|pdrop|drop_path", key)}
    used = sorted({value for value in rates.values() if isinstance(value, float) and 0 < value <= 1})
    if used:
        config.warn(f"dropout is left out (the file says {', '.join(str(rate) for rate in used)})")
    dtype: Any = config.get("torch_dtype", "dtype")[1]
    if isinstance(dtype, str) and dtype not in ("float32", "auto") and not chosen:
        config.warn(f"counted in fp32, though the file says {dtype[:20]}: precision is a matter of the plan")
    read = set(config.read)
    if config.get("tie_word_embeddings")[1] is False and "tie_word_embeddings" not in read:
        config.warn("tie_word_embeddings is false, but the head of this family shares the token table")
    rest = [key for key in config.names if key not in read and not _harmless(key.rpartition(".")[2])]
    if rest:
        config.warn(f"not looked at: {first_of([key[:60] for key in rest], 12)}")


def _harmless(key: str) -> bool:
    return key in _HARMLESS or key.endswith(_HARMLESS_ENDINGS) or key.startswith(_HARMLESS_BEGINNINGS)


def _name(config: Config, file: Path) -> str:
    _, name = config.get("_name_or_path")
    if isinstance(name, str) and name.strip():
        return name.strip()[:200]
    return file.resolve().parent.name or "config"


def _placed(problem: Exception, config: Config, keys: dict[str, str]) -> BadInput:
    """The error with the file, and with the fields of the file that the zoo's words stand for."""
    what = problem.what if isinstance(problem, BadInput) else str(problem).replace("$.", "")
    fix = problem.fix if isinstance(problem, BadInput) else ""
    named = named_in(what, keys)
    where = f"{config.file}, fields {', '.join(named)}" if named else config.file
    return BadInput(what, where=where, fix=fix)
