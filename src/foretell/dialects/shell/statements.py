"""The statements of a shell script."""

from __future__ import annotations

import re
from typing import Final

from foretell.dialects.shell.syntax import (
    AndOrList,
    CaseStatement,
    CommandGroup,
    FunctionDefinition,
    IfStatement,
    LiteralText,
    LoopStatement,
    Negation,
    ShellAssignment,
    ShellTest,
    SimpleCommand,
    Statement,
    Word,
)
from foretell.dialects.shell.words import NAME, WordReader

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[([^]\n]*)\])?(\+?)=")
_REDIRECTION = re.compile(r"[0-9]*(<<-|<<<|<<|&>>|&>|>>|>&|>\||<&|<>|<|>)")
DEEPEST: Final = 60
"""Statements inside statements."""

_DECLARE: Final = tuple((LiteralText(word),) for word in ("export", "local", "declare", "readonly", "typeset"))


def parse(text: str) -> tuple[Statement, ...]:
    """The statements of a script."""
    parser = _Parser(text.replace("\r\n", "\n"))
    found = parser.statements(())
    if parser.at < len(parser.text):
        raise parser.wrong(f"{parser.text[parser.at : parser.at + 10].split()[0]!r} that nothing began")
    return found


class _Parser(WordReader):
    """Goes through a script from its beginning to its end."""

    def statements(self, stops: tuple[str, ...]) -> tuple[Statement, ...]:
        """Until one of these reserved words, which is left where it is, or the end of what encloses it."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.wrong("statements inside statements without end")
        found: list[Statement] = []
        while True:
            self.newlines()
            if self.at >= len(self.text) or self.peek(")") or self.peek(";;") or self.next_reserved(stops):
                break
            before = self.at
            found.append(self._chain())
            self.blank()
            if self.peek("&") and not self.peek("&&"):
                self.at += 1
            if self.at == before:
                raise self.wrong(f"{self.text[self.at : self.at + 10].strip()!r}")
        self.depth -= 1
        return tuple(found)

    def _chain(self) -> Statement:
        line = self.line
        first = self._pipeline()
        rest: list[tuple[str, Statement]] = []
        while True:
            self.blank()
            sign = next((one for one in ("&&", "||") if self.peek(one)), "")
            if not sign:
                return AndOrList(line, first, tuple(rest)) if rest else first
            self.at += 2
            self.newlines()
            rest.append((sign, self._pipeline()))

    def _pipeline(self) -> Statement:
        line = self.line
        if self.reserved("!"):
            return Negation(line, self._pipeline())
        parts = [self._statement()]
        while True:
            self.blank()
            if not self.peek("|") or self.peek("||"):
                return parts[0] if len(parts) == 1 else CommandGroup(line, tuple(parts))
            self.at += 2 if self.peek("|&") else 1
            self.newlines()
            part = self._statement()
            parts.append(
                SimpleCommand(part.line, part.assignments, part.words, part.into, part.fed, piped=True)
                if isinstance(part, SimpleCommand)
                else part
            )

    def _statement(self) -> Statement:
        self.blank()
        line = self.line
        if self.peek("[["):
            return self._test(line)
        if self.peek("(("):
            return ShellTest(line, expression=self.until("((", "))"))
        if self.peek("("):
            self.at += 1
            body = self.statements(())
            if not self.take(")"):
                raise self.wrong("')' is missing")
            return self._redirected(CommandGroup(line, body))
        word = self.reserved("if", "case", "for", "select", "while", "until", "{", "function")
        match word:
            case "if":
                return self._redirected(self._if(line))
            case "case":
                return self._redirected(self._case(line))
            case "for" | "select":
                return self._redirected(self._for(line))
            case "while" | "until":
                return self._redirected(self._while(line, until=word == "until"))
            case "{":
                body = self.statements(("}",))
                self.expect("}")
                return self._redirected(CommandGroup(line, body))
            case "function":
                return self._function(line)
            case _:
                declared = re.compile(r"([\w-]+)[ \t]*\([ \t]*\)").match(self.text, self.at)
                return self._function(line) if declared else self._simple(line)

    def _redirected(self, statement: Statement) -> Statement:
        """Where the output of a whole statement goes does not matter here."""
        self._redirections()
        return statement

    def _if(self, line: int) -> IfStatement:
        branches: list[tuple[tuple[Statement, ...], tuple[Statement, ...]]] = []
        otherwise: tuple[Statement, ...] = ()
        begin, text = self.at, ""
        while True:
            condition = self.statements(("then",))
            text = text or " ".join(self.text[begin : self.at].split())
            self.expect("then")
            branches.append((condition, self.statements(("elif", "else", "fi"))))
            found = self.expect("elif", "else", "fi")
            if found == "else":
                otherwise = self.statements(("fi",))
                self.expect("fi")
            if found != "elif":
                return IfStatement(line, tuple(branches), otherwise, text.rstrip("; "))

    def _case(self, line: int) -> CaseStatement:
        self.blank()
        word = self.word()
        self.expect("in")
        branches: list[tuple[tuple[Word, ...], tuple[Statement, ...]]] = []
        while True:
            self.newlines()
            if self.reserved("esac"):
                return CaseStatement(line, word, tuple(branches))
            self.take("(")
            patterns = [self.plain_word("a pattern of case")]
            while self.take("|"):
                patterns.append(self.plain_word("a pattern of case"))
            if not self.take(")"):
                raise self.wrong("')' after a pattern of case is missing")
            body = self.statements(("esac",))
            branches.append((tuple(patterns), body))
            self.newlines()
            if self.peek(";;"):
                self.at += 3 if self.peek(";;&") else 2

    def _for(self, line: int) -> LoopStatement:
        self.blank()
        begin = self.at
        if self.peek("(("):
            text = self.until("((", "))")
            name, words = (NAME.match(text.strip()) or [""])[0], ()
        else:
            match = NAME.match(self.text, self.at)
            if not match:
                raise self.wrong("for without a name")
            name, self.at = match[0], match.end()
            words = self._list() if self.reserved("in") else ()
            text = ""
        text = text or " ".join(self.text[begin : self.at].split())
        self.expect("do", "{")
        body = self.statements(("done", "}"))
        self.expect("done", "}")
        return LoopStatement(line, body, name, words, text=text)

    def _list(self) -> tuple[Word, ...]:
        words: list[Word] = []
        while True:
            self.blank()
            if self.at >= len(self.text) or self.text[self.at] in "\n;":
                return tuple(words)
            words.append(self.plain_word("a list"))

    def _while(self, line: int, *, until: bool) -> LoopStatement:
        begin = self.at
        condition = self.statements(("do",))
        text = " ".join(self.text[begin : self.at].split())
        self.expect("do")
        body = self.statements(("done",))
        self.expect("done")
        return LoopStatement(line, body, condition=condition, until=until, text=text.rstrip("; "))

    def _function(self, line: int) -> FunctionDefinition:
        match = re.compile(r"[ \t]*([\w-]+)[ \t]*(?:\([ \t]*\))?").match(self.text, self.at)
        if not match:
            raise self.wrong("a function without a name")
        self.at = match.end()
        self.newlines()
        body = self._statement()
        return FunctionDefinition(line, match[1], body.body if isinstance(body, CommandGroup) else (body,))

    def _test(self, line: int) -> ShellTest:
        self.at += 2
        words: list[Word] = []
        while True:
            self.newlines()
            if self.reserved("]]"):
                return ShellTest(line, tuple(words))
            sign = next((one for one in ("&&", "||", "(", ")", "<", ">") if self.peek(one)), "")
            if sign:
                self.at += len(sign)
                words.append((LiteralText(sign),))
                continue
            if self.at >= len(self.text):
                raise self.wrong("']]' is missing")
            before = self.at
            word = self.word(ends=" \t\n;&|")
            if self.at == before:
                raise self.wrong("what stands in [[ ]]")
            words.append(word)

    def _simple(self, line: int) -> SimpleCommand:
        assignments: list[ShellAssignment] = []
        words: list[Word] = []
        into: list[Word] = []
        fed: list[tuple[str, bool]] = []
        while True:
            self._redirections(into, fed)
            if self.at >= len(self.text) or self.text[self.at] in "\n;&|)":
                break
            match = _ASSIGNMENT.match(self.text, self.at)
            declares = bool(words) and words[0] in _DECLARE
            if match and (not words or declares):
                assignments.append(self._assignment(match))
                continue
            if self.peek("("):
                raise self.wrong("'(' where a word should be")
            words.append(self.plain_word("a command"))
        bodies = self._bodies() if self.waiting else ()  # they come with the next line
        return SimpleCommand(line, tuple(assignments), tuple(words), tuple(into), (*fed, *bodies))

    def _bodies(self) -> tuple[tuple[str, bool], ...]:
        """The heredocs that this command gets; the rest of its line is read after them."""
        at, end = self.at, self.text.find("\n", self.at)
        if end < 0:
            raise self.wrong("a heredoc without a body")
        waiting, self.at = self.waiting, end
        self.newline()
        bodies = tuple(body for _, _, found in waiting for body in found)
        rest, after = self.text[at:end], self.at
        lines = self.text.count("\n", end, after)
        self.text = self.text[:at] + rest + "\n" * max(1, lines) + self.text[after:]
        self.at = at
        return bodies

    def _redirections(self, into: list[Word] | None = None, fed: list[tuple[str, bool]] | None = None) -> None:
        while True:
            self.blank()
            match = _REDIRECTION.match(self.text, self.at)
            if not match or self.text.startswith(("<(", ">("), match.start()):
                return
            self.at = match.end()
            self.blank()
            if match[1] in ("<<", "<<-"):
                stop = self.word()
                text = "".join(part.text for part in stop if isinstance(part, LiteralText))
                filled = not any(isinstance(part, LiteralText) and part.quote for part in stop)
                self.waiting.append((text, filled, []))
                continue
            target = self.word()
            if match[1] == "<<<" and fed is not None:
                fed.append(("".join(part.text for part in target if isinstance(part, LiteralText)), True))
            elif ">" in match[1] and into is not None:
                into.append(target)

    def _assignment(self, match: re.Match[str]) -> ShellAssignment:
        self.at = match.end()
        name, index, more = match[1], match[2] or "", bool(match[3])
        if not self.peek("("):
            return ShellAssignment(name, self.word(), more=more, index=index)
        self.at += 1
        values: list[Word] = []
        while True:
            self.newlines()
            if self.at >= len(self.text):
                raise self.wrong(f"the list {name} is not closed", fix=")")
            if self.peek(")"):
                self.at += 1
                return ShellAssignment(name, values=tuple(values), array=True, more=more)
            values.append(self.plain_word(f"the list {name}"))
