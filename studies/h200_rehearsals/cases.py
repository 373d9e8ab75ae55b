"""The cases of this study: which model under which plan, whose modules, and how it is trained.

Every case is a question that `foretell predict` answers as well: a model's text, a plan, a trainer, a batch. What runs
are the modules of the zoo under the project's own appliers (`zoo`), Hugging Face's under FSDP2 and DTensor (`hf`),
torchtitan's own (`titan`), and timm's (`vision`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec

from foretell.model import zoo
from foretell.oracle.request import Request
from foretell.oracle.resolve import resolve
from foretell.plan.setting import Setting
from foretell.plan.text import parse

SEED = 2511
"""Of the draw that sets half of the cases aside, and of the order in which they run."""

MAKERS = ("zoo", "hf", "titan", "vision")


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One rehearsal."""

    maker: str
    model: str  # as `foretell predict` reads it
    plan: str
    batch: int  # samples of a step, of all ranks
    seq: int = 0
    trainer: str = "pytorch"
    optimizer: str = "adamw"
    rank: int = 0
    priced: bool = False  # whether messages take as long as they are priced on `cluster`
    expandable: bool = False  # whether the allocator has expandable segments
    cluster: str = "1024xh200"

    @property
    def name(self) -> str:
        said = [self.maker, self.model, self.plan, f"b{self.batch}", f"s{self.seq}", f"r{self.rank}"]
        said += [word for word in ("priced", "expandable") if getattr(self, word)]
        return " ".join(said)

    def told(self) -> dict[str, Any]:
        return {"name": self.name, **msgspec.to_builtins(self)}

    def setting(self, tiny: bool = False) -> Setting:
        """The question as `foretell predict` reads it."""
        more = {"trainer": self.trainer, "optimizer": self.optimizer}
        own = self.small() if tiny else self
        return resolve(Request(model=own.model, plan=parse(own.plan), batch=own.batch, seq=own.seq, **more)).setting

    def small(self) -> Case:
        """The same case where there is no GPU."""
        name, _, rest = self.model.partition(":")
        fields, more = zoo.parse(name)[1], [field for field in rest.split(",") if field]
        if hasattr(fields, "kv_heads"):
            layers = 16 if "pp" in self.plan else 4
            more = [f"layers={layers}", "hidden=128", "heads=16", "kv_heads=8", "vocab=256"]
            more += [
                "ffn=64" if hasattr(fields, "experts") else "ffn=256",
                *(["head_dim=8"] if fields.head_dim else []),
            ]
        most = max(1, parse(self.plan).ranks // (8 if "tp8" in self.plan else 1))
        plan = self.plan.replace("+bf16:pure", "+fp32").replace("+amp_bf16", "+fp32").replace("+tf32", "+fp32")
        plan = plan.replace("+bf16", "+fp32") if self.maker == "zoo" else plan
        batch = most if name.startswith(("vit", "res", "conv")) else self.batch
        model = f"{name}:{','.join(more)}" if more else name
        return msgspec.structs.replace(self, model=model, plan=plan, batch=batch, seq=min(self.seq, 64))


def _zoo() -> Iterator[Case]:
    """The project's own appliers."""
    of: dict[str, Any] = {"maker": "zoo", "seq": 8192}
    eight = "llama3-8b:layers=8"
    yield Case(model=eight, plan="dp64:zero3 +bf16 +recompute:block", batch=64, **of)
    yield Case(model=eight, plan="dp64:zero3 +bf16", batch=64, **of)
    yield Case(model=eight, plan="dp64:zero3 +bf16", batch=64, priced=True, **of)
    yield Case(model=eight, plan="dp64:zero2 +bf16 +recompute:block", batch=64, **of)
    yield Case(model=eight, plan="dp8:zero3,shard8 +bf16 +recompute:block", batch=64, **of)
    yield Case(model="llama3-8b:layers=6", plan="dp8 +bf16", batch=8, maker="zoo", seq=4096)
    yield Case(model="llama3-8b:layers=6", plan="dp8 +bf16:pure", batch=16, maker="zoo", seq=4096, priced=True)
    yield Case(model="llama3-8b:layers=6", plan="dp8:zero1 +bf16", batch=8, maker="zoo", seq=4096)
    yield Case(model="llama3-8b:layers=6", plan="dp64:zero1 +bf16 +recompute:operators", batch=64, priced=True, **of)
    yield Case(model=eight, plan="dp8:zero3 tp8 +bf16", batch=8, **of)
    yield Case(model=eight, plan="dp8:zero3 tp8:sp +bf16", batch=16, priced=True, **of)
    yield Case(model=eight, plan="dp8:zero3 tp4:sp +bf16 +recompute:operators", batch=8, **of)
    yield Case(model=eight, plan="dp8:zero1 tp8 +bf16 +recompute:block", batch=16, **of)
    yield Case(model=eight, plan="tp8 +bf16:pure", batch=1, maker="zoo", seq=2048)
    yield Case(model=eight, plan="dp2:zero3 cp4 tp8 +bf16", batch=2, maker="zoo", seq=32768)
    yield Case(model=eight, plan="dp8:zero3 cp8:alltoall +bf16", batch=8, maker="zoo", seq=32768)
    yield Case(model=eight, plan="dp64:zero3 +bf16 +m4", batch=256, maker="zoo", seq=2048)
    seventy = "llama3-70b:layers=4"
    yield Case(model=seventy, plan="dp64:zero3 +bf16 +recompute:block", batch=64, **of)
    yield Case(model=seventy, plan="dp32:zero3 tp8:sp +bf16 +recompute:block", batch=32, **of)
    yield Case(model="llama3-70b:layers=8", plan="dp32:zero3 tp8:sp +bf16", batch=32, priced=True, **of)
    yield Case(model="llama3-405b:layers=4", plan="dp64:zero3 tp8:sp +bf16 +recompute:block", batch=64, **of)
    for rank in (0, 16, 24):
        plan = "pp4:1f1b dp8:zero1 +m8 +bf16"
        yield Case(model="llama3-8b:layers=16", plan=plan, batch=64, rank=rank, priced=True, maker="zoo", seq=4096)
    yield Case(
        model="llama3-8b:layers=16",
        plan="pp4:interleaved,v2 tp2 dp4 +m8 +bf16:pure",
        batch=32,
        rank=8,
        maker="zoo",
        seq=4096,
    )
    yield Case(
        model="llama3-70b:layers=16",
        plan="pp4:1f1b dp4:zero1 tp8:sp +m8 +bf16",
        batch=32,
        rank=96,
        maker="zoo",
        seq=4096,
    )
    yield Case(model="qwen3-8b:layers=8", plan="dp64:zero3 +bf16 +recompute:block", batch=128, maker="zoo", seq=4096)
    yield Case(model="qwen3-30b-a3b:layers=4", plan="dp8:zero1,ep8 +bf16", batch=16, maker="zoo", seq=4096)
    yield Case(
        model="mixtral-8x7b:layers=4", plan="dp8:zero1,ep8 +bf16 +recompute:block", batch=16, maker="zoo", seq=4096
    )
    yield Case(model="mixtral-8x7b:layers=4", plan="dp64:zero3 +bf16", batch=64, maker="zoo", seq=4096)
    yield Case(model=eight, plan="dp64:zero3 +bf16 +compiled", batch=64, **of)
    yield Case(model="vit-l-16", plan="dp64 +amp_bf16", batch=4096, maker="zoo")
    yield Case(model="vit-l-16", plan="dp64:zero3 +bf16", batch=8192, maker="zoo")
    yield Case(model="resnet50", plan="dp64 +amp_bf16", batch=8192, maker="zoo", optimizer="momentum")


def _hugging_face() -> Iterator[Case]:
    """Hugging Face's modules, cut by `fully_shard` and `parallelize_module`; weights in fp32, read in bf16."""
    of: dict[str, Any] = {"maker": "hf", "trainer": "fsdp", "seq": 8192}
    short: dict[str, Any] = {**of, "seq": 4096}
    eight = "llama3-8b:layers=8"
    yield Case(model="llama3-8b", plan="dp64:zero3 +bf16 +recompute:block", batch=64, **of)
    yield Case(model=eight, plan="dp64:zero3 +bf16 +recompute:block", batch=64, **of)
    yield Case(model=eight, plan="dp64:zero3 +bf16 +recompute:block", batch=64, expandable=True, **of)
    yield Case(model=eight, plan="dp64:zero3 +bf16", batch=64, **of)
    yield Case(model=eight, plan="dp64:zero3 +bf16", batch=64, expandable=True, **of)
    yield Case(model=eight, plan="dp64:zero3 +bf16 +recompute:operators", batch=64, priced=True, **of)
    yield Case(model=eight, plan="dp64:zero2 +bf16", batch=64, **of)
    yield Case(model=eight, plan="dp16:zero3,shard8 +bf16", batch=128, priced=True, **of)
    yield Case(model=eight, plan="dp8:zero3 +bf16", batch=32, **short)
    yield Case(model="llama3-8b:layers=16", plan="dp256:zero3 +bf16 +recompute:block", batch=256, **short)
    yield Case(model=eight, plan="dp8:zero3 tp8 +bf16", batch=8, **of)
    yield Case(model=eight, plan="dp8:zero3 tp8 +bf16 +recompute:block", batch=16, **of)
    yield Case(model=eight, plan="dp8:zero3 tp8:sp +bf16", batch=8, priced=True, **of)
    yield Case(model=eight, plan="dp8:zero3 tp4:sp +bf16 +recompute:block", batch=16, **of)
    yield Case(model="llama3-70b:layers=4", plan="dp64:zero3 +bf16 +recompute:block", batch=64, **of)
    yield Case(model="llama3-70b:layers=4", plan="dp64:zero3 +bf16 +recompute:block", batch=64, priced=True, **of)
    yield Case(model="llama3-70b:layers=8", plan="dp32:zero3 tp8 +bf16 +recompute:block", batch=32, **of)
    yield Case(model="llama3-70b:layers=8", plan="dp32:zero3 tp8:sp +bf16", batch=32, **of)
    yield Case(model="llama3-405b:layers=2", plan="dp128:zero3 +bf16 +recompute:block", batch=128, **short)
    yield Case(
        model="llama3-405b:layers=4", plan="dp64:zero3 tp8:sp +bf16 +recompute:block", batch=64, priced=True, **of
    )
    yield Case(model="qwen3-8b:layers=8", plan="dp64:zero3 +bf16 +recompute:block", batch=128, **short)
    yield Case(model="qwen3-32b:layers=6", plan="dp64:zero3 +bf16", batch=64, priced=True, **short)
    yield Case(model="qwen3-0.6b", plan="dp8:zero3 +bf16", batch=16, **short)
    yield Case(model="qwen3-30b-a3b:layers=4", plan="dp64:zero3 +bf16 +recompute:block", batch=64, **short)
    yield Case(model="mixtral-8x7b:layers=4", plan="dp64:zero3 +bf16", batch=64, **short)
    yield Case(model="mixtral-8x7b:layers=4", plan="dp64:zero3 +bf16 +recompute:block", batch=128, priced=True, **short)
    yield Case(model="llama3.2-1b", plan="dp8 +amp_bf16", batch=16, maker="hf", seq=4096)
    yield Case(model="llama3.2-1b", plan="dp8:zero1 +amp_bf16", batch=16, maker="hf", seq=4096)
    yield Case(model=eight, plan="dp64:zero3 +bf16 +compiled", batch=64, **of)
    yield Case(model=eight, plan="dp64:zero3 +bf16 +compiled +recompute:block", batch=64, **of)


def _titan() -> Iterator[Case]:
    """torchtitan's own modules and parallelize functions: fp32 weights, bf16 reads, gradients summed in fp32."""
    of: dict[str, Any] = {"maker": "titan", "trainer": "torchtitan", "seq": 8192}
    short: dict[str, Any] = {**of, "seq": 4096}
    eight = "llama3-8b:layers=8"
    yield Case(model="llama3-8b", plan="dp64:zero3 +bf16 +recompute:operators", batch=64, **of)
    yield Case(model=eight, plan="dp64:zero3 +bf16", batch=64, **of)
    yield Case(model=eight, plan="dp64:zero3 +bf16 +recompute:block", batch=128, priced=True, **of)
    yield Case(model=eight, plan="dp64:zero3 +bf16 +recompute:operators", batch=64, expandable=True, **of)
    yield Case(model=eight, plan="dp8:zero3,shard8 +bf16 +recompute:operators", batch=64, priced=True, **of)
    yield Case(model=eight, plan="dp8:zero3 tp8:sp +bf16 +recompute:operators", batch=16, **of)
    yield Case(model=eight, plan="dp8:zero3 tp8:sp +bf16", batch=8, **of)
    yield Case(
        model=eight,
        plan="dp8:zero3 cp4 +bf16 +recompute:operators",
        batch=8,
        maker="titan",
        trainer="torchtitan",
        seq=32768,
    )
    yield Case(model="llama3-70b:layers=4", plan="dp64:zero3 +bf16 +recompute:block", batch=64, **of)
    yield Case(
        model="llama3-70b:layers=8", plan="dp32:zero3 tp8:sp +bf16 +recompute:block", batch=64, priced=True, **of
    )
    yield Case(
        model="llama3-70b:layers=8",
        plan="dp32:zero3 tp8:sp +bf16 +recompute:operators",
        batch=32,
        expandable=True,
        **of,
    )
    yield Case(model="llama3-405b:layers=4", plan="dp64:zero3 tp8:sp +bf16 +recompute:block", batch=64, **of)
    yield Case(model="qwen3-8b:layers=8", plan="dp64:zero3 +bf16 +recompute:operators", batch=128, **short)
    yield Case(model="qwen3-1.7b:tied=false", plan="dp8:zero3 +bf16", batch=16, priced=True, **short)
    yield Case(model="qwen3-30b-a3b:layers=4", plan="dp8:zero3 +bf16 +recompute:block", batch=16, **short)
    yield Case(model="qwen3-30b-a3b:layers=8", plan="dp8:zero3,ep8 +bf16", batch=16, **short)
    yield Case(model=eight, plan="dp64:zero3 +bf16 +compiled +recompute:operators", batch=64, **of)
    yield Case(model=eight, plan="dp8:zero3 tp8:sp +bf16 +compiled +recompute:operators", batch=16, **of)
    yield Case(
        model="llama3-70b:layers=4", plan="dp64:zero3 +bf16 +compiled +recompute:block", batch=64, priced=True, **of
    )


def _vision() -> Iterator[Case]:
    """timm's modules."""
    of: dict[str, Any] = {"maker": "vision"}
    yield Case(model="vit-l-16", plan="dp64 +amp_bf16", batch=4096, **of)
    yield Case(model="vit-l-16", plan="dp64:zero3 +bf16", batch=8192, trainer="fsdp", **of)
    yield Case(model="vit-l-16", plan="dp64:zero3 +bf16 +recompute:block", batch=16384, trainer="fsdp", **of)
    yield Case(model="vit-l-16", plan="dp64:zero3 +bf16 +compiled", batch=8192, trainer="fsdp", **of)
    yield Case(model="resnet50", plan="dp64 +amp_bf16", batch=8192, optimizer="momentum", **of)
    yield Case(model="resnet50", plan="dp64 +tf32", batch=8192, optimizer="momentum", priced=True, **of)
    yield Case(model="resnet152", plan="dp64 +amp_bf16", batch=8192, optimizer="momentum", **of)
    yield Case(model="convnext-base", plan="dp64 +amp_bf16", batch=4096, **of)


def cases() -> list[Case]:
    """All of them, in the order in which they run: drawn, so that a run that is cut short leaves a fair sample."""
    found = [*_zoo(), *_hugging_face(), *_titan(), *_vision()]
    random.Random(SEED).shuffle(found)
    return found


def again() -> list[Case]:
    """Those that run otherwise since: appliers of the zoo that make wide gradients a few at a time, share rings out by
    fused kernels and divide experts without an index of the host, first; then messages whose sleeps are timed."""
    words = (":zero1", "dp8 +bf16", "cp4")
    changed = [case for case in cases() if case.maker == "zoo" and any(word in case.plan for word in words)]
    return changed + [case for case in cases() if case.priced and case not in changed]


def aside() -> set[str]:
    """Half of the cases, by makers, set aside before any of them ran: nothing is chosen on these."""
    draw, found = random.Random(SEED + 1), set[str]()
    for maker in MAKERS:
        own = sorted(case.name for case in cases() if case.maker == maker)
        found.update(draw.sample(own, len(own) // 2))
    return found
