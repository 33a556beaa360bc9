"""`zellige evaluate --generate`: samples are drawn, judged beside real text or images, and printed."""
