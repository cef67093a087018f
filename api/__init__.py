"""Thin HTTP: validate, address the workflow or the read model, map the answer."""
