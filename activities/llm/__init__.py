"""Everything that talks to a model: the library is touched nowhere else."""
