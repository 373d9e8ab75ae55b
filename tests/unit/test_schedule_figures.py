"""Schedules against the figures and tables of their papers, and what they say when they do not fit."""

from __future__ import annotations

import re

import pytest

from foretell.errors import BadInput, UnknownName
from foretell.plan.schedule import SCHEDULES, Slot, draw, find, replay, schedules


def written(slots: tuple[Slot, ...]) -> str:
    return " ".join(f"{kind}{microbatch}" for kind, _, microbatch in slots)


def test_the_words_of_plans() -> None:
    assert sorted(schedules()) == ["1f1b", "dualpipe", "dualpipe-v", "gpipe", "interleaved", "stash", "zb-h1", "zb-v"]
    assert len(schedules()) == len(list(SCHEDULES))


@pytest.mark.parametrize("name", sorted(schedules()))
def test_every_schedule_says_what_it_is_and_where_it_comes_from(name: str) -> None:
    schedule = find(name)
    assert len(schedule.summary.split()) > 3
    assert any(re.search(r"arXiv \d{4}\.\d{4,5}|doi 10\.|github.com/\w", one) for one in schedule.references)


def test_1f1b_is_that_of_the_megatron_paper() -> None:
    """arXiv 2104.04473, Figure 4, top: four devices, eight micro-batches."""
    first, *_, last = find("1f1b").order(4, 8, 1)
    assert written(first) == "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7"
    assert written(last) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"


def test_interleaved_is_that_of_the_megatron_paper() -> None:
    """arXiv 2104.04473, Figure 4, bottom: each device has two stages; device 1 begins with eleven forwards."""
    first = find("interleaved").order(4, 8, 2)[0]
    assert [slot.stage for slot in first[:12]] == [0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 4]
    assert first[11] == Slot("B", 4, 0)


@pytest.mark.parametrize("microbatches", [4, 8, 24])
def test_zb_h1_has_a_third_of_1f1bs_bubble(microbatches: int) -> None:
    """arXiv 2401.10241, section 2.1."""
    assert 3 * find("zb-h1").bubble(4, microbatches, 1, 5, 5, 5) == find("1f1b").bubble(4, microbatches, 1, 5, 5, 5)


def test_zb_h1_starts_as_in_its_papers_figure() -> None:
    """arXiv 2401.10241, Figure 3, top: workers begin with 4, 3, 2 and 1 forwards."""
    rows = [written(slots) for slots in find("zb-h1").order(4, 8, 1)]
    assert rows[0].startswith("F0 F1 F2 F3 I0 W0 F4 I1 W1")
    assert rows[1].startswith("F0 F1 F2 I0 F3 I1 W0")
    assert rows[2].startswith("F0 F1 I0 F2 I1 F3 I2 W0")
    assert rows[3].startswith("F0 I0 F1 I1 F2 I2 F3 I3 W0")


def test_zb_h1_holds_what_its_paper_says() -> None:
    """arXiv 2401.10241, section 2.3: worker i holds p-i+1 that wait for both parts and i-1 that wait for W."""
    for rank, slots in enumerate(find("zb-h1").order(4, 12, 1)):
        whole = weight_only = 0
        peaks: list[tuple[int, int]] = []
        for kind, _, _ in slots:
            whole += {"F": 1, "I": -1}.get(kind, 0)
            weight_only += {"I": 1, "W": -1}.get(kind, 0)
            peaks.append((whole + weight_only, whole))
        assert max(peaks) == (4, 4 - rank)


def test_zb_v_warms_up_as_its_paper_says() -> None:
    """arXiv 2401.10241, section 6: before it goes backward, worker i of p does 2p-i forwards of its first stage."""
    for worker, slots in enumerate(find("zb-v").order(4, 12, 2), start=1):
        kinds = [slot.kind for slot in slots]
        before = slots[: kinds.index("I")]
        assert sum(slot.stage == worker - 1 for slot in before) == 2 * 4 - worker
        assert sum(slot.stage != worker - 1 for slot in before) == worker


@pytest.mark.parametrize("name", ["zb-v", "zb-h1", "1f1b"])
def test_zero_bubble_schedules_hold_no_more_than_1f1b_at_its_first_rank(name: str) -> None:
    assert max(find(name).in_flight(rank, 8, 32, find(name).least_chunks) for rank in range(8)) == 8


def test_interleaved_holds_more_by_the_papers_factor() -> None:
    """Korthikanti et al. 2022, arXiv 2205.05198, section 4.2.3: 1 + (p-1)/(pv) times 1F1B's at the first rank."""
    assert find("interleaved").in_flight(0, 8, 32, 4) == 8 * (1 + 7 / (8 * 4))


