"""Replicas of a pipeline of two stages."""

from foretell.bench.engine import MICRO, Engine

ENGINE = Engine(title="data x pipeline", plan="pp2:1f1b dp{half} +m8", batch_rule=MICRO, least=4)
