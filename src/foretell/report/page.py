"""One HTML file: sections with charts, tables and text, in the order in which a person asks."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from foretell.report.svg import COLOURS, Chart, quoted
from foretell.version import __version__

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Card:
    """One figure that a person looks for first."""

    name: str
    value: str
    beside: str = ""


@dataclass(frozen=True)
class Section:
    """A heading with text, charts and a table under it; what is empty is left out."""

    title: str
    text: str = ""
    charts: tuple[Chart, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Page:
    """All that is in a file."""

    title: str
    plan: str
    cards: tuple[Card, ...]
    sections: tuple[Section, ...]
    notes: tuple[str, ...] = ()
    papers: tuple[str, ...] = ()
    command: str = ""

    @property
    def charts(self) -> list[Chart]:
        return [chart for section in self.sections for chart in section.charts]


def body(page: Page) -> str:
    """What a page shows below its heading, for one that has a heading of its own."""
    sections = "".join(map(_section, page.sections))
    return f"{_cards(page.cards)}{_notes(page.notes)}{sections}{_papers(page.papers)}"


def html(page: Page) -> str:
    """The file, complete: it asks for nothing from anywhere."""
    plan = f'<p class="plan">{quoted(page.plan)}</p>' if page.plan else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">'
        f"<title>{quoted(page.title)}</title><style>{asset('style.css')}</style>"
        f'<style id="chart-style">{asset("chart.css")}</style></head><body>'
        f"<header><div><h1>{quoted(page.title)}</h1>{plan}</div>"
        '<button id="theme" type="button" hidden aria-pressed="false">Light or dark</button></header>'
        f"<main>{body(page)}</main>"
        f"<footer>{_footer(page)}</footer>"
        '<div id="tip" role="status" aria-live="polite"></div>'
        f'<script type="text/plain" id="figure-style">{figure_style()}</script>'
        f"<script>{asset('page.js')}</script></body></html>\n"
    )


def _cards(cards: Sequence[Card]) -> str:
    def one(card: Card) -> str:
        beside = f"<small>{quoted(card.beside)}</small>" if card.beside else ""
        return f"<div><dt>{quoted(card.name)}</dt><dd>{quoted(card.value)}{beside}</dd></div>"

    return f'<dl class="cards">{"".join(map(one, cards))}</dl>' if cards else ""


def _section(section: Section) -> str:
    said = f"<p>{quoted(section.text)}</p>" if section.text else ""
    several = len(section.charts) > 1  # alone, a chart is named by the heading
    charts = "".join(_figure(chart, several) for chart in section.charts)
    return f"<section><h2>{quoted(section.title)}</h2>{said}{charts}{_table(section.columns, section.rows)}</section>"


def _figure(chart: Chart, named: bool) -> str:
    title = f"<h3>{quoted(chart.title)}</h3>" if named else ""
    legend = "".join(f'<li><i class="{_swatch(colour)}"></i>{quoted(name)}</li>' for colour, name in chart.legend)
    listed = f'<ul class="legend">{legend}</ul>' if legend else ""
    numbers = (
        f"<details><summary>The numbers</summary>{_table(chart.columns, chart.rows)}</details>" if chart.rows else ""
    )
    save = f'<button type="button" data-save="{quoted(chart.name)}">Save as SVG</button>'
    return (
        f'<figure>{title}<div class="scroll" tabindex="0" role="region" aria-label="{quoted(chart.title)}">'
        f"{chart.svg()}</div>{listed}<figcaption>{quoted(_sentence(chart.told))} {save}</figcaption>{numbers}</figure>"
    )


def _swatch(colour: int) -> str:
    return f"b{colour % COLOURS}{' second' if colour >= COLOURS else ''}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{quoted(name)}</th>' for name in columns)
    lines = "".join(f"<tr>{''.join(f'<td>{quoted(cell)}</td>' for cell in row)}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{quoted(columns[0])}">{table}</div>'


def _notes(notes: Sequence[str]) -> str:
    lines = "".join(f"<p>{quoted(_sentence(note))}</p>" for note in notes)
    return f'<div class="notes" role="note">{lines}</div>' if notes else ""


def _papers(papers: Sequence[str]) -> str:
    items = "".join(f"<li>{quoted(paper)}</li>" for paper in papers)
    return f'<section><h2>Literature</h2><ol class="papers">{items}</ol></section>' if papers else ""


def _footer(page: Page) -> str:
    again = f"<p>Made by <code>{quoted(page.command)}</code></p>" if page.command else ""
    return f"{again}<p>foretell {quoted(__version__)}. This file asks for nothing from the network.</p>"


@functools.cache
def _policy() -> str:
    """What the file may do: its own styles and script, known by their hashes, and no others that got into it."""
    styles = f"{_hash(asset('style.css'))} {_hash(asset('chart.css'))}"
    script = _hash(asset("page.js"))
    others = "img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; style-src {styles}; script-src {script}; {others}"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@functools.cache
def asset(name: str) -> str:
    """The text of a style or a script."""
    text = (HERE / name).read_text()
    if name == "style.css":
        text += "".join(f".b{at} {{ background: var(--c{at}); }}" for at in range(8))
    return text


@functools.cache
def figure_style() -> str:
    """The style of a figure that stands alone: light, and without variables, which editors of papers do not know."""
    colours = dict(re.findall(r"(--[a-z0-9]+):\s*(#[0-9a-f]+)", asset("style.css").split("}", 1)[0]))
    return re.sub(r"var\((--[a-z0-9]+)\)", lambda found: colours[found[1]], asset("chart.css"))
