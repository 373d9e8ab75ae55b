"""What ranks are told to do, and what each of them reports. Both cross from process to process as JSON."""

from __future__ import annotations

import functools

import msgspec

from foretell.errors import BadInput
from foretell.hardware.disturbance import CALM, Disturbance
from foretell.learning.gradient_noise import GradientLook
from foretell.learning.tempo import FREE, Tempo
from foretell.model.source import in_words, kept, named
from foretell.oracle.request import Request
from foretell.oracle.resolve import resolve
from foretell.plan.job import per_rank
from foretell.plan.rotation import USUAL as ROTATION
from foretell.plan.setting import Setting
from foretell.plan.strategies.data import Data
from foretell.plan.text import parse
from foretell.plan.wrapped import in_plain_shares


class Seat(msgspec.Struct, frozen=True):
    """The one rank of a run that is started here, where others start the rest; and where all of them meet."""

    rank: int
    local: int  # its number on this host, which has `here` of them
    here: int
    meeting: str  # as torch writes it: a scheme, an address, a path
    bound: bool = False  # whether the cores that it may use are its own, and not those of all ranks here


class Rehearsal(msgspec.Struct, frozen=True):
    """One rank of a run, without the others: their messages take as long as they are priced on a cluster."""

    rank: int
    cluster: str
    priced: bool = True  # False: messages take no time
    calibration: str = ""
    depths: tuple[int, ...] = ()  # layers of two shallower models that stand for the model
    hollow: bool = False  # whether weights are never whole: only shares of them are filled


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """One run: a model under a plan, trained for some steps."""

    model: str
    plan: str
    batch: int = 0  # samples of a step, of all ranks; 0: one for each rank that splits them and each micro-batch
    seq: int = 0  # tokens of a sequence; 0: the model's own
    trainer: str = "pytorch"
    optimizer: str = ""  # the trainer's own
    rate: float = 0.0  # learning rate; 0: the usual one of the optimizer
    rate_batch: int = 0  # samples of a step that the rate is meant for; a larger batch has more of it; 0: any
    warmup: int = 0  # steps, from the first, over which the rate rises to its value
    task: str = "synthetic"
    skew: float = 0.0  # concentration of classes on ranks (`learning.skew`); 0: data is the same everywhere
    loss: str = ""  # file.py:function of outputs and target; empty: the model's own
    forward: bool = False  # whether steps are forward passes alone: nothing is trained
    steps: int = 20  # that are measured
    validate_every: int = 0  # steps between two looks at held-out data; 0: none
    noise_every: int = 0  # steps between two looks at the noise of gradients; 0: none
    dropped: int = 3  # before them: buckets are laid out anew, memory is allocated, the counts are taken
    seed: int = 0
    device: str = "cpu"
    threads: int = 0  # of a rank, for computing; 0: one, and beside a GPU its share of the host's cores
    traced: bool = False  # whether one more step is watched by the profiler
    weights: bool = False  # whether the trained weights are handed back
    method: str = ""  # an algorithm of `foretell simulate` in the place of the one that the plan means
    collectives: str = ""  # an algorithm of our own in the place of gloo's
    patience: float = 300.0  # seconds in which no rank goes on, after which a run is given up
    disturbance: Disturbance = CALM  # what is made to go wrong
    waits: bool = False  # whether waits stand for what operators compute
    tempo: Tempo = FREE  # how long gradients are made to take, where ranks go at their own pace
    computes: tuple[dict[str, float], ...] = ()  # seconds of each rank's waits, by phase; none: as operators had a core
    checkpoints: str = ""  # a folder that all ranks see; empty: none are written
    checkpoint_every: int = 0  # measured steps between two
    restarts: int = 0  # that a run which loses a rank may have
    fail_at: tuple[int, ...] = ()  # measured steps before which a rank dies, once each
    fail_every: float = 0.0  # mean seconds between deaths of ranks, at random; 0: none die
    dry: bool = False  # one rank alone, beside others that are not there
    rehearsal: Rehearsal | None = None  # None: all ranks are there
    alone: bool = False  # whether an axis of one rank is put on the model too: what its wrapper costs by itself
    seat: Seat | None = None  # None: all ranks are started here
    graph: str = ""  # of a model that is code, in the record of its run (`model.source.packed`)

    def __post_init__(self) -> None:
        """A configuration is a model of the zoo: whoever runs it, or reads its record, need not have the file."""
        words = in_words(self.model, self.seq or None)
        if words != named(self.model):  # and they have the sequence, too
            msgspec.structs.force_setattr(self, "seq", 0)
        msgspec.structs.force_setattr(self, "model", words)

    @property
    def setting(self) -> Setting:
        """The plan with its model, job and trainer. One that breaks rules is refused."""
        job = (self.batch, self.seq, self.trainer, self.optimizer, self.forward)
        return _setting(self.model, self.graph, self.plan, *job)


