"""The command line: one file a verb, found by listing this folder."""

from foretell.cli.main import main

__all__ = ["main"]
