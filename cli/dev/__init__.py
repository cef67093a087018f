"""`outlast dev`: everything on one machine."""
