"""A trained model: in memory, on disk, and what it says of itself.

model, config, checkpoint/, locate, hub, published, adapter, low_rank    the model and its folder
shipped/                                                                 the models that come with Zellige
class_names, decoding, defaults, ends, given                             its classes, how it is sampled, where its texts end
classifier, speculative, averaged, network_folder                        what can go with a model
embed                                                                    texts as vectors
"""
