"""What the features of a trained model know: probes, GLUE, Genomic Benchmarks."""
