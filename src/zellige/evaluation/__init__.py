"""Likelihoods and sample quality, with intervals."""
