"""From a request to samples of a model, decoded. The algorithms are in `samplers/`, on tokens alone.

request, sample, infill, choices     requests for samples and their fields, resolved for a model
guidance, reward                     wrappers of the method
tokens, masked_text                  the tokens that samples begin with; a text with masked spans
trajectory, samples                  the steps of a set of samples, and the samples at the end
"""
