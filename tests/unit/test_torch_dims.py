"""Names of traced dims: cut, tied and read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foretell.model.dims import Dim
from foretell.model.importers.torch_dims import CERTAIN, GUESS, Atom, fresh, joined, leaves, read, regroup, size_of, tie
from foretell.units import product


def named(**sizes: int) -> tuple[tuple[Atom, ...], ...]:
    return tuple((Atom(size, name, GUESS),) for name, size in sizes.items())


def test_a_cut_reaches_everything_that_is_tied() -> None:
    """Features that are read as heads somewhere are heads everywhere."""
    weight, activation = fresh(32), fresh(32)
    tie(weight, activation)
    regroup([activation], (4, 8))
    assert read(weight) == (Dim("head", 4), Dim("head_dim", 8))


def test_a_surer_name_stays() -> None:
    guess, certain = fresh(8, "feature", GUESS), fresh(8, "head", CERTAIN)
    tie(guess, certain)
    assert read(guess) == (Dim("head", 8),)
    leaves(guess)[0].call("hidden", GUESS)
    assert read(certain) == (Dim("head", 8),)


def test_dims_that_are_cut_differently_fit_in_pieces() -> None:
    one, other = named(a=4, b=6), named(c=2, d=12)
    tie(joined(one), joined(other))
    assert [dim.size for dim in read(joined(one))] == [dim.size for dim in read(joined(other))] == [2, 2, 6]


def test_merged_and_parted_again() -> None:
    layout = named(sample=2, sequence=6, hidden=8)
    merged = regroup(layout, (12, 8))
    assert read(merged[0]) == (Dim("sample", 2), Dim("sequence", 6))
    assert regroup(merged, (2, 6, 8)) == layout


def test_a_batch_of_one_is_not_lost() -> None:
    layout = named(sample=1, sequence=6)
    flat = regroup(layout, (6,))
    assert read(flat[0]) == (Dim("sample", 1), Dim("sequence", 6))
    assert regroup(flat, (1, 6)) == layout


def test_a_name_comes_once() -> None:
    sequence = fresh(6, "sequence")
    assert [dim.name for dim in read((*sequence, *sequence))] == ["sequence", "key"]
    feature = fresh(6)
    assert [dim.name for dim in read((*feature, *feature))] == ["feature", "feature_2"]


def test_a_piece_is_named_as_the_whole() -> None:
    whole = fresh(6, "sequence")
    assert read(fresh(4, like=whole)) == (Dim("sequence", 4),)


shapes = st.lists(st.integers(1, 6), min_size=1, max_size=4)


@given(shapes, st.permutations(range(4)), st.randoms())
def test_every_view_has_the_sizes_it_should(shape: list[int], order: list[int], random: object) -> None:
    """Whatever a tensor is read as, its dims have those sizes and no element is lost."""
    layout = tuple(fresh(size) for size in shape)
    factors = [shape[at] for at in order if at < len(shape)]
    for target in (factors, [product(shape)], [1, *factors, 1], shape):
        view = regroup(layout, target)
        assert [size_of(leaves(group)) for group in view] == target
        tie(joined(layout), joined(view))
        assert product(dim.size for dim in read(joined(layout))) == product(shape)
