"""A run on disk: the names of its files (`layout`), how a checkpoint is written (`write`,
`shards`) and read (`read`)."""
