"""The words for numbers: element types, quantities, and how a person reads them.

Inside foretell everything is in SI base units: seconds, bytes, flops (a multiply-add is two).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

Quantity: TypeAlias = Any
"""An int, a float, or a numpy array of them. Formulas are plain arithmetic, so one formula
serves one size or a million. One size keeps exact integers of any length. Arrays of whole numbers are exact up to what
64 bits hold, and those of floats up to 2**53: who hands them in sees to it that figures stay below (`oracle.parts`)."""

WIDTH: dict[str, int] = {
    "fp64": 8,
    "fp32": 4,
    "bf16": 2,
    "fp16": 2,
    "fp8": 1,
    "complex64": 8,
    "complex128": 16,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
"""Bytes of one element of each type."""

FLOATING = ("fp64", "fp32", "bf16", "fp16")
"""Types that the weights of a module can have. (fp8 is a way to multiply, not to keep weights.)"""


def ceil_div(a: Quantity, b: Quantity) -> Quantity:
    """The smallest whole number not below a / b, for whole numbers or arrays of them."""
    return -(-a // b)


def share(size: Quantity, ranks: Quantity) -> Quantity:
    """The largest share of `size` that one of `ranks` ranks holds.

    For arrays it is a float: the flops of a large model do not fit 64-bit integers.
    """
    return ceil_div(size, ranks) if isinstance(ranks, int) else ceil_div(size, ranks) * 1.0


def rounded_up(value: Quantity) -> Quantity:
    """The smallest whole number not below a value, or those of an array."""
    if isinstance(value, int | float):
        return math.ceil(value)
    import numpy

    return numpy.ceil(value).astype(numpy.int64)


def whole_numbers(values: Sequence[int]) -> Quantity:
    """An array of whole numbers."""
    import numpy

    return numpy.array(values, dtype=numpy.int64)


def somewhere(value: Quantity) -> bool:
    """Whether a number, or any of an array, is not zero."""
    return bool(value) if isinstance(value, int | float) else bool(value.any())


def at_least(value: Quantity, least: Quantity) -> Quantity:
    """The larger of two numbers, for numbers or arrays."""
    if isinstance(value, int | float) and isinstance(least, int | float):
        return max(value, least)
    import numpy

    return numpy.maximum(value, least)


def at_most(value: Quantity, most: Quantity) -> Quantity:
    """The smaller of two numbers, for numbers or arrays."""
    if isinstance(value, int | float) and isinstance(most, int | float):
        return min(value, most)
    import numpy

    return numpy.minimum(value, most)


def ceil_log2(n: Quantity) -> Quantity:
    """Depth of a binary tree over n leaves: 0 for n <= 1. Exact for whole numbers, for arrays below 2**53."""
    if isinstance(n, int):
        return (n - 1).bit_length() if n > 1 else 0
    import numpy

    # frexp is exact, unlike log2: n - 1 = m * 2**e with 0.5 <= m < 1, and its bit length is e.
    _, exponent = numpy.frexp(numpy.maximum(numpy.asarray(n) - 1, 0))
    return exponent.astype(numpy.int64)


def product(sizes: Any) -> Quantity:
    """The product of whole numbers or arrays; 1 for none."""
    result: Quantity = 1
    for size in sizes:
        result = result * size
    return result


def show_rate(value: float) -> str:
    """A figure to four digits, and never as a power of ten: 23.84, 1,752, 58,163."""
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def show_count(value: float) -> str:
    """A count to three digits with a decimal prefix: 25,557,032 is '25.6 M'."""
    for power, prefix in reversed(list(enumerate("kMGTPEZY", 1))):
        if abs(value) >= 1000**power * 0.9995:
            return f"{_three_digits(value / 1000**power)} {prefix}"
    return _three_digits(value)


def show_flops(value: float) -> str:
    """Work to three digits: '8.18 GFLOP'."""
    text = show_count(value)
    return f"{text}FLOP" if " " in text else f"{text} FLOP"


def show_bytes(value: float) -> str:
    """Bytes to three digits with a binary prefix: '81.9 MiB'."""
    for power, prefix in reversed(list(enumerate("KMGTPEZY", 1))):
        if abs(value) >= 1024**power * 0.9995:
            return f"{_three_digits(value / 1024**power)} {prefix}iB"
    return f"{_three_digits(value)} B"


def show_of(value: float, whole: float) -> str:
    """Bytes of so many, in one unit where both have the same: '15.9 of 76.8 GiB'."""
    (size, unit), (most, other) = show_bytes(value).split(), show_bytes(whole).split()
    return f"{size} of {most} {unit}" if unit == other else f"{size} {unit} of {most} {other}"


def show_percent(value: float, digits: int = 1, sign: bool = False) -> str:
    """A share in per cent: '36.2 %'; with its sign where it is a change."""
    return f"{100 * value:{'+' if sign else ''}.{digits}f} %"


EVEN = 0.05
"""Up to this difference of its two ends an interval is written with one number."""


def show_factor(factor: float) -> str:
    """A factor either way as people say it: '± 20 %', and with both ends where they are far apart."""
    low, high = 1 / factor - 1, factor - 1
    if high + low <= EVEN:
        return f"± {100 * high:.0f} %"
    return f"{100 * low:+.0f} % to {100 * high:+.0f} %"


MINUTE, HOUR, DAY, YEAR = 60.0, 3600.0, 86400.0, 365.25 * 86400.0


def show_seconds(value: float) -> str:
    """The time of a step to three digits with a unit that reads well, from microseconds to years."""
    for limit, unit in ((2 * YEAR, "years"), (2 * DAY, "d"), (2 * HOUR, "h")):
        if value >= limit:
            return f"{show_number(2 * value / limit)} {unit}"
    for limit, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}" if value / limit < 1000 else f"{value / limit:,.0f} {unit}"
    return f"{value / 1e-6:.3g} us"


def show_span(seconds: float) -> str:
    """A time that a person waits, to three digits: from seconds to years."""
    for size, unit in ((YEAR, "years"), (DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= 2 * size:
            return f"{show_number(seconds / size)} {unit}"
    return f"{show_number(seconds)} s"


MOST_DIGITS = 1e9
"""A number that is larger has no digits that anybody reads."""


def show_number(value: float) -> str:
    """A number to three digits, without an exponent as long as a person can read it."""
    if abs(value) >= MOST_DIGITS:
        return f"{value:.3g}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _three_digits(value: float) -> str:
    if abs(value) >= MOST_DIGITS:
        return f"{value:.3g}"
    if abs(value) >= 999.5 or value == int(value):
        return f"{value:,.0f}"
    decimals = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:.{decimals}f}"
