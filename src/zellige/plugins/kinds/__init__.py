"""Kinds of data, a folder each: how their rows are read, drawn, varied and judged, and their data sets.

    dna/        windows of FASTA and FASTQ; the other strand
    molecules/  SMILES and SELFIES; validity, properties, metrics of samples
    music/      chorales and pianorolls; their drawing, and MIDI
    puzzles/    sudokus, their rules and symmetries; whether held-out ones are solved

A folder's `__init__` declares the data sets and imports nothing heavy. The library finds them by their names
(`zellige.plugins.TABLE`), as those of another package.
"""
