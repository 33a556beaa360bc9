"""What a person sees: numbers, colours, bars, pictures, and how each kind of row is drawn; knows no model."""
