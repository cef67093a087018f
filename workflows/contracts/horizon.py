"""How far ahead anything can be waited for. Nothing is imported here, so that settings and profiles may know it too."""

LONGEST_HOURS = 100 * 365 * 24
"""How long a deadline, a reminder, an expiry or any time in settings may be: a hundred years, as Temporal's own timers. Times far behind that have
no date."""

LONGEST_SECONDS = LONGEST_HOURS * 3600
"""The same in seconds."""
