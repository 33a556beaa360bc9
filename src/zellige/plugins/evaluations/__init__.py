"""What else `zellige evaluate` asks of a model, a folder each: `request.py` has its options, `command.py` what is printed.

generate/ samples judged: text by a language model and beside real text, images by FID and its kin
steps/    the bound for several numbers of sampling steps
bracket/  upper and lower bounds on -log p of a text
suite/    the zero-shot likelihoods of the literature
pairs/    given continuations scored, and choices between them
"""
