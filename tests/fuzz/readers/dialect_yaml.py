"""Configurations of trainers that are YAML."""

from fuzz.mutate import yaml_form
from fuzz.reader import Reader
from fuzz.readers._dialects import ENTRIES, written

READER = Reader(form=yaml_form, samples=written("YAML"), entries=ENTRIES, ending=".yaml")
