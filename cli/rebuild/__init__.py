"""`outlast verify` and `outlast rebuild`: rows held against histories, and put right from there."""
