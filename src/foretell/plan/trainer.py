"""The software that runs a plan, as a small set of constants, each with its source.

A trainer is one file in `trainers/`. It gives what it differs in from the trainer it is `based_on`;
the rest is carried over, and its source then says so. All are in the end based on `pytorch`.

Constants are those of software, not of a device, a link or a run. Where a fit found them, the source names its runs.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from foretell.errors import BadInput, unknown
from foretell.hardware.table import Figure, Table, open_table
from foretell.model.optimizer import OPTIMIZERS
from foretell.plan.dispatch import DISPATCHES
from foretell.plan.expert_rows import ExpertRows
from foretell.plan.figures import (
    Bytes,
    Count,
    Depths,
    Divisor,
    PerGradient,
    PerLogit,
    PerParameter,
    PerScore,
    Ratio,
    Ratios,
    Seconds,
    Share,
    Shares,
    Sharpness,
    SomeShare,
    figures,
    fill,
    keys,
)
from foretell.plan.kept import Kept
from foretell.plan.lacking import split, without
from foretell.plan.members import strategies
from foretell.plan.offered import Legal, Offered, StorageWord
from foretell.plan.policies.precision import FORMATS
from foretell.plan.recomputation import NUMBERED, RECOMPUTATIONS
from foretell.plan.rotation import Rotation
from foretell.plan.stage_rules import Stages
from foretell.plan.stored import Stored
from foretell.plan.strategies.pipeline import SCHEDULES
from foretell.plan.wrapped import Wrapped

Execution: TypeAlias = Literal["eager", "compiled", "captured"]
Kernel: TypeAlias = Literal["unfused", "flash1", "flash2", "flash3"]


def allows(words: tuple[str, ...], word: str) -> bool:
    """Whether a list of words has this one, or all."""
    return word in words or "any" in words


class Host(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Time that the host needs to launch work, and how it meets the device's time.

    Host seconds of a stage and micro-batch are `launch` x launches + `layer` x layers + `microbatch`,
    the first two grown by `tensor_growth` for each doubling of the tensor ranks. A trainer that was fitted
    by layer has no time per launch, so that nothing is counted twice.
    """

    launch: Seconds  # per operator launched one by one
    tensor: Seconds  # per weight tensor, and per state of it, in an optimizer's step on plain weights
    layer: Seconds  # per layer and micro-batch, forward and backward
    layer_recomputes: bool  # whether `layer` has the second forward pass of full recomputation in it
    microbatch: Seconds  # per micro-batch
    tensor_growth: Share  # more of it for each doubling of the tensor ranks: a group waits for its slowest host
    floor: Seconds  # least time per layer and pipeline slot, where pipeline stages lie on several nodes ...
    floor_tensor: Seconds  # ... and what each tensor rank adds to that floor ...
    floor_pair: Seconds  # ... and each ordered pair of them
    device_layer: Seconds  # device time per layer that does not shrink with the work: small kernels, gaps
    sharpness: Sharpness  # q in (host^q + device^q)^(1/q); inf is the larger of the two


