"""`zellige evaluate RUN --generate`: samples judged, and the networks that judge them."""
