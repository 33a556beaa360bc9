"""Likelihoods, with intervals (`zellige evaluate`), and metrics of samples.

Other evaluations (a suite, pairs of texts, generated samples) are plug-ins in `plugins/evaluations/`; their requests
are in `zellige.evaluations`.
"""
