"""Configurations of trainers that are JSON."""

from fuzz.mutate import json_form
from fuzz.reader import Reader
from fuzz.readers._dialects import ENTRIES, written

READER = Reader(form=json_form, samples=written("JSON"), entries=ENTRIES[1:], ending=".json")
