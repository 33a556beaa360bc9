"""One table of several."""
