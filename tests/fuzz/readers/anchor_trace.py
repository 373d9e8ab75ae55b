"""Traces of torch.profiler, as anchors."""

import json

from fuzz.mutate import json_form
from fuzz.reader import TINY, Reader, command

ON = (TINY, "--on", "2xh100", "--plan", "dp2", "--batch", "8")


def samples() -> list[bytes]:
    events = []
    for step in range(3):
        start = 1000.0 * step
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": start, "dur": 900, "tid": 1},
            {"ph": "X", "cat": "kernel", "name": "gemm", "ts": start + 10, "dur": 400.5, "args": {"stream": 7}},
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "ts": start + 300, "dur": 200},
            {"ph": "i", "name": "mark", "ts": start},
        ]
    return [json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()]


READER = Reader(
    form=json_form,
    samples=samples,
    entries=(command("predict", *ON, "--anchor", "{file}"), command("predict", *ON, "--anchor", "{file}", "--json")),
)
