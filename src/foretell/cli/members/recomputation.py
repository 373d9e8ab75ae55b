"""What is said of a way to recompute activations."""

from __future__ import annotations

from foretell.cli.members._page import MemberPage, PageFigure


def names() -> list[str]:
    from foretell.plan.recomputation import recomputations

    return list(recomputations())


def page(name: str) -> MemberPage:
    from foretell.plan.recomputation import recomputation

    found = recomputation(name.lower())
    together = found.together(8)
    figures = [PageFigure("written", f"+recompute:{name.lower()}" if name.lower() != "none" else "by saying nothing")]
    if together:
        figures.append(PageFigure("together", f"{together} of a stage of 8 layers run again from one input"))
    if found.modules:
        figures.append(PageFigure("called", f"{' '.join(found.modules)} (recompute_modules of megatron-lm)"))
    data = {
        "name": name.lower(),
        "summary": found.summary,
        "searched": found.searched,
        "modules": found.modules,
        "references": found.references,
    }
    return MemberPage("recomputation", name.lower(), found.summary, tuple(figures), (), found.references, data)
