"""The command line: one file a verb."""

from foretell.cli.main import main

__all__ = ["main"]
