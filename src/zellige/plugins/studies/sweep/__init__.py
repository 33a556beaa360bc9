"""A training for each combination of settings, and the best of them."""
