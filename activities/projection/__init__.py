"""The projecting writes: what a turn does to the rows, one transaction each, safe to repeat."""
