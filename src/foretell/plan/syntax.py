"""How the fields of a strategy or policy are written.

A strategy or policy lists its options once; reading, printing, error messages and the documentation follow.

    Choice("storage", {"zero1": "zero1", ...})   one of some words              dp8:zero1
    Number("shard", "shard")                     a word with a number in it     dp4:zero3,shard8
    Numbers("split", "split")                    a word and a list              pp3:1f1b,split=10/12/8
                                                 equal ones in runs             pp8:interleaved,v8,split=1/2x62/1
    Flags("moved", ("optimizer", ...))           some of some words             +offload:optimizer,weights
    JoinedWords("granularity", (...), joins)     a word, or several that join   +recompute:moe_act,mlp
    Size("size")                                 bytes with a unit              +bucket:25MB
    Fraction("topk", "fraction")                 a word with a decimal in it    +compress:topk0.01
    Factor("imbalance", "factor")                the same from 1 on             +imbalance1.2

An option reads a text into a value for its field, or says what is wrong with it, or that it is not
meant. It spells a value as exactly one text, so that what is printed reads as the same value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby
from typing import Any, ClassVar, Final, TypeAlias

MOST: Final = 1_000_000
"""The largest whole number in a plan: more ranks, layers or micro-batches than anybody has."""

LARGEST: Final = 2**40
"""The largest size in a plan, in bytes."""

UNITS: Final = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}
_SPELLED: Final = {"b": "B", "kb": "KB", "mb": "MB", "gb": "GB", "kib": "KiB", "mib": "MiB", "gib": "GiB"}


@dataclass(frozen=True)
class ParsedField:
    """A text was read: the value of the field."""

    value: Any


@dataclass(frozen=True)
class Mismatch:
    """A text was meant for this option but is not right."""

    at: int  # the first wrong character
    expected: str
    repairs: tuple[str, ...] = ()  # whole texts that are near and right


Reading: TypeAlias = ParsedField | Mismatch | None
"""None: the text is not meant for this option."""


def read_whole(text: str, least: int = 1) -> ParsedField | Mismatch:
    """A whole number in ASCII digits, without sign or leading zeros."""
    expected = f"a whole number from {least:,} to {MOST:,}"
    digits = re.match("[0-9]*", text)
    end = digits.end() if digits else 0
    if end == 0:
        later = re.search("[1-9][0-9]{0,5}", text)
        return Mismatch(0, expected, (later[0] if later else str(max(2, least)),))
    value = int(text[: min(end, 9)])
    if value > MOST:
        return Mismatch(0, expected, (str(MOST) + text[end:],))
    if value < least:
        return Mismatch(0, expected, (str(least) + text[end:],))
    if text[0] == "0" and end > 1:
        return Mismatch(0, f"{expected}, without leading zeros", (str(value) + text[end:],))
    return Mismatch(end, "the end of the number", (text[:end],)) if text[end:] else ParsedField(value)


def _shifted(word: str, reading: ParsedField | Mismatch) -> ParsedField | Mismatch:
    """What was read after a word, told for the text with the word."""
    if isinstance(reading, ParsedField):
        return reading
    return Mismatch(len(word) + reading.at, reading.expected, tuple(word + text for text in reading.repairs))


def _attempted(word: str, text: str) -> bool:
    """Whether a text is this word with something that should have been a number, rather than another word."""
    return text.startswith(word) and not text[len(word) : len(word) + 1].isalpha()


@dataclass(frozen=True)
class WordChoice:
    """One of several words, each of which gives the field its value.

    A default that has a word of its own is printed all the same: `pp4` prints as `pp4:1f1b`.
    """

    field: str
    words: dict[str, Any]

    @property
    def forms(self) -> tuple[str, ...]:
        return tuple(self.words)

    def read(self, text: str) -> Reading:
        return ParsedField(self.words[text]) if text in self.words else None

    def spell(self, value: Any) -> str:
        return next((word for word, meaning in self.words.items() if meaning == value), "")


@dataclass(frozen=True)
class Number:
    """A word that ends in a whole number of at least `least`. `told`: printed with its default too."""

    word: str
    field: str
    least: int = 1
    told: bool = False

    @property
    def forms(self) -> tuple[str, ...]:
        return (f"{self.word}N",)

    def read(self, text: str) -> Reading:
        return _shifted(self.word, read_whole(text[len(self.word) :], self.least)) if self.attempted(text) else None

    def attempted(self, text: str) -> bool:
        return _attempted(self.word, text)

    def spell(self, value: Any) -> str:
        return f"{self.word}{value}"


@dataclass(frozen=True)
class Numbers:
    """A word, an equals sign, and whole numbers with slashes between; 2x62 is 62 twos in a row."""

    word: str
    field: str
    least: int = 1

    @property
    def forms(self) -> tuple[str, ...]:
        return (f"{self.word}=N/NxM/...",)

    def read(self, text: str) -> Reading:
        if not _attempted(self.word, text):
            return None
        start = f"{self.word}="
        if not text.startswith(start):
            rest = text[len(self.word) :]
            return Mismatch(len(self.word), "= and numbers with / between", (f"{start}{rest or '1/1'}",))
        return _shifted(start, self._read_list(text[len(start) :]))

    def _read_list(self, text: str) -> ParsedField | Mismatch:
        values: list[int] = []
        at = 0
        for part in text.split("/"):
            reading = _read_run(part, self.least)
            if isinstance(reading, Mismatch):
                repairs = tuple(text[:at] + repair + text[at + len(part) :] for repair in reading.repairs)
                return Mismatch(at + reading.at, reading.expected, repairs)
            value, times = reading.value
            if len(values) + times > MOST:
                return Mismatch(at, f"at most {MOST:,} numbers", (text[: at - 1],) if at else ())
            values += [value] * times
            at += len(part) + 1
        return ParsedField(tuple(values))

    def spell(self, value: Any) -> str:
        return f"{self.word}={spelled_list(value)}"


def _read_run(text: str, least: int) -> ParsedField | Mismatch:
    """A number and how often it comes: 2x62, or 2 for once."""
    value, cross, times = text.partition("x")
    reading = read_whole(value, least)
    if isinstance(reading, Mismatch):
        run = f"x{times}" if times else ""
        return Mismatch(reading.at, reading.expected, tuple(repair + run for repair in reading.repairs))
    if not cross:
        return ParsedField((reading.value, 1))
    count = _shifted(value + cross, read_whole(times))
    return count if isinstance(count, Mismatch) else ParsedField((reading.value, count.value))


def spelled_list(values: Sequence[int]) -> str:
    """Whole numbers with slashes between, three or more equal ones in a row as a run: 1/2x62/1."""
    runs = ((value, len(list(same))) for value, same in groupby(values))
    return "/".join(f"{value}x{times}" if times > 2 else "/".join([str(value)] * times) for value, times in runs)


@dataclass(frozen=True)
class Flags:
    """Some of several words, with commas between. They are printed in the order listed here."""

    field: str
    words: tuple[str, ...]

    @property
    def forms(self) -> tuple[str, ...]:
        return self.words

    def read(self, text: str) -> Reading:
        parts = text.split(",")
        if parts[0] not in self.words:
            return None
        at = 0
        for place, part in enumerate(parts):
            if part not in self.words or part in parts[:place]:
                left = [word for word in self.words if word not in parts]
                expected = f"one of {', '.join(left)}" if left else "the end"
                return Mismatch(at, expected, (",".join(parts[:place] + parts[place + 1 :]),))
            at += len(part) + 1
        return ParsedField(tuple(word for word in self.words if word in parts))

    def spell(self, value: Any) -> str:
        return ",".join(word for word in self.words if word in value)


@dataclass(frozen=True)
class JoinedWords:
    """One word, or some of those that `joins` with commas between, all as one text in the order listed here."""

    field: str
    words: tuple[str, ...]
    joins: Callable[[str], bool]

    @property
    def forms(self) -> tuple[str, ...]:
        return self.words

    def read(self, text: str) -> Reading:
        if text in self.words:
            return ParsedField(text)
        some = Flags(self.field, tuple(word for word in self.words if self.joins(word)))
        reading = some.read(text)
        return ParsedField(some.spell(reading.value)) if isinstance(reading, ParsedField) else reading

    def spell(self, value: Any) -> str:
        return value


@dataclass(frozen=True)
class Size:
    """A whole number of bytes with a unit."""

    field: str

    @property
    def forms(self) -> tuple[str, ...]:
        return tuple(f"N{unit}" for unit in _SPELLED.values())

    def read(self, text: str) -> Reading:
        digits = re.match("[0-9]*", text)
        end = digits.end() if digits else 0
        if end == 0:
            return Mismatch(0, "a whole number and a unit, such as 25MB", ("25MB",))
        number, unit = text[:end], text[end:]
        if unit not in UNITS:
            return Mismatch(end, f"a unit: {', '.join(_SPELLED.values())}", (f"{number}MB", "25MB"))
        size = int(number[:14]) * UNITS[unit]  # 14 digits are more than the largest size has
        if number[0] == "0" or size > LARGEST:
            return Mismatch(0, "a size from 1B to 1024GiB", (f"{number.lstrip('0')}{_SPELLED[unit]}", "25MB"))
        return ParsedField(size)

    def spell(self, value: Any) -> str:
        """With the unit that leaves the smallest whole number."""
        unit = min((unit for unit in UNITS if value % UNITS[unit] == 0), key=lambda unit: value // UNITS[unit])
        return f"{value // UNITS[unit]}{_SPELLED[unit]}"


@dataclass(frozen=True)
class Fraction:
    """A word that ends in a decimal number above 0 and at most 1."""

    word: str
    field: str

    pattern: ClassVar[str] = r"0\.[0-9]{1,30}|1(\.0{1,30})?"
    most: ClassVar[float] = 1.0
    expected: ClassVar[str] = "a number above 0 and at most 1, such as 0.01"
    usual: ClassVar[str] = "0.01"

    @property
    def forms(self) -> tuple[str, ...]:
        return (f"{self.word}F",)

    def read(self, text: str) -> Reading:
        if not _attempted(self.word, text):
            return None
        rest = text[len(self.word) :]
        if not re.fullmatch(self.pattern, rest) or not 0 < float(rest) <= self.most:
            return Mismatch(len(self.word), self.expected, (f"{self.word}{self.usual}",))
        return ParsedField(float(rest))

    def spell(self, value: Any) -> str:
        return f"{self.word}{Decimal(repr(float(value))).normalize():f}"


class Factor(Fraction):
    """A word that ends in a decimal number from 1 to 1000."""

    pattern = r"[1-9][0-9]{0,3}(\.[0-9]{1,30})?"
    most = 1000.0
    expected = "a number from 1 to 1000, such as 1.2"
    usual = "1.2"


Option: TypeAlias = WordChoice | Number | Numbers | Flags | JoinedWords | Size | Fraction | Factor


def spelled(option: Option, value: Any, default: Any) -> str:
    """How a field is written; nothing where it has its default, unless the default has a word."""
    if value == default and not _told(option, value):
        return ""
    return option.spell(value)


def _told(option: Option, value: Any) -> bool:
    """Whether a default is printed all the same."""
    if isinstance(option, WordChoice):
        return value in option.words.values()
    return isinstance(option, Number) and option.told


def first_reading(options: Sequence[Option], text: str) -> tuple[Option, ParsedField | Mismatch] | None:
    """The option that a text is meant for, and what it says; exact ones go before attempts."""
    readings = [(option, reading) for option in options if (reading := option.read(text)) is not None]
    return min(readings, key=lambda pair: isinstance(pair[1], Mismatch)) if readings else None
