"""Numbers with units, as people write them: "80 GB", "3.35 TB/s", "312 Tflop/s", "4.5 us".

Strict: a figure without a unit, or with the unit of another kind of figure, is an error.
GB is 10**9 bytes and GiB 2**30; Gb is 10**9 bits.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from foretell.errors import BadInput

_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}

_BYTES = {f"{prefix}B": scale for prefix, scale in {**_DECIMAL, **_BINARY, "K": 1e3}.items()}
_BITS = {f"{prefix}b": scale / 8 for prefix, scale in _DECIMAL.items()}

UNITS: dict[str, dict[str, float]] = {
    "memory": _BYTES,
    "bandwidth": {f"{unit}/s": scale for unit, scale in {**_BYTES, **_BITS}.items()},
    "rate": {f"{prefix}{work}/s": scale for prefix, scale in _DECIMAL.items() for work in ("flop", "op")},
    "time": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9},
    "frequency": {f"{prefix}Hz": scale for prefix, scale in _DECIMAL.items()},
    "power": {"W": 1.0, "kW": 1e3},
    **{f"size per {what}": {f"B/{what}": 1.0} for what in ("parameter", "gradient", "logit", "score")},
}
"""Kind of figure to its units, each with its size in SI."""

EXAMPLES = {
    "memory": '"80 GB" (GB is decimal, GiB binary)',
    "bandwidth": '"3.35 TB/s" or "400 Gb/s" (b is a bit, B a byte)',
    "rate": '"312 Tflop/s"',
    "time": '"4.5 us"',
    "frequency": '"1.41 GHz"',
    "power": '"400 W"',
    "count": "8",
    "ratio": "0.81",
    **{f"size per {what}": f'"4 B/{what}"' for what in ("parameter", "gradient", "logit", "score")},
}
"""Kind of figure to what one looks like in a file."""

_FORM = re.compile(r"([0-9][0-9_,]*\.?[0-9]*(?:e[+-]?[0-9]{1,3})?) *([A-Za-z/]*)")


def parse(text: str, kind: str, where: str = "", zero: bool = False) -> float:
    """The figure in SI units; it must be positive, but for a time or where zero says something."""
    form = _FORM.fullmatch(text.strip())
    if form is None:
        raise BadInput(f"{text!r} is not a number with a unit", where=where, fix=EXAMPLES[kind])
    number, unit = form[1].replace(",", "").replace("_", ""), form[2]
    scale = UNITS[kind].get(unit)
    if scale is None:
        raise BadInput(f"{text!r}: {_complaint(unit, kind)}", where=where, fix=EXAMPLES[kind])
    value = _scaled(number, scale)
    if not math.isfinite(value) or value < 0 or (value == 0 and kind != "time" and not zero):
        raise BadInput(f"{text!r} is not a positive {kind}", where=where, fix=EXAMPLES[kind])
    return value


def line_rate(text: str, where: str) -> float:
    """Bytes a second of a line; network people's `1Gbit` is `1 Gb/s`."""
    return parse(re.sub(r"bit(/s)?$", "b/s", text.strip()), "bandwidth", where)


def _scaled(number: str, scale: float) -> float:
    # Rounded once: 4.5 * 1e-6 is not the float nearest to 4.5 us, the decimal product is.
    return float(Decimal(number) * Decimal(repr(scale)))


def _complaint(unit: str, kind: str) -> str:
    if not unit:
        return f"a {kind} needs its unit"
    others = [other for other, units in UNITS.items() if unit in units]
    if others:
        return f"{unit} is the unit of a {others[0]}, not of a {kind}"
    return f"{unit!r} is not a unit of a {kind}"


def show(value: float, kind: str) -> str:
    """A figure to read: 3.35e12 B/s is '3.35 TB/s'."""
    if kind == "memory":
        return f"{value / 2**30:.3g} GiB"
    if kind == "time":
        for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
            if value >= scale:
                return f"{value / scale:.3g} {unit}"
        return f"{value / 1e-9:.3g} ns"
    unit = {"bandwidth": "B/s", "rate": "flop/s", "frequency": "Hz", "power": "W"}[kind]
    for prefix, scale in reversed(_DECIMAL.items()):
        if value >= scale:
            return f"{value / scale:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"
