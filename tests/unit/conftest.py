"""Examples of hypothesis: as many as a busy machine has time for, and the same ones each time unless a long run looks for new ones."""

import os

from hypothesis import HealthCheck, settings

LONG = bool(os.environ.get("TEST_LONG"))

settings.register_profile("outlast", deadline=None, derandomize=not LONG, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("outlast")
