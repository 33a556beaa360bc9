"""Models behind a port: the page of `zellige play`, and the endpoint of `zellige serve`.

    worker.py      threads for each model, which take the steps of all requests in turn
    guard.py       refusals before a body is read: large bodies, other hosts, no token; the limits of a request; the address
    refusals.py    errors, in one sentence
    body.py        the bodies of requests, with the fields of `models.decoding.Decoding`
    completions.py a request for a completion, checked, as a job for the worker; its answer
    serve.py       the endpoint, in the form of OpenAI's
    meter.py       what a server has done: a line for each request, and numbers for Prometheus
    drawn.py       a sample as the page shows it: each step, with the distribution of each token
    export.py      a run as one HTML file, a GIF, an MP4, a PNG, MIDI
    examples.py    texts to start from, for the models that come with Zellige
    play.py        the page, and the options of a sampler as its fields

Needs the extra `web`: pip install 'zellige[web]'.
"""
