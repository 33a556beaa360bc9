"""A trained model, and what it writes.

model, config, checkpoint/, locate, hub, published, adapter, low_rank    the model and its folder
shipped/                                                                 the models that come with Zellige
sample, infill, sampling, trajectory, samples, defaults, ends, given     from a request to samples
classifier, reward, speculative, averaged, network_folder                what can go with a model
embed                                                                    texts as vectors
"""
