"""Temporal and Postgres as child processes: for `outlast dev`, the tests and the benchmarks."""
