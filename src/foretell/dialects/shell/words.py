"""The words of a shell script: quotes, variables, sums, what stands between them, and where a line goes on."""

from __future__ import annotations

import re
from typing import Final

from foretell.dialects.shell.syntax import CommandOutput, LiteralText, SumUse, VariableUse, Word, WordPart
from foretell.errors import BadInput

NAME: Final = re.compile(r"[A-Za-z_]\w*")
_BLANK = re.compile(r"(?:[ \t]|\\\n)+|\n[ \t]*(?=--?[A-Za-z])")
_PARAMETER = re.compile(r"\$(?:\{(#?)(\w+|[@*#?!$-])(?:\[([^]]*)\])?|(\w|[@*#?!$-]))")
_OPERATOR = re.compile(r":-|:=|:\+|:\?|:|-|=|\+|\?|%%|%|##|#|//|/|\^\^|\^|,,|,|@")
ENDS: Final = " \t\n;&|()<>"
"""What ends a word that is not in quotes."""


class WordReader:
    """Goes through a text from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at: int = 0
        self.waiting: list[tuple[str, bool, list[tuple[str, bool]]]] = []  # heredocs of this line
        self.depth = 0

    @property
    def line(self) -> int:
        return self.text.count("\n", 0, self.at) + 1

    def wrong(self, what: str, fix: str = "a script that bash -n accepts") -> BadInput:
        return BadInput(f"not a script that can be read: {what}", where=f"line {self.line}", fix=fix)

    # --- between words

    def blank(self) -> None:
        while self.at < len(self.text):
            match = _BLANK.match(self.text, self.at)
            if match and not (match[0].startswith("\n") and self.waiting):
                self.at = match.end()
            elif self.text[self.at] == "#" and (self.at == 0 or self.text[self.at - 1] in " \t\n;()"):
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return

    def newlines(self) -> None:
        while True:
            self.blank()
            if self.peek("\n"):
                self.newline()
            elif self.peek(";") and not self.peek(";;"):
                self.at += 1
            else:
                return

    def newline(self) -> None:
        """A line ends: what follows it may be the bodies of its heredocs."""
        self.at += 1
        for stop, filled, body in self.waiting:
            end = re.compile(rf"^\t*{re.escape(stop)}[ \t]*$", re.MULTILINE).search(self.text, self.at)
            body.append((self.text[self.at : end.start() if end else len(self.text)], filled))
            self.at = min(end.end() + 1, len(self.text)) if end else len(self.text)
        self.waiting = []

    def peek(self, token: str) -> bool:
        return self.text.startswith(token, self.at)

    def take(self, token: str) -> bool:
        self.blank()
        if not self.peek(token):
            return False
        self.at += len(token)
        return True

    def reserved(self, *words: str) -> str:
        """The reserved word that comes next, if it is one of these; it is taken."""
        self.blank()
        for word in words:
            end = self.at + len(word)
            if self.peek(word) and (end >= len(self.text) or self.text[end] in ENDS):
                self.at = end
                return word
        return ""

    def next_reserved(self, words: tuple[str, ...]) -> bool:
        at = self.at
        found = bool(self.reserved(*words)) if words else False
        self.at = at
        return found

    def expect(self, *words: str) -> str:
        self.newlines()
        found = self.reserved(*words)
        if not found:
            raise self.wrong(f"{words[-1]!r} is missing")
        return found

    # --- words

    def plain_word(self, where: str) -> Word:
        self.blank()
        before = self.at
        word = self.word()
        if self.at == before:
            raise self.wrong(f"{self.text[self.at : self.at + 1]!r} in {where}")
        return word

    def word(self, ends: str = ENDS) -> Word:
        parts: list[WordPart] = []
        while self.at < len(self.text) and (self.text[self.at] not in ends or self._process()):
            char = self.text[self.at]
            if char == "'":
                end = self.text.find("'", self.at + 1)
                if end < 0:
                    raise self.wrong("No closing quotation", fix="close all quotes")
                parts.append(LiteralText(self.text[self.at + 1 : end], "'"))
                self.at = end + 1
            elif char == '"':
                self.at += 1
                inside: list[WordPart] = []
                while not self.peek('"'):
                    if self.at >= len(self.text):
                        raise self.wrong("No closing quotation", fix="close all quotes")
                    inside += self.quoted(stop='"')
                self.at += 1
                parts += inside or [LiteralText("", '"')]
            elif char == "\\":
                following = self.text[self.at + 1 : self.at + 2]
                self.at += 2
                if following != "\n":
                    parts.append(LiteralText(following, "'"))
            elif char in "$`":
                parts.append(self._dollar(""))
            elif self._process():
                begin = self.at
                parts.append(CommandOutput(self._nested(self.at + 1), self.text[begin : self.at]))
            else:
                end = self.at
                while end < len(self.text) and self.text[end] not in ends + "'\"\\$`":
                    end += 1
                parts.append(LiteralText(self.text[self.at : end]))
                self.at = end
        return tuple(parts)

    def _process(self) -> bool:
        """Whether <( ) or >( ) begins here: the name of a file that a command reads or writes."""
        return self.peek("<(") or self.peek(">(")

    def quoted(self, stop: str) -> list[WordPart]:
        """One part of what stands between double quotes."""
        if self.text[self.at] in "$`":
            return [self._dollar('"')]
        text, raw = "", ""
        while self.at < len(self.text) and self.text[self.at] not in "$`" and not (stop and self.peek(stop)):
            char = self.text[self.at]
            following = self.text[self.at + 1 : self.at + 2]
            if char == "\\" and following and following in '$`"\\\n':
                text += "" if following == "\n" else following
                raw += char + following
                self.at += 2
            else:
                text, raw = text + char, raw + char
                self.at += 1
        return [LiteralText(text, '"', raw)]

    def _dollar(self, quote: str) -> WordPart:
        begin = self.at
        if self.peek("`"):
            end = self.text.find("`", self.at + 1)
            if end < 0:
                raise self.wrong("No closing quotation", fix="close all quotes")
            self.at = end + 1
            return CommandOutput(self.text[begin + 1 : end], self.text[begin : self.at], quote)
        if self.peek("$(("):
            self.at += 1
            return SumUse(self.until("((", "))"), self.text[begin : self.at], quote)
        if self.peek("$("):
            inside = self._nested(self.at + 1)
            return CommandOutput(inside, self.text[begin : self.at], quote)
        match = _PARAMETER.match(self.text, self.at)
        if not match:
            self.at += 1
            return LiteralText("$", quote, "$")
        self.at = match.end()
        if match[4]:
            name = NAME.match(self.text, begin + 1)
            self.at = name.end() if name else match.end()
            return VariableUse(name[0] if name else match[4], self.text[begin : self.at], quote)
        operator = _OPERATOR.match(self.text, self.at)
        self.at = operator.end() if operator else self.at
        argument = self._braced()
        index = match[3] or ""
        return VariableUse(
            match[2],
            self.text[begin : self.at],
            quote,
            index,
            operator[0] if operator else "",
            argument,
            bool(match[1]),
        )

    def _braced(self) -> str:
        """The rest of ${...}, up to the brace that closes it."""
        begin, depth = self.at, 1
        while self.at < len(self.text):
            char = self.text[self.at]
            depth += {"{": 1, "}": -1}.get(char, 0)
            self.at += 2 if char == "\\" else 1
            if depth == 0:
                return self.text[begin : self.at - 1]
        raise self.wrong("'}' is missing")

    def until(self, begin: str, end: str) -> str:
        """What stands between (( and )), with parentheses inside."""
        self.at += len(begin)
        start, depth = self.at, 0
        while self.at < len(self.text):
            if depth == 0 and self.peek(end):
                self.at += len(end)
                return self.text[start : self.at - len(end)]
            depth += {"(": 1, ")": -1}.get(self.text[self.at], 0)
            self.at += 1
        raise self.wrong(f"{end!r} is missing")

    def _nested(self, at: int) -> str:
        """What stands between ( and ), quotes and parentheses inside."""
        self.at = at + 1
        start, depth, quote = self.at, 1, ""
        while self.at < len(self.text):
            char = self.text[self.at]
            if quote:
                quote = "" if char == quote else quote
            elif char in "'\"":
                quote = char
            else:
                depth += {"(": 1, ")": -1}.get(char, 0)
            self.at += 2 if char == "\\" and quote != "'" else 1
            if depth == 0:
                return self.text[start : self.at - 1]
        raise self.wrong("')' is missing")


def words_of(text: str) -> Word:
    """A text as it would stand between double quotes: the argument of ${name:-...}, the body of a heredoc."""
    parser = WordReader(text)
    parts: list[WordPart] = []
    while parser.at < len(text):
        parts += parser.quoted(stop="")
    return tuple(parts)
