"""Decides: deterministic workflow code, its data, its rules and what crosses its boundary."""
