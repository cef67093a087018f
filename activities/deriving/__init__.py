"""Rows of a session derived again from what its histories say, and held against the rows that there are."""
