"""README's table of published and predicted runs: some lines of `foretell validate --study sanity --table`."""

from __future__ import annotations

from foretell.cli.side_by_side_pages import figure
from foretell.oracle.predict import predict
from foretell.validation import published
from foretell.validation.evaluate import compare
from foretell.validation.side_by_side import SideBySide, side_by_side
from foretell.validation.study import read

SHOWN = {
    "GPT 175B, 256 A100": "GPT 175B, 256 A100 (Megatron-LM)",
    "GPT 175B, 12,288 A100": "GPT 175B, 12,288 A100 (Megatron-LM)",
    "340B, 6,144 H100": "Nemotron-4 340B, 6,144 H100",
    "405B, 16,384 H100": "Llama 3 405B, 16,384 H100",
    "405B fp8, 1,024 H100": "Llama 3.1 405B fp8, 1,024 H100 (Megatron-Bridge)",
    "8B fp8, 8 B200": "Llama 3 8B fp8, 8 B200 (Megatron-Bridge)",
    "Qwen3-235B, 256 GB200": "Qwen3 235B, 256 GB200 (Megatron-Bridge)",
    "titan 70B, 256": "Llama 3 70B, 256 H100 (torchtitan)",
    "titan 405B fp8, 512": "Llama 3.1 405B fp8, 512 H100 (torchtitan)",
    "DeepSeek-V3, 2k H800": "DeepSeek-V3 fp8, 2,048 H800",
}
"""Small and large, good and bad, with the names that people know them by."""


def text() -> str:
    runs = [side_by_side(one) for one in compare(read(published.SANITY).rows, predict)]
    shown = {one.case: one for one in runs}
    inside, fitting = sum(bool(one.inside) for one in runs), sum(one.fits for one in runs)
    lines = ["| run | published | predicted | 90 % interval | fits |", "|---|--:|--:|--:|---|"]
    lines += [_line(name, shown[case]) for case, name in SHOWN.items()]
    said = f"Of all {len(runs)} runs {inside} are inside the interval, and {fitting} are predicted to fit (all ran)."
    return "\n".join([*lines, "", said])


def _line(name: str, one: SideBySide) -> str:
    assert one.predicted is not None and one.low is not None and one.high is not None, one.case
    interval = f"{figure(one.low)} to {figure(one.high)}{'' if one.inside else ' (outside)'}"
    fits = "yes" if one.fits else "no"
    return f"| {name} | {figure(one.published)} {one.unit} | {figure(one.predicted)} | {interval} | {fits} |"
