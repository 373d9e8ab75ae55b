"""What each verb prints with `--json`, as types: `docs/json.md` is made of them, and tests hold real answers to them.

A verb whose answer is a value of the library has that value's type; one that adds keys has a type in this folder
that adds them. Keys may be added, and keep their meaning once they are here. A new verb adds an `AnswerForm`.

What is written is wider than what is computed with: infinity is null, a refusal has no plans in it.
"""

from foretell.cli.answers import bench, kept, lab, learnt, many_plans, measured, one_plan, written
from foretell.cli.answers.errors import FailureAnswer
from foretell.cli.answers.form import AnswerForm

FORMS: tuple[AnswerForm, ...] = (
    *one_plan.FORMS,
    *many_plans.FORMS,
    *written.FORMS,
    *measured.FORMS,
    *bench.FORMS,
    *lab.FORMS,
    *learnt.FORMS,
    *kept.FORMS,
)
"""In the order of the walk."""

TYPES = {form.command: form.type for form in FORMS}
"""The type of a command's answer, for programs that read it: `TYPES["predict"]`."""

__all__ = ["FORMS", "TYPES", "AnswerForm", "FailureAnswer"]
