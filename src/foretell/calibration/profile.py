# pyright: basic
"""The layers of a model, timed one by one: forward, backward and update, and the memory of a whole step.

This is how the oracle paper finds its parameters (Kahira et al. 2021, section 4.4): FW, BW and WU of each layer on the
device at hand, and gamma, what a framework's reuse of memory leaves of the sum over all layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map_only

from foretell import modules
from foretell.calibration.clock import DeviceClock
from foretell.calibration.held import HeldStorages
from foretell.calibration.measure import QUICK, THOROUGH, machine_of, scope_of
from foretell.cost.samples import LayerSample, Precision, Profile, Sample, sample
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.model.importers import torch_factory

CONTAINERS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)


class ProfiledModel(NamedTuple):
    """A model with one batch, on its device."""

    module: nn.Module
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    loss: Callable[[Any], torch.Tensor]
    precision: str


class LayerCall(NamedTuple):
    """What a layer was called with in a step."""

    path: str
    layer: nn.Module
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    output: Any


def profile(
    model: str,
    batch: int,
    device: str,
    quick: bool = False,
    watch: Callable[[str, int, int], None] = lambda layer, done, total: None,
) -> Profile:
    """Time every layer of a model with this many samples."""
    scope = scope_of(device, quick)
    subject = _subject(model, batch, scope.device)
    clock = DeviceClock(scope.device, QUICK if quick else THOROUGH)
    calls, output = _captured(subject)
    samples: list[Sample] = []
    for done, call in enumerate(calls):
        watch(call.path, done, len(calls))
        samples += _layer(call, clock)
    samples += _loss(subject, output, clock)
    samples.append(_update(subject, clock))
    peak, naive = _peak(subject, scope.device), _naive(calls, subject)
    return Profile(
        machine=machine_of(scope),
        model=model,
        batch=batch,
        precision=cast("Precision", subject.precision),
        samples=tuple(samples),
        peak_bytes=peak,
        gamma=peak / naive,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


# what is timed


def _subject(model: str, batch: int, device: str) -> ProfiledModel:
    if ":" in model and (model.partition(":")[0].endswith(".py") or "." in model.partition(":")[0]):
        built = torch_factory.real(model, batch, None)
        placed = tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), built.inputs)
        keywords = dict(placed) if isinstance(placed, dict) else {}
        arguments = () if keywords else placed if isinstance(placed, tuple) else (placed,)
        return ProfiledModel(
            built.module.to(device), arguments, keywords, built.loss or _first, _precision(built.module)
        )
    if model.partition(":")[0] not in zoo.names():
        raise BadInput(f"{model!r} cannot be run here", fix="a model of the zoo, or path/to/file.py:factory")
    module, example = modules.build(model).to(device), modules.example(model, batch)
    target = example.target.to(device)
    inputs = tuple(tensor.to(device) for tensor in example.inputs)
    return ProfiledModel(module, inputs, {}, lambda output: example.loss(output, target), _precision(module))


def _first(output: Any) -> torch.Tensor:
    """One number of an output that came without a loss."""
    tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    return tensors[0].float().mean()


def _precision(module: nn.Module) -> str:
    kind = next((parameter.dtype for parameter in module.parameters()), torch.float32)
    known = {torch.float32: "fp32", torch.bfloat16: "bf16:pure"}
    if kind not in known:
        raise BadInput(f"weights in {kind}", fix="float32, or bfloat16")
    return known[kind]


def layers_of(module: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers: children, and the members of lists of them."""
    for name, child in module.named_children():
        place = f"{path}.{name}" if path else name
        if isinstance(child, CONTAINERS):
            yield from layers_of(child, place)
        else:
            yield place, child


