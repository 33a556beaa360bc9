"""The noise at one position: random sampling, schedules, processes, predictions, and the two bounds."""
