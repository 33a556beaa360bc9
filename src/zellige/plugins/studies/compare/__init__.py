"""Several methods, or several samplers of one model, in one table."""
