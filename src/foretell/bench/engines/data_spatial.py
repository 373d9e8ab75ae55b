"""Replicas of two ranks that share images."""

from foretell.bench.engine import Engine

ENGINE = Engine(title="data x spatial", plan="dp{half} spatial2{region}", least=4)