def test_dualpipe_is_that_of_deepseeks_table() -> None:
    """arXiv 2412.19437, Table 2: (PP/2-1)(F&B+B-3W), PP+1 activations, twice the weights."""
    dualpipe = find("dualpipe")
    assert dualpipe.bubble(8, 20, 2, 1.0, 1.5, 0.5, 2.75) == 3 * (2.75 + 2.0 - 1.5)
    assert {dualpipe.in_flight(rank, 8, 20, 2) for rank in range(8)} == {9}
    assert dualpipe.copies == 2
    halved = find("dualpipe-v")
    assert halved.bubble(4, 20, 2, 2.0, 3.0, 1.0, 5.5) == dualpipe.bubble(8, 20, 2, 1.0, 1.5, 0.5, 2.75)


def test_dualpipe_sends_micro_batches_from_both_ends() -> None:
    dualpipe = find("dualpipe")
    first, *_, last = dualpipe.order(4, 8, 2)
    assert [slot.microbatch for slot in first[:3]] == [0, 1, 2]
    assert [slot.microbatch for slot in last[:3]] == [4, 5, 6]
    assert [slot.stage for slot in last[:3]] == [4, 4, 4]
    assert dualpipe.part_of(4, 4, 2) == 0
    mirrored = [(kind, 7 - stage, (microbatch + 4) % 8) for kind, stage, microbatch in last]
    assert mirrored == [(kind, 7 - (stage + 4) % 8, microbatch) for kind, stage, microbatch in first]


def test_two_way_ranks_run_forwards_together_with_backwards() -> None:
    pairs = [block for row in find("dualpipe-v").blocks(4, 10, 2) for block in row if len(block) == 2]
    assert pairs
    assert all((one.kind, other.kind) == ("F", "B") for one, other in pairs)
    assert all(one.microbatch != other.microbatch for one, other in pairs)


def test_pipedream_holds_a_version_for_each_mini_batch_in_flight() -> None:
    """SOSP 2019, section 3.3: the first of four stages holds four versions, the last one."""
    stash = find("stash")
    assert [stash.weight_versions(rank, 4) for rank in range(4)] == [4, 3, 2, 1]
    assert [stash.staleness(rank, 4) for rank in range(4)] == [3, 2, 1, 0]
    assert [stash.in_flight(rank, 4, 1, 1) for rank in range(4)] == [4, 3, 2, 1]
    assert not stash.flushes


@pytest.mark.parametrize(
    ("name", "size", "rule", "way_out"),
    [
        ("interleaved", (4, 10, 2), "micro-batches in whole rounds", "+m8 or +m12, or 1f1b"),
        ("interleaved", (4, 3, 2), "micro-batches in whole rounds", "+m4, or 1f1b"),
        ("interleaved", (4, 8, 1), "stages per rank", "interleaved,v2"),
        ("1f1b", (4, 8, 2), "stages per rank", "1f1b"),
        ("zb-v", (4, 8, 3), "stages per rank", "zb-v"),
        ("zb-h1", (8, 4, 1), "micro-batches fill the pipeline", "+m8, or 1f1b"),
        ("dualpipe", (3, 8, 2), "an even number of ranks", "pp4:dualpipe, or dualpipe-v"),
        ("dualpipe", (4, 9, 2), "an even number of micro-batches", "+m10, or dualpipe-v"),
        ("dualpipe-v", (4, 7, 2), "micro-batches fill the pipeline", "+m8, or 1f1b"),
        ("gpipe", (0, 1, 1), "something to schedule", "pp1 and +m1 are the least"),
    ],
)
def test_refusals_carry_the_rule_the_numbers_and_a_way_out(
    name: str, size: tuple[int, int, int], rule: str, way_out: str
) -> None:
    (refusal,) = find(name).refusals(*size)
    assert (refusal.rule, refusal.way_out) == (rule, way_out)
    assert any(str(number) in refusal.why for number in size)
    with pytest.raises(BadInput, match=name):
        find(name).order(*size)


def test_an_unknown_schedule_names_its_neighbours() -> None:
    with pytest.raises(UnknownName, match="interleaved"):
        find("interleave")


def test_a_list_that_waits_for_itself_is_found() -> None:
    class Backwards(type(find("gpipe")), frozen=True):
        name = "backwards"

        def phases(self, rank: int, ranks: int, microbatches: int, chunks: int) -> list[tuple[int, str]]:
            return [(microbatches, "B"), (microbatches, "F")]

    with pytest.raises(ValueError, match="waits for itself"):
        replay(Backwards(), 2, 2, 1, {"F": 1, "B": 2})


def test_a_drawn_timeline() -> None:
    assert draw("1f1b", 2, 3).split("\n") == [
        "rank 0  F0 F1 .  .  B0--- F2 B1--- .  B2---",
        "rank 1  .  F0 B0--- F1 B1--- F2 B2---",
    ]
    assert draw("interleaved", 2, 2, 2).split("\n") == [
        "rank 0  F0a F1a F0b F1b .   .   B0b---- .   B1b---- B0a---- B1a----",
        "rank 1  .   F0a F1a F0b B0b---- F1b B1b---- B0a---- B1a----",
    ]
