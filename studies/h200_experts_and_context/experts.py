"""Products of experts, and the kernels that bring tokens to them and back."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from timing import Call, Device, Lines, set_aside

FAMILIES = {  # hidden, width of an expert, experts, experts a token visits
    "mixtral-8x7b": (4096, 14336, 8, 2),
    "mixtral-8x22b": (6144, 16384, 8, 2),
    "qwen3-30b": (2048, 768, 128, 8),
    "olmoe": (2048, 1024, 64, 8),
    "gpt-oss-20b": (2880, 2880, 32, 4),
    "deepseek-moe-16b": (2048, 1408, 64, 6),
    "deepseek-v3": (7168, 2048, 256, 8),
}
EXPERTS = (1, 2, 4, 8, 16, 32, 64)
TOKENS = (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
MOST_FLOPS, MOST_BYTES = 1.2e13, 6e9
ALIGNED = 16
"""Rows of an expert are a multiple of 16: the fp8 kernel asks for it, and trainers pad to it."""
Drawn = dict[str, Any]


def loads(experts: int, tokens: int, kind: str, chance: random.Random) -> list[int]:
    """Tokens of each expert: all the same, or drawn so that the largest has two to four times the mean."""
    if kind == "equal":
        return [tokens] * experts
    weights = [chance.lognormvariate(0, 0.7) for _ in range(experts)]
    scale = experts * tokens / sum(weights) / ALIGNED
    return [max(0, round(weight * scale)) * ALIGNED for weight in weights]


def configurations(tiny: bool) -> list[Drawn]:
    """All combinations under the limits, in an order drawn by seed: stopping early leaves a fair sample."""
    chance = random.Random(29)
    drawn: list[Drawn] = []
    for family, (hidden, width, most, _) in FAMILIES.items():
        for layer, (ins, outs) in {"up": (hidden, 2 * width), "down": (width, hidden)}.items():
            for experts in EXPERTS:
                for tokens in TOKENS:
                    flops, weights = 2.0 * experts * tokens * ins * outs, 2.0 * experts * ins * outs
                    if experts > most or flops > MOST_FLOPS or weights > MOST_BYTES:
                        continue
                    kind = chance.choice(("equal", "skewed")) if experts > 1 else "equal"
                    row = {"family": family, "layer": layer, "experts": experts, "in": ins, "out": outs}
                    row |= {"tokens": tokens, "load": kind, "stored": chance.choice(("out,in", "out,in", "in,out"))}
                    row["rows"] = loads(experts, tokens, kind, chance)
                    if tiny:
                        row |= {"in": 32, "out": 48, "rows": [16] * min(experts, 4), "experts": min(experts, 4)}
                    drawn.append(row)
    chance.shuffle(drawn)
    return drawn


def told_of(row: Drawn) -> Drawn:
    identity = "experts {family} {layer} {experts} {tokens} {load}".format(**row)
    return {"group": "experts", "id": identity, "set_aside": set_aside(identity), **row}


class Products:
    """The three products of a layer of experts, in each of the ways that they are computed."""

    def __init__(self, row: Drawn, device: Device) -> None:
        self.rows: list[int] = row["rows"]
        self.total, self.most = sum(self.rows), max(self.rows)
        self.ends = torch.tensor(self.rows, device=device.kind).cumsum(0).to(torch.int32)
        self.x, self.dy = device.rand(self.total, row["in"]), device.rand(self.total, row["out"])
        if row["stored"] == "out,in":
            self.w = device.rand(row["experts"], row["out"], row["in"]).transpose(1, 2)
        else:
            self.w = device.rand(row["experts"], row["in"], row["out"])
        self.row, self.device = row, device

    def grouped(self, part: str) -> Call:
        if part == "forward":
            return lambda: torch._grouped_mm(self.x, self.w, offs=self.ends)
        if part == "input_gradient":
            return lambda: torch._grouped_mm(self.dy, self.w.transpose(1, 2), offs=self.ends)
        if self.row["stored"] == "out,in":
            return lambda: torch._grouped_mm(self.dy.t(), self.x, offs=self.ends)
        return lambda: torch._grouped_mm(self.x.t(), self.dy, offs=self.ends)

    def loop(self, part: str) -> Call:
        begins = [sum(self.rows[:expert]) for expert in range(len(self.rows))]
        spans = [slice(at, at + rows) for at, rows in zip(begins, self.rows, strict=True)]
        used = [(expert, span) for expert, span in enumerate(spans) if span.stop > span.start]
        if part == "forward":
            return lambda: [torch.mm(self.x[span], self.w[expert]) for expert, span in used]
        if part == "input_gradient":
            return lambda: [torch.mm(self.dy[span], self.w[expert].t()) for expert, span in used]
        if self.row["stored"] == "out,in":
            return lambda: [torch.mm(self.dy[span].t(), self.x[span]) for _, span in used]
        return lambda: [torch.mm(self.x[span].t(), self.dy[span]) for _, span in used]

    def padded(self, part: str) -> Call:
        """Each expert's rows filled up to the most of all."""
        experts = self.row["experts"]
        if 2.0 * experts * self.most * self.row["in"] * self.row["out"] > 3 * MOST_FLOPS:
            raise ValueError("left out: padding makes it too large")
        x = self.device.rand(experts, self.most, self.row["in"])
        dy = self.device.rand(experts, self.most, self.row["out"])
        if part == "forward":
            return lambda: torch.bmm(x, self.w)
        if part == "input_gradient":
            return lambda: torch.bmm(dy, self.w.transpose(1, 2))
        if self.row["stored"] == "out,in":
            return lambda: torch.bmm(dy.transpose(1, 2), x)
        return lambda: torch.bmm(x.transpose(1, 2), dy)


