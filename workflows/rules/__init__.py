"""Pure decisions. Guarded by the workflow sandbox: nothing here may read a clock or draw a random number."""
