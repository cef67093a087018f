"""What a turn costs, measured against Temporal's own round trip and against a peer, in one run on one machine (docs/benchmarks.md)."""
