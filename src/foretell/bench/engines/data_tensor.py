"""Replicas of two ranks that share columns and rows."""

from foretell.bench.engine import Engine

ENGINE = Engine(title="data x tensor", plan="dp{half} tp2", least=4)
