"""Hypothesis: no time limits, they belong to benchmarks."""

from hypothesis import HealthCheck, settings

settings.register_profile("foretell", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)
settings.load_profile("foretell")
