"""`zellige evaluate RUN --suite`: the zero-shot likelihoods of the literature."""
