"""Configurations of trainers that are TOML."""

from fuzz.mutate import toml_form
from fuzz.reader import Reader
from fuzz.readers._dialects import ENTRIES, written

READER = Reader(form=toml_form, samples=written("TOML"), entries=ENTRIES, ending=".toml")
