"""Replicas of two ranks that share filters."""

from foretell.bench.engine import Engine

ENGINE = Engine(title="data x filter", plan="dp{half} filter2", least=4)
