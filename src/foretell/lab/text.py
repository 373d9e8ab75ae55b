"""A network as it is typed: rates as `1Gbit` or `125 MB/s`, delays as `0.5ms`, ends as `0-1`."""

from __future__ import annotations

import re
from typing import TypeVar

from foretell.errors import BadInput
from foretell.hardware import quantity
from foretell.lab.network import Network, Wire

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def rate(text: str, where: str) -> float:
    """Bytes a second; network people's `Gbit` is `Gb/s`."""
    return quantity.parse(re.sub(r"bit(/s)?$", "b/s", text.strip()), "bandwidth", where)


def delay(text: str, where: str) -> float:
    return quantity.parse(text, "time", where)


def wire(text: str, where: str) -> Wire:
    """A rate and a delay: 100Mbit,5ms."""
    first, _, second = text.partition(",")
    if not second:
        raise BadInput(f"{text!r} is not a rate and a delay", where=where, fix="100Mbit,5ms")
    return Wire(rate(first, where), delay(second, where))


def pair(text: str, where: str) -> tuple[int, int]:
    form = re.fullmatch(r"(\d+)-(\d+)", text.strip())
    if form is None or form[1] == form[2]:
        raise BadInput(f"{text!r} is not two hosts", where=where, fix="0-1")
    a, b = int(form[1]), int(form[2])
    return min(a, b), max(a, b)


def network(
    hosts: int,
    speed: str,
    apart: str,
    island: int = 0,
    uplink: str = "",
    ports: tuple[str, ...] = (),
    links: tuple[str, ...] = (),
) -> Network:
    """The network that options name."""
    if bool(island) != bool(uplink):
        raise BadInput("islands need a way out, and a way out needs islands", fix="--island 2 --uplink 100Mbit,2ms")
    return Network(
        hosts=hosts,
        rate=rate(speed, "--rate"),
        delay=delay(apart, "--delay"),
        island=island,
        uplink=wire(uplink, "--uplink") if uplink else None,
        ports=_once([_port(text) for text in ports], "--port"),
        links=_once([_link(text) for text in links], "--link"),
    )


def _once(found: list[tuple[_Key, _Value]], where: str) -> dict[_Key, _Value]:
    """What is said of each; nothing may be said twice."""
    keys = [key for key, _ in found]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise BadInput(f"{twice} is given twice", where=where, fix=f"one {where} for each")
    return dict(found)


def _link(text: str) -> tuple[tuple[int, int], Wire]:
    ends, rest = _halves(text)
    return pair(ends, "--link"), wire(rest, "--link")


def _port(text: str) -> tuple[int, float]:
    host, rest = _halves(text, "--port", "1:100Mbit")
    if not host.isdigit():
        raise BadInput(f"{text!r} names no host", where="--port", fix="1:100Mbit")
    return int(host), rate(rest, "--port")


def _halves(text: str, where: str = "--link", example: str = "0-1:100Mbit,5ms") -> tuple[str, str]:
    first, _, second = text.partition(":")
    if not second:
        raise BadInput(f"{text!r} says no rate", where=where, fix=example)
    return first, second


def factor(text: str, where: str) -> tuple[int, float]:
    """A rank and how many times slower it is: 1:2x."""
    form = re.fullmatch(r"(\d+):(\d+(?:\.\d+)?)x?", text.strip())
    if form is None or float(form[2]) < 1:
        raise BadInput(f"{text!r} is not a rank and a factor", where=where, fix="1:2x")
    return int(form[1]), float(form[2])
