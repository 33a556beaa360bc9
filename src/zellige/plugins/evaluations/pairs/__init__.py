"""`zellige evaluate RUN --pairs`: given continuations scored, and choices between them."""
