"""The version, in a file of its own so that records can say it without importing the rest."""

__version__ = "0.1.0"
