"""`outlast chat`: a terminal client that knows the HTTP API and nothing else."""
