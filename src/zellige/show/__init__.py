"""Results: numbers, colours, bars, pictures and the drawing of each kind of row, for people; `record`, as JSON.

A terminal, a file and a notebook draw a row by its kind (`kinds`). Nothing here knows a model.
"""
