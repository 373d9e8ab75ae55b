"""Cells as people write them (BF16, True, OOM, adamw_torch_fused), in the words that the columns have."""

from __future__ import annotations

import re
from typing import Final

from foretell.validation.study import Line, Unmapped

YES: Final = ("1", "true", "yes", "on", "y", "1.0")
NO: Final = ("0", "false", "no", "off", "n", "0.0")

FLAGS: Final = ("usable", "sequence_parallel", "gated_mlp", "tied_embeddings", "flash_attention", "compile")
"""Columns that are 1 or 0."""

PRECISIONS: Final = (
    (r"bfloat16|bf16(?:mixed|amp)?|amp_?bf16|mixedbf16|mixedbfloat16", "bf16"),
    (r"float16|half|fp16(?:mixed|amp)?|16mixed|ampfp16|mixedfp16", "fp16"),
    (r"float32|float|single|32true|fp32", "fp32"),
    (r"tfloat32|tf32", "tf32"),
    (r"fp8(?:hybrid|mixed)?|float8", "fp8"),
)
"""Precisions without what is between their words; others are as they stand, in small letters."""

PURE: Final = r"bf16true|purebf16|bf16pure"
"""Weights and their updates in bf16 too (Lightning, bf16-true)."""

VISION_PRECISIONS: Final = (
    (r"amp_?fp16|fp16-mixed|16-mixed|mixed_?float16|mixed", "AMP"),
    (r"amp_?bf16|bf16-mixed|bfloat16|mixed_?bfloat16", "BF16"),
    (r"float32|float|single|32-true", "FP32"),
)
"""The same in the words of the table of vision models."""

STRATEGIES: Final = (
    (r"ddp|dp|data[- ]parallel(?:ism)?", "data"),
    (r"none|one gpu|single[- ]gpu", "single"),
    (r"pp|gpipe|pipeline[- ]parallel(?:ism)?", "pipeline"),
)

KERNELS: Final = ((r"gemm|matmul|mm|linear|addmm", "gemm"), (r"conv2?d?|convolution", "conv2d"))

PHASES: Final = (
    (r"|fwd|forward|fprop", "fwd"),
    (r"bwd_input|dgrad|input[ _]gradient", "bwd_input"),
    (r"bwd_weight|wgrad|weight[ _]gradient", "bwd_weight"),
)
"""A blank is the forward pass."""

OUTCOMES: Final = (
    (r"ok|success(?:ful)?|succeeded|done|finished|completed?", "ok"),
    (r"oom|(?:cuda )?out[ _-]of[ _-]memory", "oom"),
    (r"fail(?:ed|ure)?|crash(?:ed)?", "failed"),
)

RECOMPUTED: Final = {**dict.fromkeys(YES, "full"), **dict.fromkeys(NO, "none")}
"""Gradient checkpointing that is on is that of whole layers, as in Hugging Face's and Lightning's arguments."""

STAGE: Final = r"\bzero[- ]?(?:stage )?([0-3])\b"
"""How the text of a framework says what is in shares (DeepSpeed ZeRO-3)."""

NAMED_ADAMW: Final = (
    r"(?:fused |paged[ _])?adamw(?:_torch|_fused|_npu|_xla|_hf|_apex|_anyprecision|_32bit| \(?fused\)?)*"
)
"""Ways in which AdamW with states in fp32 is called (transformers, training_args.py, OptimizerNames)."""


def plain(line: Line) -> Line:
    """The line with every word that has several spellings in the one that the columns have."""
    found = dict(flagged(line))
    word = re.sub(r"[-_ ./]", "", line.get("precision", "").lower())
    if re.fullmatch(PURE, word):
        found |= {"precision": "bf16", "states_precision": line.get("states_precision") or "bf16"}
    elif word:
        found["precision"] = _first(word, PRECISIONS, line["precision"].lower())
    recomputed = line.get("act_ckpt", "").lower()
    found["act_ckpt"] = RECOMPUTED.get(recomputed, recomputed)
    found["outcome"] = _first(line.get("outcome", "").lower(), OUTCOMES, line.get("outcome", ""))
    stage = re.search(STAGE, line.get("framework", "").lower())
    return found if line.get("zero_stage") or not stage else {**found, "zero_stage": stage[1]}


def plain_vision(line: Line) -> Line:
    """The same of a line of the table of vision models."""
    word = line.get("precision", "").lower()
    other = word.upper() if re.fullmatch(r"[a-z]+\d*", word) else line.get("precision", "")
    precision = _first(word, VISION_PRECISIONS, other)
    recomputed = RECOMPUTED.get(line.get("act_ckpt", "").lower(), line.get("act_ckpt", "").lower())
    strategy = _first(line.get("strategy", "").lower(), STRATEGIES, line.get("strategy", ""))
    return {**flagged(line), "precision": precision, "act_ckpt": recomputed, "strategy": strategy}


def plain_kernel(line: Line) -> Line:
    """The same of a line of the table of kernels."""
    dtype, op, phase = (line.get(column, "").lower() for column in ("dtype", "op", "phase"))
    number = re.sub(r"[-_ ]", "", dtype)
    words = {
        "dtype": _first(number, PRECISIONS, line.get("dtype", "")).upper() if "e4m3" not in dtype else "FP8 e4m3",
        "op": _first(op, KERNELS, line.get("op", "")),
        "phase": _first(phase, PHASES, line.get("phase", "")),
    }
    return {**line, **words}


def collective(text: str) -> str:
    """A collective as nccl-tests calls it, in one word of small letters."""
    return "".join(filter(str.isalpha, text.lower()))


def size_in_bytes(line: Line) -> Line:
    """The line with its bytes as a number: 1G, 64 MiB and 8M are as in nccl-tests, powers of two."""
    found = re.fullmatch(r"(\d[\d,]{0,15}(?:\.\d{1,6})?) ?([kmg])(?:i?b)?", line.get("bytes", "").lower())
    if not found:
        return line
    number = float(found[1].replace(",", "")) * 1024 ** ("kmg".index(found[2]) + 1)
    return {**line, "bytes": f"{number:.0f}"}


def flagged(line: Line) -> Line:
    """The line with 1 or 0 in all columns that say yes or no."""
    return {**line, **{column: _flag(line, column) for column in FLAGS if line.get(column)}}


def update_rule(text: str) -> str:
    """An optimizer as the zoo of optimizers calls it, where it is one of the many names of AdamW."""
    bits = re.search(r"([48])[-_ ]?bit", text)
    if bits and "adamw" in text:
        return f"adamw{bits[1]}bit"
    return "adamw" if re.fullmatch(NAMED_ADAMW, text) else text


def _flag(line: Line, column: str) -> str:
    word = line[column].lower()
    if word not in (*YES, *NO):
        raise Unmapped(f"{column} is {line[column]}, neither 1 nor 0")
    return "1" if word in YES else "0"


def _first(word: str, known: tuple[tuple[str, str], ...], otherwise: str) -> str:
    return next((meant for pattern, meant in known if re.fullmatch(pattern, word)), otherwise)