def products(lines: Lines, device: Device, end: float) -> None:
    for row in configurations(device.tiny):
        if lines.spent() > end:
            return
        try:
            made = Products(row, device)
        except Exception as problem:
            lines.write({**told_of(row), "failed": f"{type(problem).__name__}: {problem}"[:300]})
            continue
        for part in ("forward", "input_gradient", "weight_gradient"):
            for way in ("grouped", "loop", "padded"):
                if way == "loop" and row["experts"] > 16 and part != "forward":
                    continue  # the host would need longer than the device
                told = {**told_of(row), "way": way, "part": part, "precision": "bf16"}
                lines.case(told, device, lambda way=way, part=part, made=made: getattr(made, way)(part))
        del made
        device.free()


def scaled(lines: Lines, device: Device, end: float) -> None:
    """Products in fp8 with a scale a row, as far as this build of PyTorch has them; and the cast of rows to fp8."""
    failures = 0
    for row in configurations(device.tiny):
        if lines.spent() > end or failures > 5:
            return
        rows, experts, ins, outs = sum(row["rows"]), row["experts"], row["in"], row["out"]
        if row["tokens"] < 128 or not rows:
            continue

        def forward(
            rows: int = rows, experts: int = experts, ins: int = ins, outs: int = outs, row: Drawn = row
        ) -> Call:
            x = device.rand(rows, ins).to(torch.float8_e4m3fn)
            w = device.rand(experts, outs, ins).to(torch.float8_e4m3fn).transpose(1, 2)
            of_x = torch.ones(rows, device=device.kind)
            of_w = torch.ones(experts, outs, device=device.kind)
            ends = torch.tensor(row["rows"], device=device.kind).cumsum(0).to(torch.int32)
            return lambda: torch._scaled_grouped_mm(
                x, w, of_x, of_w, offs=ends, out_dtype=torch.bfloat16, use_fast_accum=True
            )

        def cast(rows: int = rows, ins: int = ins) -> Call:
            x = device.rand(rows, ins)

            def call() -> torch.Tensor:
                scale = 448.0 / x.abs().amax(1, keepdim=True).float().clamp(min=1e-12)
                return (x.float() * scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)

            return call

        told = {**told_of(row), "way": "grouped", "precision": "fp8"}
        failures += not lines.case({**told, "part": "forward"}, device, forward)
        lines.case({**told, "group": "casts", "part": "cast"}, device, cast)
        device.free()


# permutation

Routed = Callable[[], Call]


def permuted(tokens: int, hidden: int, visits: int, experts: int, device: Device) -> Iterator[tuple[str, Routed]]:
    """What stands between the router and the experts, and behind them: each kernel that a trainer may take."""
    scores = device.rand(tokens, experts, dtype=torch.float32)
    probabilities, chosen = scores.softmax(1).topk(visits, dim=1)
    ids = chosen.flatten()
    order = ids.argsort(stable=True)
    back, source = order.argsort(), order // visits
    x, rows = device.rand(tokens, hidden), device.rand(tokens * visits, hidden)
    wide = source[:, None].expand(-1, hidden)
    weights = probabilities.flatten().bfloat16()[:, None]
    zeros = torch.zeros_like(x)

    yield "softmax", lambda: lambda: scores.softmax(1)
    yield "sigmoid", lambda: lambda: scores.sigmoid()
    yield "topk", lambda: lambda: scores.topk(visits, dim=1)
    yield "argsort", lambda: lambda: ids.argsort()
    yield "argsort_stable", lambda: lambda: ids.argsort(stable=True)
    yield "bincount", lambda: lambda: torch.bincount(ids, minlength=experts)
    yield "histc", lambda: lambda: torch.histc(ids.float(), experts, 0, experts)
    yield "index_select", lambda: lambda: x.index_select(0, source)
    yield "index", lambda: lambda: x[source]
    yield "gather", lambda: lambda: x.gather(0, wide)
    yield "index_add", lambda: lambda: torch.zeros_like(x).index_add_(0, source, rows)
    yield "index_add_alone", lambda: lambda: zeros.index_add_(0, source, rows)
    yield "scatter_add", lambda: lambda: torch.zeros_like(x).scatter_add_(0, wide, rows)
    yield "index_put", lambda: lambda: torch.zeros_like(x).index_put_((source,), rows, accumulate=True)
    yield "weigh", lambda: lambda: rows * weights
    yield "weigh_gradient", lambda: lambda: (rows * weights, (rows * rows).sum(1))
    yield "combine", lambda: lambda: (rows[back].view(tokens, visits, -1) * weights.view(tokens, visits, 1)).sum(1)
    yield "silu_multiply", lambda: lambda: torch.nn.functional.silu(rows) * rows


def permutation(lines: Lines, device: Device, end: float) -> None:
    chance = random.Random(30)
    every = [
        (tokens, hidden, visits, experts)
        for tokens in (1024, 4096, 8192, 16384, 32768, 65536)
        for hidden, visits, experts in ((4096, 2, 8), (6144, 2, 8), (2048, 8, 128), (2880, 4, 32), (7168, 8, 256))
        if tokens * hidden * visits < 2e9
    ]
    chance.shuffle(every)
    for tokens, hidden, visits, experts in every:
        if device.tiny:
            tokens, hidden = 64, 16
        identity = f"permutation {tokens} {hidden} {visits} {experts}"
        told = {"group": "permutation", "id": identity, "set_aside": set_aside(identity)}
        told |= {"tokens": tokens, "hidden": hidden, "visits": visits, "experts": experts}
        for name, make in permuted(tokens, hidden, visits, experts, device):
            if lines.spent() > end:
                return
            lines.case({**told, "op": name}, device, make)
        device.free()
