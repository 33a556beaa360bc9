"""Memory, speed and hours of a training on other devices."""
