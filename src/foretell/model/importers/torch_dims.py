"""Names for the dims of traced tensors.

PyTorch knows sizes, not meanings. Every dim of a traced tensor is a product of atoms. Operators tie
atoms together (the two sides of a sum are the same dims) and views regroup them, cutting an atom
where a dim is cut: 4096 features that are read as 32 x 128 are from then on, everywhere, two atoms.
Names come from where a meaning is certain (the batch of the inputs, the heads of an attention) and
reach everything that is tied; names are read only when the trace is over. No torch here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from foretell.model.dims import Dim, Dims
from foretell.units import product

GUESS, ROLE, CERTAIN = 1, 2, 3
"""How sure a name is; of two, the surer stays."""

FEATURES = ("", "feature", "hidden", "ffn", "head_dim")
SPACE = ("depth", "height", "width")


class Atom:
    """A dim that nobody has cut yet."""

    __slots__ = ("_root", "like", "name", "parts", "size", "sure", "whole")

    def __init__(self, size: int, name: str = "", sure: int = 0, like: Atom | None = None) -> None:
        self.size = size
        self.name = name
        self.sure = sure if name else 0
        self.like = like  # named as this one is, if by nothing else (a slice of it)
        self.parts: tuple[Atom, ...] = ()
        self.whole: Atom | None = None  # what it was cut from
        self._root: Atom | None = None  # the atom it was tied to

    def root(self) -> Atom:
        atom = self
        while atom._root is not None:
            atom = atom._root
        if atom is not self:
            self._root = atom
        return atom

    def call(self, name: str, sure: int) -> None:
        """Propose a name."""
        atom = self.root()
        if sure > atom.sure:
            atom.name, atom.sure = name, sure

    def tie(self, other: Atom) -> None:
        """This atom and that one, equal in size and both uncut, are one."""
        here, there = self.root(), other.root()
        if here is there:
            return
        if there.sure > here.sure:
            here, there = there, here
        there._root = here
        here.like = here.like or (there.like if there.like is not here else None)
        here.whole = here.whole or there.whole

    def cut(self, outer: int) -> tuple[Atom, Atom]:
        """Cut into `outer` groups of neighbours."""
        atom = self.root()
        parts = Atom(outer), Atom(atom.size // outer)
        for part in parts:
            part.whole = atom
        atom.parts = parts
        return parts


Group: TypeAlias = tuple[Atom, ...]
"""One dim of a tensor: the atoms whose product it is, outermost first."""

Layout: TypeAlias = tuple[Group, ...]
"""All dims of a tensor."""


def fresh(size: int, name: str = "", sure: int = GUESS, like: Group | None = None) -> Group:
    """A dim that is tied to nothing yet; a dim of one element has no meaning and no atoms."""
    if size == 1:
        return ()
    model = leaves(like)[0] if like and len(leaves(like)) == 1 else None
    return (Atom(size, name, sure, model),)


def leaves(group: Iterable[Atom]) -> list[Atom]:
    """The uncut atoms of a dim (or of several)."""
    found: list[Atom] = []
    for atom in group:
        root = atom.root()
        if root.parts:
            found.extend(leaves(root.parts))
        else:
            found.append(root)
    return found


def size_of(group: Iterable[Atom]) -> int:
    return product(atom.size for atom in group)


def tie(here: Iterable[Atom], there: Iterable[Atom]) -> None:
    """Two dims are the same dim. Where their atoms differ they are cut until they fit."""
    left = deque(atom for atom in leaves(here) if atom.size != 1)
    right = deque(atom for atom in leaves(there) if atom.size != 1)
    if size_of(left) != size_of(right) or 0 in (size_of(left), size_of(right)):
        return
    while left and right:
        a, b = left.popleft().root(), right.popleft().root()
        if a is b:
            continue
        if a.parts or b.parts:  # cut in the meantime: both stood for the same atom
            left.extendleft(reversed(leaves((a,))))
            right.extendleft(reversed(leaves((b,))))
        elif a.size == b.size:
            a.tie(b)
        elif a.size > b.size and a.size % b.size == 0:
            right.appendleft(b)
            left.extendleft(reversed(a.cut(b.size)))
        elif b.size > a.size and b.size % a.size == 0:
            left.appendleft(a)
            right.extendleft(reversed(b.cut(a.size)))
        else:
            return


def regroup(layout: Sequence[Group], shape: Sequence[int]) -> Layout:
    """The dims of the same elements in the same order under another shape (a view)."""
    if 0 in shape:
        return tuple(fresh(size) for size in shape)
    waiting = deque(leaves(atom for group in layout for atom in group))
    found: list[Group] = []
    for size in shape:
        taken = _take(waiting, size)
        if taken is None:  # sizes that no cut brings together: nothing is known from here on
            return tuple(found) + tuple(fresh(rest) for rest in shape[len(found) :])
        found.append(taken)
    if waiting and found:
        found[-1] = (*found[-1], *waiting)
    return tuple(found)


def _take(waiting: deque[Atom], size: int) -> Group | None:
    """The next atoms that make up `size`, cut where they must be."""
    if size == 1:
        return (waiting.popleft(),) if waiting and waiting[0].size == 1 else ()
    group: list[Atom] = []
    left = size
    while left > 1:
        if not waiting:
            return None
        atom = waiting.popleft().root()
        if atom.parts:  # cut while it waited
            waiting.extendleft(reversed(leaves((atom,))))
        elif left % atom.size == 0:
            group.append(atom)
            left //= atom.size
        elif atom.size % left == 0:
            outer, inner = atom.cut(left)
            group.append(outer)
            waiting.appendleft(inner)
            left = 1
        else:
            return None
    return tuple(group)


def joined(groups: Iterable[Group]) -> Group:
    """Several dims as one."""
    return tuple(atom for group in groups for atom in group)


def name_of(atom: Atom, depth: int = 8) -> str:
    """The name of an uncut atom: its own, that of what it is a slice of, or by what it was cut from."""
    atom = atom.root()
    if atom.name or depth == 0:
        return atom.name
    if atom.like is not None:
        named = name_of(atom.like, depth - 1)
        if named:
            return named
    return _cut_name(atom, atom.whole.root(), depth) if atom.whole is not None else ""


def _cut_name(atom: Atom, whole: Atom, depth: int) -> str:
    name = name_of(whole, depth - 1)
    outer, inner = whole.parts if whole.parts else (atom, atom)
    is_outer = outer.root() is atom
    if name in FEATURES:
        if is_outer:
            return "part" if inner.root().parts else "head"
        return "head_dim"
    if name == "channel":
        return "group" if is_outer else "channel"
    return name if is_outer else f"inner_{name}"


def read(group: Iterable[Atom], taken: set[str] | None = None) -> Dims:
    """The dims that these atoms stand for, with names that differ from one another and from `taken`."""
    taken = set() if taken is None else taken
    found: list[Dim] = []
    for atom in leaves(group):
        plain = name_of(atom) or "feature"
        name, count = plain, 1
        while name in taken:
            count += 1
            # a second sequence beside the first is what attention looks up
            name = "key" if plain == "sequence" and count == 2 else f"{plain}_{count}"
        taken.add(name)
        found.append(Dim(name, atom.size))
    return tuple(found)
