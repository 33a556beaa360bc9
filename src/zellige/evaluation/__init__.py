"""Likelihoods and sample quality, with intervals: `zellige evaluate`, and the metrics that others use too.

Other evaluations (a suite, pairs of texts, generated samples) are plug-ins in `plugins/evaluations/`; their requests
are `zellige.evaluations`.
"""
