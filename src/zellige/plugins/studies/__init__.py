"""Several trainings or models in one table.

compare/  methods, or the samplers of one model, side by side
sweep/    a training for each combination of settings
plan/     what a training takes on other devices
probes/   what the features of a model know: probes, GLUE, Genomic Benchmarks
"""
