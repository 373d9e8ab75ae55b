"""Measurements as JSON, as anchors."""

import json

from fuzz.mutate import json_form
from fuzz.reader import SAMPLES, TINY, Reader, command

ON = (TINY, "--on", "2xh100", "--plan", "dp2", "--batch", "8")
TOLD = {"model": TINY, "plan": "dp2", "cluster": "2xh100", "batch": 8, "step_seconds": 0.01, "memory_bytes": 1e9,
        "breakdown": {"forward": 0.002, "backward": 0.005, "exposed.dp": 0.001}}  # fmt: skip


def samples() -> list[bytes]:
    return [json.dumps(TOLD).encode()] * 2 + [(SAMPLES / "run.json").read_bytes()]


READER = Reader(
    form=json_form,
    samples=samples,
    entries=(
        command("predict", *ON, "--anchor", "{file}", "--json"),
        command("predict", *ON, "--anchor", "{file}"),
        command("predict", *ON[:-4], "--plan", "tp2", "--batch", "16", "--anchor", "{file}"),
    ),
)
