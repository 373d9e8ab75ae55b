"""What torch is asked to judge: models, degrees and the choices torch leaves to its user."""

from __future__ import annotations

from math import prod

import msgspec
from hypothesis import strategies as st


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One zoo model, trained one step on `batch` samples a data rank, over a mesh replicate x shard x tensor.

    sequence      sequence parallelism between the split layers
    shared_input  the gradient of an input that several split layers read is summed once, not once a layer
    embedding     the token table in shares of its `rows`, or `replicated`
    logits        of a split head: `gathered`, or `parallel` (the loss sees shares); or the head is `replicated`
    reshard       blocks give their gathered weights back after the forward pass
    settled       gradients that are summands along the tensor axis are summed before the optimizer reads them
    compute       type of the gathered weights, if not the stored one
    reduce        type in which gradients are summed up, if not the computed one
    """

    model: str
    batch: int = 1
    replicate: int = 1
    shard: int = 1
    tensor: int = 1
    sequence: bool = False
    shared_input: bool = False
    embedding: str = "rows"
    logits: str = "gathered"
    reshard: bool = True
    settled: bool = True
    compute: str = ""
    reduce: str = ""

    def axes(self) -> dict[str, int]:
        """The axes with more than one rank, outermost first."""
        sizes = {"replicate": self.replicate, "shard": self.shard, "tensor": self.tensor}
        return {name: size for name, size in sizes.items() if size > 1}

    @property
    def world(self) -> int:
        return prod(self.axes().values())


class Collective(msgspec.Struct, frozen=True, order=True):
    """Calls of one kind along one axis, with the bytes that one rank puts in and gets out of each.

    The phase is forward, backward, settling (the recorder's own sums, see `Case.settled`) or optimizer.
    """

    phase: str
    kind: str
    axis: str
    input_bytes: int
    output_bytes: int
    count: int


class Observed(msgspec.Struct, frozen=True):
    """What rank 0 did in one step, or why torch could not run it."""

    collectives: tuple[Collective, ...] = ()
    failure: str = ""


# What to ask. ---------------------------------------------------------------------------------------

TENSOR = (1, 2, 4, 8)
DATA = (1, 2, 3, 4, 8, 24, 64, 128, 1024)
LARGEST_WORLD = 1024


@st.composite
def models(draw: st.DrawFn, tensor: int = 1) -> str:
    """A small llama, gpt or bert whose heads, feed-forward, vocabulary and sequence divide over the tensor axis."""
    family = draw(st.sampled_from(("llama", "gpt", "bert")))
    size = draw(st.sampled_from((8, 16)))
    shared = tensor * draw(st.sampled_from((1, 2)))
    heads = shared * draw(st.sampled_from((1, 2))) if family != "bert" else shared
    fields: dict[str, object] = {
        "layers": draw(st.integers(1, 4)),
        "heads": heads,
        "hidden": heads * size if family == "bert" else draw(st.sampled_from((64, 72, 128, 256))),
        "ffn": 8 * draw(st.sampled_from((8, 11, 32))),
        "vocab": 8 * draw(st.sampled_from((25, 64))),
        "seq": 8 * draw(st.integers(1, 4)),
        "dtype": draw(st.sampled_from(("fp32", "bf16"))),
    }
    if family != "bert":
        fields |= {"kv_heads": shared, "head_dim": size, "tied": draw(st.booleans())}
    if family == "llama":
        fields |= {"qkv_bias": draw(st.booleans()), "qk_norm": draw(st.booleans())}
    if family == "gpt":
        positions = draw(st.sampled_from(("learned", "rotary", "alibi", "none")))
        fields |= {"positions": positions, "gated": draw(st.booleans()), "bias": draw(st.booleans())}
        fields |= {"attention": "efficient"} if positions == "alibi" else {}
    if family == "bert":
        fields |= {"objective": draw(st.sampled_from(("features", "mlm"))), "positions": 64}
    return f"{family}:" + ",".join(f"{name}={_word(value)}" for name, value in fields.items())


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@st.composite
def cases(draw: st.DrawFn, degrees: tuple[int, ...] = TENSOR, tables: tuple[str, ...] = ("rows", "replicated")) -> Case:
    """Small models on meshes of up to 1,024 ranks, with every choice that torch's styles leave open."""
    tensor = draw(st.sampled_from(degrees))
    shard = draw(st.sampled_from([n for n in DATA if 1 < n * tensor <= LARGEST_WORLD]))
    replicate = draw(
        st.sampled_from([n for n in (1, 2, 4) if shard > 1 and n * shard * tensor <= LARGEST_WORLD] or [1])
    )
    model = draw(models(tensor))
    tied = "tied=true" in model or "objective=mlm" in model
    whole = model.startswith("bert") or "positions=alibi" in model  # reads the whole sequence at the first layer
    split = draw(st.sampled_from(tables)) == "rows" or tied
    sequence = tensor > 1 and split and not whole and draw(st.booleans())
    return Case(
        model=model,
        batch=draw(st.integers(1, 3)),
        replicate=replicate,
        shard=shard,
        tensor=tensor,
        sequence=sequence,
        shared_input=not sequence and draw(st.booleans()),
        embedding="rows" if split or sequence else "replicated",
        logits=draw(st.sampled_from(("gathered", "parallel"))),
        reshard=draw(st.booleans()),
        compute=draw(st.sampled_from(("", "bf16"))) if shard > 1 else "",
        reduce=draw(st.sampled_from(("", "fp32"))) if shard > 1 else "",
    )


LLAMA_8B = "llama3-8b:seq=4096,dtype=bf16"

GOLDEN = {
    Case(model=LLAMA_8B, shard=1024): {("all-gather", "shard"): 65, ("reduce-scatter", "shard"): 33},
    Case(model=LLAMA_8B, shard=128, tensor=8, embedding="replicated"): {
        ("all-gather", "shard"): 65,
        ("reduce-scatter", "shard"): 33,
        ("all-reduce", "tensor"): 225,
        ("all-gather", "tensor"): 1,
    },
    Case(model=f"{LLAMA_8B},layers=4", tensor=8, embedding="replicated"): {
        ("all-reduce", "tensor"): 29,
        ("all-gather", "tensor"): 1,
    },
}
"""Counts recorded for this shape before this recorder was written (all but the gather at four layers).

225 sums are seven in each of 32 layers and one outside them, the head's: with the table in shares there would
be one more, so it is replicated here. That is read from the count; the record does not say it.
"""
