"""Does: the I/O behind the contracts of the same names."""
