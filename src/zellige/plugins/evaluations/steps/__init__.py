"""`zellige evaluate RUN --steps`: the bound for several numbers of sampling steps."""
