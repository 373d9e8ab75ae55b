"""What a program gets where there is no answer."""

# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

import msgspec

from foretell.cli.answers.form import MAYBE


class BrokenRuleAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule that a plan breaks."""

    rule: str  # a short stable name
    why: str  # the rule with its numbers
    way_out: str = ""  # what would work


class ProblemAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, and what would work."""

    what: str  # what is wrong, with its numbers
    where: str  # the option, argument, file or field; empty: the command as a whole
    fix: str  # what would work; empty: nothing is known to
    refusals: tuple[BrokenRuleAnswer, ...] | msgspec.UnsetType = MAYBE  # of a plan: every rule that it breaks


class FailureAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """No answer: the exit code is 2, 70 (foretell crashed), or 129, 130, 143 (stopped by SIGHUP, Ctrl-C, SIGTERM)."""

    error: ProblemAnswer
