"""Settings for all tests."""

from hypothesis import HealthCheck, settings

# No test asserts a maximum time; on a busy machine Hypothesis' own limits would.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
