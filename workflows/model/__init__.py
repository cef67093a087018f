"""Frozen data. No decisions and no I/O, so the workflow sandbox may pass these modules through."""