def _captured(subject: ProfiledModel) -> tuple[list[LayerCall], Any]:
    """What each layer is called with, the first time in a forward pass, and what comes out at the end."""
    found: dict[str, LayerCall] = {}
    hooks: list[Any] = []
    for path, layer in layers_of(subject.module):

        def told(layer: nn.Module, arguments: Any, keywords: Any, output: Any, path: str = path) -> None:
            kept = tree_map_only(torch.Tensor, _copied, (arguments, keywords, output))
            found.setdefault(path, LayerCall(path, layer, *kept))

        hooks.append(layer.register_forward_hook(told, with_kwargs=True))
    output = subject.module(*subject.arguments, **subject.keywords)
    for hook in hooks:
        hook.remove()
    return list(found.values()), tree_map_only(torch.Tensor, _copied, output)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers outside of any graph; it still says whether its gradient is wanted."""
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


# timing


def _layer(call: LayerCall, clock: DeviceClock) -> Iterator[Sample]:
    plain = tree_map_only(torch.Tensor, torch.Tensor.detach, (call.arguments, call.keywords))
    weights = [parameter for parameter in call.layer.parameters() if parameter.requires_grad]
    yield _sample(call, "forward", clock.times(lambda: call.layer(*plain[0], **plain[1])))
    leaves = [leaf for leaf in tree_leaves((call.arguments, call.keywords)) if _wanted(leaf)]
    # a layer may work in place, which a leaf does not allow
    moved = tree_map_only(torch.Tensor, lambda x: x.clone() if _wanted(x) else x, (call.arguments, call.keywords))
    outputs = [leaf for leaf in tree_leaves(call.layer(*moved[0], **moved[1])) if _wanted(leaf)]
    if outputs and (leaves or weights):
        yield _sample(call, "backward", clock.times(_backward(outputs, [*leaves, *weights])))


def _wanted(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


def _backward(outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> Callable[[], Any]:
    upstream = [torch.randn_like(output) for output in outputs]
    return lambda: torch.autograd.grad(outputs, inputs, upstream, retain_graph=True, allow_unused=True)


def _sample(call: LayerCall, part: str, seconds: Sequence[float]) -> Sample:
    parameters = sum(parameter.numel() for parameter in call.layer.parameters())
    return sample("profile", LayerSample(path=call.path, part=part, parameters=parameters), seconds)


def _loss(subject: ProfiledModel, output: Any, clock: DeviceClock) -> Iterator[Sample]:
    plain = tree_map_only(torch.Tensor, torch.Tensor.detach, output)
    yield sample("profile", LayerSample(path="loss", part="forward"), clock.times(lambda: subject.loss(plain)))
    leaves = [leaf for leaf in tree_leaves(output) if _wanted(leaf)]
    if leaves:
        yield sample(
            "profile", LayerSample(path="loss", part="backward"), clock.times(_backward([subject.loss(output)], leaves))
        )


def _update(subject: ProfiledModel, clock: DeviceClock) -> Sample:
    weights = [parameter for parameter in subject.module.parameters() if parameter.requires_grad]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    rule = torch.optim.AdamW(weights, lr=1e-6)
    count = sum(weight.numel() for weight in weights)
    found = sample("profile", LayerSample(path="", part="update", parameters=count), clock.times(rule.step))
    rule.zero_grad()
    return found


# memory


def _peak(subject: ProfiledModel, device: str) -> int:
    """Bytes at the fullest moment of a second step, states and all."""
    rule = torch.optim.AdamW(subject.module.parameters(), lr=1e-6)

    def step() -> None:
        rule.zero_grad(set_to_none=True)
        subject.loss(subject.module(*subject.arguments, **subject.keywords)).backward()
        rule.step()

    step()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        step()
        return torch.cuda.max_memory_allocated()
    states = [leaf for leaf in tree_leaves(list(rule.state.values())) if isinstance(leaf, torch.Tensor)]
    inputs = [leaf for leaf in tree_leaves((subject.arguments, subject.keywords)) if isinstance(leaf, torch.Tensor)]
    with HeldStorages([*subject.module.parameters(), *subject.module.buffers(), *states, *inputs]) as held:
        step()
    return held.peak


def _naive(calls: Sequence[LayerCall], subject: ProfiledModel) -> float:
    """The paper's sum over layers: inputs, outputs and their gradients, weights and theirs (its Table 3)."""
    total = 0.0
    for call in calls:
        for leaf in tree_leaves((call.arguments, call.keywords, call.output)):
            if isinstance(leaf, torch.Tensor):
                total += 2 * leaf.numel() * leaf.element_size()
    return total + sum(2 * weight.numel() * weight.element_size() for weight in subject.module.parameters())
