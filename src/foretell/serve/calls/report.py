"""The report of a plan: one HTML file with its charts inside, as `foretell report` writes it."""

from __future__ import annotations

from foretell.report.page import html
from foretell.report.step_page import step_page
from foretell.serve.calls import Call
from foretell.serve.calls.predict import told
from foretell.serve.question import Question, read


def answer(question: Question) -> str:
    asked = read(question)
    return html(step_page(asked.setting, asked.place, told(asked)))


CALL = Call(Question, str, answer, media="text/html; charset=utf-8")
