"""A page as one picture, for a README or a slide: the figures, where the time goes, and what each rank does."""

from __future__ import annotations

from typing import Final

from foretell.report import svg
from foretell.report.page import Card, Page
from foretell.report.svg import LETTER, RIGHT, WIDTH, Chart

CARDS: Final = 4
"""The first of a page: step, rate, utilisation, memory."""

CHARTS: Final = ("step", "pipeline")
HEIGHT: Final = 118
MARGIN: Final = 16


def poster(page: Page) -> list[Chart]:
    """What is drawn, from top to bottom."""
    return [_heading(page), *(chart for name in CHARTS for chart in page.charts if chart.name == name)]


def _heading(page: Page) -> Chart:
    room = (WIDTH - MARGIN - RIGHT) / CARDS
    letters = int((WIDTH - 2 * MARGIN) / (1.05 * LETTER))
    plan = page.plan if len(page.plan) <= letters else f"{page.plan[: letters - 1]}…"
    drawn = [svg.text(MARGIN, 28, page.title, kind="title"), svg.text(MARGIN, 48, plan, kind="mono")]
    for at, card in enumerate(page.cards[:CARDS]):
        drawn.append(_card(card, MARGIN + at * room))
    told = "; ".join(f"{card.name} {card.value}, {card.beside}" for card in page.cards[:CARDS])
    return Chart("heading", "", f"{page.title}, {page.plan}. {told}", "".join(drawn), HEIGHT)


def _card(card: Card, x: float) -> str:
    beside = card.beside.partition(", ")[0]
    return (
        svg.text(x, 72, card.name, kind="small")
        + svg.text(x, 92, card.value, kind="figure")
        + svg.text(x, 107, beside, kind="small")
    )