class Attention(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The kernels between queries and outputs."""

    kernel: Kernel
    score_bytes: PerScore  # traffic of the unfused softmax and dropout, forward
    score_backward: Ratio  # backward traffic over forward traffic
    peak: Shares  # share of the matrix peak that a flash kernel reaches forward, by generation and architecture
    flash_backward: Divisor  # its rate backward over its rate forward; the work is 2.5 times as much
    layer_passes: Ratio  # over the hidden tensor in fp32, forward, where norms, GELU, dropout are written out in pieces


class Fusion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Traffic of the operators between the matrix products, when a layer is priced as a whole."""

    hidden_passes: Ratios  # times that the hidden tensor is read or written per layer forward, by architecture
    backward: Ratio  # backward passes over forward passes
    logit_bytes: PerLogit  # traffic of the loss, forward
    logit_passes: Ratio  # forward and backward over forward
    vocabulary: Literal["training", "full"]
    # The product that makes the logits is in the precision of the other layers, or in fp32 (TF32, where there is one).
    winograd: tuple[str, ...]  # parts of a convolution for which its library may take Winograd's algorithm
    channels_last: bool  # whether images have their channels innermost, as matrix units want them
    pointwise_turned: bool  # whether 16-bit images with channels first are turned for windows of 1 x 1 too
    old_groups: bool  # whether 16-bit grouped convolutions with channels last run on cuDNN 8's kernels
    grouped: Literal["pytorch", "library"]  # whose kernel multiplies the rows of each expert
    norms_take_in: bool  # whether batch norms do the sum and the activation after them in their own kernels
    complex_rotary: bool  # whether positions are turned as complex numbers, which compilers leave as they are


class Gradients(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How gradients are summed over the data axis."""

    wire: PerGradient  # as they travel, in 16-bit training
    first_bucket: Bytes
    bucket: Bytes  # the buckets after the first; 0: all gradients in one
    bucket_rank: Bytes  # a bucket is at least this times the data ranks
    rate: SomeShare  # of a benchmark's rate that messages for weights reach between nodes inside a step
    hop: Seconds  # of such a message: time of each step of its ring, at least
    overlap: Shares  # how much of the exchange may run behind the backward pass, by storage
    overlap_pipeline: Shares  # the same with more than one stage
    each: tuple[StorageWord, ...]  # storages in which each micro-batch's gradients are summed; else once a step
    each_pipeline: tuple[StorageWord, ...]  # the same with more than one stage
    whole: tuple[StorageWord, ...]  # storages in which they are summed for everybody, in one message, though in shares

    def first(self, data_ranks: int) -> float:
        """Bytes of the first bucket; 0: there is only one."""
        return max(self.first_bucket, self.bucket_rank * data_ranks)

    def later(self, data_ranks: int) -> float:
        """Bytes of the buckets after the first."""
        return max(self.bucket, self.bucket_rank * data_ranks)


class TensorAxis(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the tensor axis does that mathematics leaves open."""

    reduce: Literal["tensor", "consumer"]
    # The gradient of an input that several column-split layers share travels once, or once for each of them.
    regather: bool  # sequence parallelism: keep the input in shares, gather it again for the weight's gradient
    vocabulary_multiple: Count  # the vocabulary is padded to this times the tensor ranks; 0: not padded
    loss: Literal["shares", "gathered"]  # cross entropy on shares of the vocabulary, or on gathered logits
    row_bias: Literal["whole", "shares"]
    # Sequence parallelism: the gradient of a bias after a sum, from all positions or from a rank's share of them.
    hop: Seconds  # of a collective between nodes that layers wait for: time of each step of the ring, at least
    overlap: Share  # how well sums and gathered inputs of the backward pass run beside its products; 0: waited for
    pieces: Share  # how well messages of both passes, cut up, run beside the product that makes or takes them
    gathered: Literal["read", "cast"]  # shares of the sequence as they were made, or as products of few bits read them
    sums: Literal["each", "together"]
    # Gradients of weights that all tensor ranks have whole (norms) are summed one by one, or in one message.


class Splits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Axes that split images, filters or channels: what their layers take beside kernels, links and network."""

    joins: Ratios  # seconds a TB of an activation that is cut or joined on its way; `dp`: beside groups that share data
    halo: Seconds  # of cutting, padding and joining around each message of a halo, while the device stands
    images: Bytes  # of split images that a rank sends in a second, at most; 0: as fast as links and network are
    reached: Shares  # of what links and network allow, that messages of an axis reach
    sums: Literal["read", "gathered"]  # gradients of what split filters read are summed there, or where it was gathered
    leaders: bool  # whether one rank for all that split an image sums their gradients with the other groups


class Alive(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is alive beside weights, states and saved activations, and what the device reports on top."""

    scatters_loss: bool  # whether the gradient of the losses is laid into zeros, as large as the logits, on its way
    shared_loss_copies: Count  # as large as a rank's logits that the backward pass of a loss in shares makes besides
    new_gradients: bool  # whether the backward pass makes gradients, each when its layer is done; else they rest
    update_copies: Ratio  # states' worth of memory that an update of Adam by lists of tensors makes for itself
    update_shared: PerParameter  # wide gradients made for an update of 16-bit weights, divided by the data ranks
    update_group: Count  # gradients that are made wide at a time where weights lie in shares; 0: all of a rank's
    dummy_gradients: PerParameter  # what autograd gets of each shape of matrix whose kernel adds up its gradient itself
    cached_gradients: PerParameter  # freed 16-bit gradients that stay in the pool while states lie in shares
    gather: PerParameter  # copies while weights are gathered after a step on shares of the states
    managed: bool  # whether memory is the driver's to move: what a device does not hold pages to the host
    usable: SomeShare  # of a device that a run fills with room to spare
    most: SomeShare  # of a device that a process can hold at all: beyond it allocations fail
    held: Depths  # tensor axis: bytes per token and hidden unit that streams hold back, by pipeline ranks, middle
    held_most: Depths  # the same, most; the least is none
    workspace: Ratios  # MiB that libraries keep in tensors, by architecture
    reserved: Divisor  # what the allocator reserves over what tensors take
    context: Bytes  # of libraries, beside the context of the device
    communicators: bool  # whether ranks talk through communicators that hold buffers on the device


class Defaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is meant when neither plan nor job says."""

    precision: str
    optimizer: str


class Trainer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The constants of one trainer, complete."""

    execution: Execution
    host: Host
    wrapped: Wrapped
    attention: Attention
    fusion: Fusion
    gradients: Gradients
    tensor: TensorAxis
    experts: ExpertRows
    rotation: Rotation
    splits: Splits
    storage: Stored
    pipeline: Stages
    memory: Alive
    kept: Kept
    legal: Legal
    offered: Offered
    defaults: Defaults

    name: str = ""
    summary: str = ""
    based_on: str = ""
    sources: tuple[tuple[str, str], ...] = ()

    def source(self, key: str) -> str:
        """Where a constant comes from, by its dotted key: "host.layer"."""
        return dict(self.sources)[key]

    @property
    def fingerprint(self) -> str:
        """A short name for exactly these constants, the same on every machine.

        Names, sources and what the search offers do not count: they change no prediction.
        """
        text = repr([(key, self.constant(key)) for key in CONSTANTS if not key.startswith("offered.")])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def constant(self, key: str) -> Any:
        """A constant by its dotted key."""
        return functools.reduce(getattr, key.split("."), self)


CONSTANTS: Final = tuple(keys(Trainer))
"""The dotted keys of all constants, in order."""

_FOLDER: Final = Path(__file__).with_name("trainers")
_ABOUT: Final = ("summary", "era", "snapshot_of", "based_on", "alias_of")
_BY_WORD: Final = ("attention.peak", "fusion.hidden_passes", "memory.workspace", "gradients.overlap",
                   "gradients.overlap_pipeline", "rotation.merged", "rotation.carried")  # fmt: skip


def names() -> dict[str, str]:
    """The trainers that foretell knows, with a line on each; a name that stands for another says so."""
    return {path.stem: _summary(path) for path in sorted(_FOLDER.glob("*.toml"), key=lambda path: path.stem)}


def era(name: str) -> str:
    """The last year of what a trainer stands for, of one that is kept to repeat published runs; of today's nothing."""
    about, _ = _parts(_member(split(name)[0], ""))
    return era(about["alias_of"]) if "alias_of" in about else about.get("era", "")


def of_today(name: str) -> str:
    """The trainer that a snapshot is of: published runs of one are of the other. Of all others, itself."""
    base, _ = split(name)
    return _parts(_member(base, ""))[0].get("snapshot_of", base)


def trainer(name: str) -> Trainer:
    """A trainer by its name, which may say kernels that are not built (`lacking`), or from a TOML file of your own."""
    return _read(Path(name)) if name.endswith(".toml") else _named(name)


@functools.cache
def _named(name: str) -> Trainer:
    base, lacks = split(name)
    return without(_named(base), lacks) if lacks else _read(_member(base, ""))


def _member(name: str, where: str) -> Path:
    found = {path.stem: path for path in _FOLDER.glob("*.toml")}
    if name not in found:
        error = unknown("trainer", name, found)
        raise error.within(where) if where else error
    return found[name]


def _summary(path: Path) -> str:
    about, _ = _parts(path)
    return about.get("summary") or f"the same as {about['alias_of']}"


def _read(path: Path) -> Trainer:
    about, table = _parts(path)
    if "alias_of" in about:
        return _named(about["alias_of"])
    given = _gather(path, (), about, table)
    made: Trainer = fill(
        Trainer,
        given,
        path.name,
        name=path.stem,
        summary=about["summary"],
        based_on=about.get("based_on", ""),
        sources=tuple((key, given[key].source) for key in CONSTANTS if key in given),
    )
    _check_words(made, path.name)
    return made


def _gather(path: Path, above: tuple[Path, ...], about: dict[str, str], table: Table) -> dict[str, Figure]:
    """The figures of a file, of which this is known, and of those it is based on, its own first."""
    if path in above:
        chain = " -> ".join(one.stem for one in (*above, path))
        raise BadInput(f"based on itself: {chain}", where=f"{path.name}, based_on")
    own = figures(table, Trainer, *_ABOUT, "sources")
    table.check_every_source_is_used()
    base = about.get("alias_of") or about.get("based_on", "")
    if not base:
        return own
    file = _member(base, f"{path.name}, based_on")
    below = _gather(file, (*above, path), *_parts(file))
    carried = {key: Figure(f.value, _carried(base, f.source), f.where) for key, f in below.items()}
    return {**carried, **own}


def _carried(base: str, source: str) -> str:
    return source if source.startswith("carried over from ") else f"carried over from {base}: {source}"


def _parts(path: Path) -> tuple[dict[str, str], Table]:
    """What a file says about the trainer, and its table."""
    table = open_table(path)
    about = {key: table.text(key, "what it is, in one line") for key in _ABOUT if key in table}
    if "alias_of" in about and len(list(table)) > 1:
        raise BadInput("a name that stands for another has nothing of its own", where=table.file, fix="based_on")
    if "alias_of" not in about:
        table.text("summary", "what it is, in one line")
    return about, table


def _single(rules: Iterable[str]) -> list[str]:
    return [one for rule in rules for one in rule.split(",")]


def _check_words(made: Trainer, where: str) -> None:
    """Tables must say what holds for the words and numbers that they do not have; words must be known."""
    for key in _BY_WORD:
        if "any" not in dict(made.constant(key)):
            raise BadInput("no entry for `any`", where=f"{where}, {key}", fix="{ any = 0.5, hopper = 0.35 }")
    if 64 < made.host.sharpness < float("inf"):  # seconds to such a power are zero
        raise BadInput(f"{made.host.sharpness:g} is above 64", where=f"{where}, host.sharpness", fix="4, or inf")
    for key in ("memory.held", "memory.held_most"):
        depths = [depth for depth, _ in made.constant(key)]
        spelt = all(depth.isdecimal() and len(depth) < 9 for depth in depths)
        if not spelt or depths[:1] != ["1"] or depths != sorted(depths, key=int):
            fix = "{ 1 = 100, 2 = 5, 4 = 50, 8 = 75 }"
            raise BadInput(f"{depths} are not pipeline ranks from 1 up", where=f"{where}, {key}", fix=fix)
    words: tuple[tuple[str, Iterable[str], Iterable[str]], ...] = (
        ("legal.strategies", made.legal.strategies, strategies()),
        ("pipeline.schedules", made.pipeline.schedules, SCHEDULES),
        ("offered.schedules", made.offered.schedules, SCHEDULES),
        ("offered.recompute", _single(made.offered.recompute), (*RECOMPUTATIONS, *NUMBERED)),
        ("legal.precisions", made.legal.precisions, FORMATS),
        ("experts.dispatch", [made.experts.dispatch], DISPATCHES),
        ("defaults.precision", [made.defaults.precision], FORMATS),
        ("defaults.optimizer", [made.defaults.optimizer], OPTIMIZERS),
    )
    for key, given, all_words in words:
        for word in given:
            if word not in (*all_words, "any"):
                raise unknown(key.split(".")[1], word, [*all_words, "any"]).within(f"{where}, {key}")
    if not allows(made.legal.precisions, made.defaults.precision):
        precisions = ", ".join(made.legal.precisions)
        raise BadInput(f"{made.defaults.precision} is not legal", where=f"{where}, defaults.precision", fix=precisions)
