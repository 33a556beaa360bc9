"""Networks that are trained on a model: `zellige train classifier`, `speculative` and `distill`.

requests, command                  their options, in Python and on the command line
classifier, speculative, distill   what is trained, by which loss, and how it is measured
small                              the loop of all three: AdamW in one process, without a run on disk
"""
