"""What is said of an optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from foretell.cli.members._page import MemberPage, PageFigure

if TYPE_CHECKING:
    from foretell.model.optimizer import OptimizerState, UpdateRule


def names() -> list[str]:
    from foretell.model.optimizer import OPTIMIZERS

    return list(OPTIMIZERS)


def page(name: str) -> MemberPage:
    from foretell.model.optimizer import optimizer

    found = optimizer(name.lower())
    figures = [*_rule(found.rule)]
    if found.matrix_rule:
        matrices = [PageFigure(f"matrices {one.name}", one.value) for one in _rule(found.matrix_rule)]
        figures = [PageFigure(f"others {one.name}", one.value) for one in figures] + matrices
    if found.needs_whole:
        needs = "whole matrices" if found.needs_matrices else "norms of whole weights"
        figures.append(PageFigure("needs", f"{needs}: ranks with shares of weights cannot run it"))
    figures.append(PageFigure("runs as", f"torch.optim.{found.torch}" if found.torch else "steps of its own"))
    figures.append(PageFigure("usual rate", f"{found.arguments['lr']:g}"))
    if found.words:
        figures.append(PageFigure("called", ", ".join(f"{word} ({dialect})" for dialect, word in found.words.items())))
    data = {
        "name": name.lower(),
        "summary": found.summary,
        "states": [state.name for state in found.rule.states],
        "flops": found.rule.flops,
        "needs_whole_weights": found.needs_whole,
        "arguments": found.arguments,
        "words": found.words,
        "references": found.references,
    }
    return MemberPage("optimizer", name.lower(), found.summary, tuple(figures), (), found.references, data)


def _rule(rule: UpdateRule) -> Iterator[PageFigure]:
    yield PageFigure("keep", ", ".join(map(_state, rule.states)) or "nothing")
    products = ", and products of whole matrices" if rule.of_matrix else ""
    yield PageFigure("compute", f"{rule.flops} flops for each element{products}")
    yield PageFigure("eager", f"{rule.kernels} kernels, one for each line")


def _state(state: OptimizerState) -> str:
    width = f" in {state.width:g} bytes" if state.width else ""
    return f"{state.name}{width}{' by rows and columns' if state.of_matrix else ''}"
