"""A network as it is typed: rates as `1Gbit` or `125 MB/s`, delays as `0.5ms`, ends as `0-1`."""

from __future__ import annotations

from typing import TypeVar

from foretell.errors import BadInput
from foretell.hardware import quantity
from foretell.hardware.disturbance import pair
from foretell.hardware.quantity import line_rate
from foretell.lab.network import LabNetwork, Wire

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def delay(text: str, where: str) -> float:
    return quantity.parse(text, "time", where)


def wire(text: str, where: str) -> Wire:
    """A rate and a delay: 100Mbit,5ms."""
    first, _, second = text.partition(",")
    if not second:
        raise BadInput(f"{text!r} is not a rate and a delay", where=where, fix="100Mbit,5ms")
    return Wire(line_rate(first, where), delay(second, where))


def network(
    hosts: int,
    speed: str,
    apart: str,
    island: int = 0,
    uplink: str = "",
    ports: tuple[str, ...] = (),
    links: tuple[str, ...] = (),
) -> LabNetwork:
    """The network that options name."""
    if bool(island) != bool(uplink):
        raise BadInput("islands need a way out, and a way out needs islands", fix="--island 2 --uplink 100Mbit,2ms")
    return LabNetwork(
        hosts=hosts,
        rate=line_rate(speed, "--rate"),
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
    a, b = pair(ends, "--link")
    return (min(a, b), max(a, b)), wire(rest, "--link")


def _port(text: str) -> tuple[int, float]:
    host, rest = _halves(text, "--port", "1:100Mbit")
    if not host.isdigit():
        raise BadInput(f"{text!r} names no host", where="--port", fix="1:100Mbit")
    return int(host), line_rate(rest, "--port")


def _halves(text: str, where: str = "--link", example: str = "0-1:100Mbit,5ms") -> tuple[str, str]:
    first, _, second = text.partition(":")
    if not second:
        raise BadInput(f"{text!r} says no rate", where=where, fix=example)
    return first, second
