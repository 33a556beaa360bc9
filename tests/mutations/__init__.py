"""Planted errors, and who catches them: `verify` alone, or else the tests. `python -m tests.mutations` runs the catalogue."""
