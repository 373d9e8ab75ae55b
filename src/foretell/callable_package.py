"""Packages that are verbs too: `foretell.plan(...)` and `foretell.program(...)`.

A verb has the name of the command line, and two of these are packages of the walk as well. The import system sets a
package as an attribute of its parent whenever somebody imports it, so a function in its place would last until then.
The package itself can be called, whatever was imported first.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class CallablePackage(ModuleType):
    """A package whose call is that of a function with the same name, imported when it is called."""

    home: str  # of the function: above the package in the walk, and nothing that the package imports

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The function: `inspect.signature` and `help` look here."""
        function: Callable[..., Any] = getattr(importlib.import_module(self.home), self.__name__.rpartition(".")[2])
        return function

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self.__wrapped__(*given, **named)


def make_callable(package: str, home: str) -> None:
    """Let a package be called for the function of its name in the module `home`."""
    module = sys.modules[package]
    module.__class__ = CallablePackage
    vars(module)["home"] = home
