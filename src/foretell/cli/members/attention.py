"""What is said of an attention kernel."""

from __future__ import annotations

from foretell.cli.members._page import MemberPage, PageFigure


def names() -> list[str]:
    from foretell.model.attention import ATTENTIONS

    return list(ATTENTIONS)


def page(name: str) -> MemberPage:
    from foretell.model.attention import SCORELESS, attention_kernel

    found = attention_kernel(name.lower())
    takes = ["16-bit types" if found.half_only else "every type", "a bias" if found.takes_bias else "no bias"]
    figures = [
        PageFigure("written", f"attention={name.lower()}, such as llama3-8b:attention={name.lower()}"),
        PageFigure("takes", " and ".join(takes) + (f"; else {found.otherwise} runs" if found.otherwise else "")),
        PageFigure(
            "heads", "may share keys and values" if found.shares_heads else "that share keys and values are repeated"
        ),
        PageFigure(
            "scores", "are never made" if found.priced_as == SCORELESS else "of every query and key that it sees"
        ),
        PageFigure("positions", "in shares: keys and values go round" if found.rotates else "are whole on every rank"),
    ]
    data = {
        "name": name.lower(),
        "summary": found.summary,
        "half_only": found.half_only,
        "takes_bias": found.takes_bias,
        "otherwise": found.otherwise,
        "shares_heads": found.shares_heads,
        "rotates": found.rotates,
        "references": found.references,
    }
    return MemberPage("attention", name.lower(), found.summary, tuple(figures), (), found.references, data)
