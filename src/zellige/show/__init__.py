"""Output for people: numbers, colours, bars, pictures, and the drawing of each kind of row; knows no model."""
