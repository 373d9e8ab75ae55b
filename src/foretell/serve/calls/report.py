"""The report of a plan: one HTML file with its charts inside, as `foretell report` writes it."""

from __future__ import annotations

from foretell.cost.peak_breakdown import alive
from foretell.cost.price import priced
from foretell.program.expand import expand
from foretell.program.lower import lower
from foretell.report.page import html
from foretell.report.sections import prediction_page
from foretell.serve.calls import Call
from foretell.serve.calls.predict import told
from foretell.serve.question import Question, read
from foretell.timeline.simulate import simulate


def answer(question: Question) -> str:
    asked = read(question)
    found, program = told(asked), expand(lower(asked.setting))
    played = simulate(priced(asked.setting, asked.place), program)
    held = alive(program, asked.setting, found.memory)
    return html(prediction_page(found, asked.setting, program, played, held, found.notes))


CALL = Call(Question, str, answer, media="text/html; charset=utf-8")
