"""Laws of every algorithm for collectives: it does what it is for, sends what its formula says, takes as long."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from foretell.cost.collectives import alpha_beta, collective_seconds
from foretell.cost.fabric import Group
from foretell.errors import BadInput
from foretell.lab.describe import described
from foretell.lab.formula import Software, formula, further
from foretell.lab.measure import KINDS
from foretell.lab.network import PAYLOAD, LabNetwork, Wire
from foretell.runtime.collectives import ALGORITHMS, AlgorithmChoice, Team, chosen
from foretell.runtime.collectives._rehearsal import play, tally
from law_examples import examples, reached

TEXTS = (*(name for name in ALGORITHMS), "parameter_server:2", "parameter_server:0", "hierarchical:2", "hierarchical:3")
PAIRS = [(text, kind) for text in TEXTS for kind in KINDS if chosen(text).does(kind)]
ALPHA, RATE = 3.0, 8.0


def fits(choice: AlgorithmChoice, ranks: int) -> bool:
    if choice.name == "hierarchical":
        return ranks % choice.number == 0
    return choice.name != "parameter_server" or choice.number <= ranks


def right(kind: str, given: list[numpy.ndarray], found: list[numpy.ndarray], at: int) -> bool:
    """Whether a rank has what it should, in whole numbers: sums are exact."""
    total, count = sum(given), len(given)
    blocks = [slice(*Team.of(at, count, len(given[0])).block(place)) for place in range(count)]
    if kind == "all-reduce":
        return bool((found[at] == total).all())
    if kind == "reduce-scatter":
        return bool((found[at][blocks[at]] == total[blocks[at]]).all())
    if kind == "broadcast":
        return bool((found[at] == given[0]).all())
    if kind == "all-gather":
        return all((found[at][blocks[place]] == given[place][blocks[place]]).all() for place in range(count))
    return all((found[at][blocks[place]] == given[place][blocks[at]]).all() for place in range(count))


@pytest.mark.parametrize(("text", "kind"), PAIRS)
@given(st.integers(1, 13), st.integers(0, 300), st.integers(0, 2**32 - 1))
def test_every_rank_gets_what_the_collective_is_for(text: str, kind: str, ranks: int, size: int, seed: int) -> None:
    choice = chosen(text)
    if not fits(choice, ranks):
        ranks = choice.number * 2 or ranks
    size -= size % ranks if kind == "all-to-all" else 0
    numbers = numpy.random.default_rng(seed)
    given = [numbers.integers(-1000, 1000, size).astype(numpy.float64) for _ in range(ranks)]
    found = play(choice, kind, given).tensors
    assert all(right(kind, given, found, at) for at in range(ranks))


def flat(hosts: int) -> LabNetwork:
    return LabNetwork(hosts=hosts, rate=RATE * 4 / PAYLOAD, delay=ALPHA - 1.0)  # elements of four bytes


def seconds(choice: AlgorithmChoice, kind: str, ranks: int, size: int) -> float:
    tensors = [numpy.zeros(size) for _ in range(ranks)]
    return play(choice, kind, tensors, alpha=ALPHA, beta=1 / RATE).seconds


ON_ONE_SWITCH = [
    (text, kind, ranks)
    for text, kind in PAIRS
    for ranks in (2, 4, 8)
    if fits(chosen(text), ranks) and chosen(text).name != "hierarchical" and (text, kind) != ("ring", "broadcast")
]
"""Islands, and the chain that has to be filled, are tried below."""


@pytest.mark.parametrize(("text", "kind", "ranks"), ON_ONE_SWITCH)
def test_on_ideal_links_it_takes_what_its_formula_says(text: str, kind: str, ranks: int) -> None:
    choice = chosen(text)
    size = 64 * ranks * 6
    said = formula(choice, kind, 4 * size, described(flat(ranks), overhead=1.0))
    assert seconds(choice, kind, ranks, size) == pytest.approx(said, rel=1e-9)


@pytest.mark.parametrize("size", [100, 4096, 5 * 4096, 32 * 4096, 4 * 32 * 4096])
@pytest.mark.parametrize("ranks", [2, 4, 7])
def test_a_chain_takes_its_formula_and_the_pieces_that_fill_it(ranks: int, size: int) -> None:
    said = formula(chosen("ring"), "broadcast", 4 * size, described(flat(ranks), overhead=1.0))
    assert seconds(chosen("ring"), "broadcast", ranks, size) == pytest.approx(said)


@pytest.mark.parametrize("kind", ["all-reduce", "all-gather", "reduce-scatter"])
@pytest.mark.reaches(only_one_counts=2)
@given(st.integers(2, 4), st.integers(2, 3), st.integers(0, 12))
def test_a_ring_between_islands_takes_its_formula(kind: str, island: int, islands: int, doublings: int) -> None:
    """Small blocks wait for each other, large ones for the way out; where both count it is not above a fifth more."""
    hosts, inside, out = island * islands, (2.0, 1 / 64), (5.0, 1 / 8)
    network = LabNetwork(
        hosts=hosts, rate=64 * 4 / PAYLOAD, delay=1.0, island=island, uplink=Wire(8 * 4 / PAYLOAD, 3.0)
    )
    size = hosts << doublings

    def wires(source: int, target: int) -> tuple[float, float]:
        return inside if source // island == target // island else out

    took = play(chosen("ring"), kind, [numpy.zeros(size)] * hosts, wires=wires).seconds
    said = formula(chosen("ring"), kind, 4 * size, described(network, overhead=1.0))
    assert said == pytest.approx(took, rel=0.2)
    if doublings == 0 or doublings == 12:
        reached("only_one_counts")
        assert said == pytest.approx(took, rel=0.02)


def test_islands_are_crossed_as_the_formula_says() -> None:
    """Two islands of two: inside by the port, outside by a share of the way out that two ranks have each."""
    network = LabNetwork(hosts=4, rate=8e6, delay=1e-3, island=2, uplink=Wire(2e6, 4e-3))
    cluster = described(network, overhead=1e-3)
    size = 1 << 20
    inside = 2 * (2e-3 + size / 2 / (8e6 * PAYLOAD))
    outside = 2 * (6e-3 + size / 2 / (2e6 * PAYLOAD))  # each of two has half of the tensor, sends half of it twice
    assert formula(chosen("hierarchical:2"), "all-reduce", size, cluster) == pytest.approx(inside + outside)
    tally_of_one = tally(chosen("hierarchical:2"), "all-reduce", 0, 4, size // 4)
    assert tally_of_one == (2 + 2, 2 * size // 4 // 2 + 2 * size // 4 // 4)


SENT = {
    ("ring", "all-reduce"): (lambda n: 2 * (n - 1), lambda n: 2 * (n - 1) / n),
    ("ring", "all-gather"): (lambda n: n - 1, lambda n: (n - 1) / n),
    ("ring", "reduce-scatter"): (lambda n: n - 1, lambda n: (n - 1) / n),
    ("butterfly", "all-reduce"): (lambda n: n.bit_length() - 1, lambda n: n.bit_length() - 1),
    ("recursive", "all-reduce"): (lambda n: 2 * (n.bit_length() - 1), lambda n: 2 * (n - 1) / n),
    ("parameter_server:1", "all-reduce"): (lambda n: n - 1, lambda n: n - 1),
    ("parameter_server:0", "all-reduce"): (lambda n: 2 * (n - 1), lambda n: 2 * (n - 1) / n),
    ("direct", "all-to-all"): (lambda n: n - 1, lambda n: (n - 1) / n),
    ("binomial", "all-reduce"): (lambda n: n.bit_length() - 1, lambda n: n.bit_length() - 1),
}
"""Messages and tensors that the busiest rank sends, among a power of two."""


@pytest.mark.parametrize("ranks", [2, 4, 16])
@pytest.mark.parametrize(("text", "kind"), SENT)
def test_messages_and_bytes_are_those_of_the_formula(text: str, kind: str, ranks: int) -> None:
    size = 32 * ranks
    messages, tensors = SENT[text, kind]
    found = [tally(chosen(text), kind, rank, ranks, size) for rank in range(ranks)]
    assert max(one.messages for one in found) == messages(ranks)
    assert max(one.elements for one in found) == tensors(ranks) * size


@given(st.sampled_from([4, 8]), st.floats(1e-5, 1e-2), st.floats(1e6, 1e9))
def test_the_butterfly_loses_where_the_formulas_cross(ranks: int, latency: float, rate: float) -> None:
    """Below the crossover few steps win, above it few bytes: the rehearsal finds the same border as the formulas.

    Not of two ranks, whose butterfly has half the steps and the same bytes.
    """
    steps = ranks.bit_length() - 1
    crossing = latency * steps / (steps - 2 * (ranks - 1) / ranks) * rate / 4

    def slower(size: int) -> bool:
        few, many = (
            play(chosen(text), "all-reduce", [numpy.zeros(size)] * ranks, latency, 4 / rate).seconds
            for text in ("butterfly", "recursive")
        )
        return few > many

    unit = 8
    below, above = max(0, int(crossing / 2)) // unit * unit, (int(crossing * 2) // unit + 1) * unit
    assume(above <= 1 << 20)
    assert not slower(below)
    assert slower(above)


@pytest.mark.parametrize("cores", [1, 2, 16])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_rounds_in_which_every_host_sends_one_message_have_no_further_ones(ranks: int, cores: int) -> None:
    plain = [(text, kind) for text, kind in PAIRS if text in ("ring", "butterfly", "recursive", "direct")]
    for text, kind in plain:
        if (text, kind) != ("ring", "broadcast"):
            assert further(chosen(text), kind, ranks, cores) == 0


def test_cores_share_messages_and_a_rank_has_its_own() -> None:
    """Four servers get three messages each and send as many; one server alone, too, and there two cores help nobody."""
    everywhere, one = chosen("parameter_server:4"), chosen("parameter_server:1")
    assert further(everywhere, "all-reduce", 4, 2) == 2 * (12 / 2 - 4 / 2)
    assert further(everywhere, "all-reduce", 4, 16) == further(one, "all-reduce", 4, 16) == 2 * (3 - 1)
    assert further(one, "all-reduce", 4, 2) == 2 * (3 - 4 / 2)
    assert further(chosen("binomial"), "broadcast", 4, 2) < 0  # most hosts look on


def test_software_comes_on_top_of_a_formula() -> None:
    choice, cluster = chosen("parameter_server:4"), described(flat(4), overhead=1.0)
    bare = formula(choice, "all-reduce", 64, cluster)
    taken = Software(start=5.0, message=1.0, beside=0.25, cores=2)
    assert formula(choice, "all-reduce", 64, cluster, taken) == pytest.approx(bare + 5.0 + 0.25 * 8)


@pytest.mark.parametrize(("text", "kind"), [pair for pair in PAIRS if fits(chosen(pair[0]), 16)])
@given(beside=st.floats(0.0, 10.0), message=st.floats(0.0, 3.0))
@examples(10)
def test_nothing_is_faster_than_the_wires(text: str, kind: str, beside: float, message: float) -> None:
    """However many hosts look on while a core is busy."""
    taken = Software(start=0.5, message=message, beside=beside, cores=2)
    wires = formula(chosen(text), kind, 64, described(flat(16), overhead=0.0))
    found = formula(chosen(text), kind, 64, described(flat(16), overhead=message), taken)
    assert found >= (0.5 + wires) * (1 - 1e-9)


def test_the_cheapest_is_the_one_of_the_library() -> None:
    cluster = described(flat(4), overhead=1.0)
    each = [
        formula(AlgorithmChoice(name), "all-reduce", 64, cluster)
        for name in ("ring", "butterfly", "recursive", "binomial")
    ]
    best = collective_seconds("all-reduce", 64, Group(4), cluster, library=alpha_beta()).seconds
    assert best <= min(each)


@pytest.mark.parametrize("text", ["rings", "ring:2", "ps:x", "hierarchical:x"])
def test_words_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(BadInput):
        chosen(text)


def test_numbers_that_do_not_fit_are_refused() -> None:
    for text, ranks in (("hierarchical:3", 4), ("ps:5", 4)):
        with pytest.raises(BadInput, match="ranks"):
            list(chosen(text).rounds("all-reduce", Team.of(0, ranks, 8)))
        with pytest.raises(BadInput, match="ranks"):
            chosen(text).check(ranks)


@pytest.mark.parametrize("text", ["ring", "ps:0", "ps:4", "hierarchical:2", "direct"])
def test_numbers_that_fit_are_not_refused(text: str) -> None:
    chosen(text).check(4)


def test_names_of_the_papers_are_known() -> None:
    names = ("tree", "recursive-doubling", "rabenseifner", "ps:4", "pairwise")
    assert [chosen(name).text for name in names] == [
        "binomial",
        "butterfly",
        "recursive",
        "parameter_server:4",
        "direct",
    ]
