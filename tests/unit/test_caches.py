"""What the engine remembers is bounded together, and forgetting it changes no answer."""

from __future__ import annotations

import functools
import sys

import pytest

import foretell
from foretell import caches
from foretell.cost import weight_traffic
from foretell.plan.schedule import find
from foretell.program import activation_memory, kept, lower
from foretell.timeline.unroll import order


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "_limit", [])


def filled() -> int:
    return lower.local.cache_info().currsize + len(weight_traffic._KNOWN) + len(activation_memory._TRACES)


def test_what_is_over_the_budget_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    first = foretell.predict("gpt2", "8xh100", "dp4 tp2", 32)
    assert filled() > 2
    caches.make_room()
    assert filled() > 2, "there is room"
    monkeypatch.setattr(caches, "_budget", [-1])
    caches._limit.clear()
    caches.make_room()
    assert filled() == 0
    assert foretell.predict("gpt2", "8xh100", "dp4 tp2", 32) == first
    assert filled() <= 4, "each program made room for itself"


def test_layouts_ask_once_what_products_keep() -> None:
    """A layout asks for every tensor; a search has tens of thousands of them."""
    kept.held_as_cast.cache_clear()
    foretell.predict("gpt2:layers=2", "8xh100", "dp8 +fp8", 8, trainer="megatron-core")
    found = kept.held_as_cast.cache_info()
    assert found.misses <= 2 < found.hits


def test_the_budget_begins_with_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a program that has much of its own would never remember anything."""
    emptied = list[int]()
    monkeypatch.setattr(caches, "_emptied", [lambda: emptied.append(1)])
    caches._limit.append(0)
    caches.make_room()
    assert emptied == [1] and caches._limit[0] > sys.getallocatedblocks()
    caches.make_room()
    assert emptied == [1]
    caches.make_room(rows=2 * caches.BUDGET * caches.BLOCK)
    assert emptied == [1, 1]
    caches.make_room()
    assert emptied == [1, 1]


def test_long_orders_count_though_their_rows_are_no_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    order.cache_clear()
    caches.make_room()
    before = caches._limit[0]
    slots = len(order(find("1f1b"), 4, 512, 1).rank)
    assert before - caches._limit[0] >= slots * 8 * 10 // caches.BLOCK


def test_a_function_is_forgotten_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "_emptied", [])

    @caches.forgettable
    @functools.lru_cache(maxsize=8)
    def one(value: int) -> int:
        return value

    assert one(1) == 1 and one.cache_info().currsize == 1
    caches._limit.append(0)
    caches.make_room()
    assert one.cache_info().currsize == 0
