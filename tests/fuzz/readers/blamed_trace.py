"""Traces of torch.profiler, held against a prediction and against themselves."""

import json

from fuzz.mutate import json_form
from fuzz.reader import TINY, Reader, command

ON = ("--model", TINY, "--on", "2xh100", "--plan", "dp2", "--batch", "8")


def samples() -> list[bytes]:
    events = []
    for step in range(3):
        start = 1000.0 * step
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": start, "dur": 900, "tid": 1},
            {"ph": "X", "cat": "kernel", "name": "gemm", "ts": start + 10, "dur": 400.5, "tid": 7},
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "ts": start + 300, "dur": 200},
        ]
    operators = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 5, "dur": 50},
        {"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "pid": 1, "tid": 2, "ts": 50, "dur": 20},
    ]
    told = {"distributedInfo": {"rank": 0, "world_size": 2}}
    return [json.dumps({**told, "traceEvents": one}).encode() for one in (events, operators)]


READER = Reader(
    form=json_form,
    samples=samples,
    entries=(command("blame", "{file}", *ON), command("blame", "{file}", "--against", "{file}", "--json")),
)
