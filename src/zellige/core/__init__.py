"""One position of noise: laws, draws, schedules, processes, predictions, the two bounds."""
