"""Open sets: a plural folder is a set, each file a member, the file's name the member's name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

from foretell.errors import unknown


class OpenSet:
    """The files of a package, found by listing it; a member is imported when asked for."""

    def __init__(self, package: str, kind: str) -> None:
        self._package = package
        self.kind = kind
        self._names: tuple[str, ...] | None = None

    def __iter__(self) -> Iterator[str]:
        if self._names is None:
            path = importlib.import_module(self._package).__path__
            found = (module.name for module in pkgutil.iter_modules(path) if not module.ispkg)
            self._names = tuple(sorted(name for name in found if not name.startswith("_")))
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in tuple(self)

    def __getitem__(self, name: str) -> ModuleType:
        if name not in self:
            raise unknown(self.kind, name, self)
        return importlib.import_module(f"{self._package}.{name}")
