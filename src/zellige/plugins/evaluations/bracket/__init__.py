"""`zellige evaluate RUN --bracket`: upper and lower bounds on -log p of a text."""
