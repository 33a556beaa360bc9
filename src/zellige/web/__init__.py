"""Models behind a port: the page of `zellige play`, and the endpoint of `zellige serve`.

    worker.py      who draws: a thread for each model, which takes the steps of all requests in turn
    limits.py      how much one request may ask for
    guard.py       what is refused before anything is read: large bodies, other hosts, no token
    refusals.py    what goes wrong, in one sentence
    completions.py a request for a completion, checked, as a job for the worker; its answer
    serve.py       the endpoint, in the form of OpenAI's
    drawn.py       a draw as the page sees it: each step, with the law that each token came from
    sampler_fields.py  the options of a sampler, as fields of the page
    export.py      a draw as one HTML file, a GIF, an MP4, a PNG, MIDI
    play.py        the page

Needs the extra `web`: pip install 'zellige[web]'.
"""