@functools.lru_cache(maxsize=64)
def _setting(
    model: str, graph: str, plan: str, batch: int, seq: int, trainer: str, optimizer: str, forward: bool
) -> Setting:
    """Of a run, whose every rank and page asks for it."""
    read = parse(plan)
    samples = batch or per_rank(read.microbatches, read)
    request = Request(
        model=model, plan=read, batch=samples, seq=seq, trainer=trainer, optimizer=optimizer, forward=forward
    )
    if graph:  # as it was lowered: where nothing is trained, it says so itself
        request = request.changed(graph=kept(model, graph, "the record of a run"))
    setting = resolve(request).setting
    wrapped = in_plain_shares(setting.trainer.wrapped)  # `appliers/tp.py` splits layers without DTensors
    data = setting.plan.axis(Data)
    if data is None or data.storage not in ("zero2", "zero3"):  # and so are updates, but of what FSDP2 has
        wrapped = msgspec.structs.replace(wrapped, update=0.0)
    # `appliers/cp.py` sends keys and values on, whoever's plan it is
    trained = msgspec.structs.replace(setting.trainer, wrapped=wrapped, rotation=ROTATION)
    return msgspec.structs.replace(setting, trainer=trained)


class Collective(msgspec.Struct, frozen=True, order=True):
    """Collectives or messages of one step of one rank that are alike; `payload` is what it gives to each of them."""

    kind: str
    axes: tuple[str, ...]
    ranks: int
    payload: int  # bytes
    count: int
    phase: str = ""  # forward, backward, optimizer; a pipeline's passes lie among each other: step


class Held(msgspec.Struct, frozen=True):
    """Memory that was held at the fullest moment of a step: where it was asked for, bytes, in how many blocks."""

    where: str
    size: int
    count: int


class Happening(msgspec.Struct, frozen=True, array_like=True):
    """Something that one thread or stream of a rank did."""

    name: str
    thread: str
    start: int  # nanoseconds of the machine's clock
    nanoseconds: int


class HeldOutCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A look at held-out data: after so many steps, samples, and seconds of training."""

    step: int
    samples: int
    seconds: float  # of all steps before it, dropped ones too; the looks themselves are not among them
    loss: float
    metric: float | None  # share of right answers; None where a target is no class
    perplexity: float | None = None  # of sequences of classes: exp of the mean cross-entropy of a token


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank has seen."""

    rank: int
    place: dict[str, int] = {}  # on each axis
    losses: list[float] = []  # of every step, dropped ones included; none on ranks without a loss
    phases: dict[str, list[float]] = {}  # seconds, a number for each measured step
    busy: dict[str, list[float]] = {}  # of these, seconds that the rank's own thread had a core
    steps: list[float] = []  # seconds of each measured step
    checks: list[HeldOutCheck] = []  # of held-out data, the same on every rank
    looks: list[GradientLook] = []  # at the noise of gradients, the same on every rank
    epoch_samples: int = 0  # of the task, to train on; 0: unknown
    collectives: list[Collective] = []
    trace: list[Happening] = []  # of one more step
    exposed: dict[str, float] = {}  # seconds of it, by axis, in which a GPU only talked to others
    idle: float = 0.0  # share of it in which a GPU waited for its host
    allocated: int = 0  # bytes at the fullest moment of a step
    resting: int = 0  # bytes between two steps
    reserved: int = 0  # bytes that a GPU's allocator held for them; 0: what is not in tensors is not kept
    alive: list[Held] = []  # what a step had made of a GPU's memory when it was fullest, of a rehearsal
    versions: dict[str, str] = {}
    staleness: dict[str, int] = {}  # updates that weights had seen since they were read: how often, by a server
    arrivals: list[int] = []  # what came to the server here, one after the other (`learning.order`)
    heard: list[int] = []  # what the worker here took up, one after the other
    paces: list[float] = []  # seconds from gradient to gradient, from the first on, less what servers held it up
    # seconds from the reply to each worker to its next push, as the server here saw them
    returns: list[list[float]] = []
    served: list[float] = []  # seconds that the server here was busy with each push
    late: int = 0  # gradients that took longer than the tempo that was asked for


class Failure(msgspec.Struct, frozen=True):
    """Why a run came to nothing: a kind of `foretell.errors`, or what Python said."""

    kind: str
    what: str
    where: str = ""
    fix: str = ""
    begun: bool = True  # False: no rank was started, and another try would end the same
    at: float = 0.0  # when a rank said so, by the monotonic clock of its machine

    def raised(self, reports: tuple[Report, ...] = ()) -> BadInput:
        """As an error to raise: a person is told the same, whichever process found out."""
        if not self.begun:
            return BadInput(self.what, where=self.where, fix=self.fix)
        return RunFailed(self.what, where=self.where, fix=self.fix, reports=reports)


class RunFailed(BadInput):
    """A run that came to nothing, with what its ranks had measured until then."""

    def __init__(self, what: str, *, where: str = "", fix: str = "", reports: tuple[Report, ...] = ()) -> None:
        super().__init__(what, where=where, fix=fix)
        self.reports = reports


class RunStopped(KeyboardInterrupt):
    """A run that somebody interrupted, with what its ranks had measured until then."""

    def __init__(self, reports: tuple[Report, ...]) -> None:
        super().__init__()
        self.reports = reports


class RunOutcome(msgspec.Struct, frozen=True):
    """All that comes of an assignment: a report from each rank, or a failure with the reports until then."""

    reports: tuple[Report, ...] = ()
    failure: Failure | None = None
