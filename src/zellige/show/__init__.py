"""Results: numbers, colours, bars, pictures and the drawing of each kind of row, for people; `record`, as JSON.

Nothing here knows a model.
"""
