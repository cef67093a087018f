"""The `outlast` command."""
