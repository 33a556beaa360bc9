"""One position of noise: distributions, draws, schedules, processes, predictions, the two bounds."""
