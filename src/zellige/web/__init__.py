"""Models behind a port: the page of `zellige play`, and the endpoint of `zellige serve`.

    worker.py      who draws: a thread for each model, which takes the steps of all requests in turn
    guard.py       what is refused before anything is read: large bodies, other hosts, no token; how much one request
                   may ask for; the address that is listened at
    refusals.py    what goes wrong, in one sentence
    completions.py a request for a completion, checked, as a job for the worker; its answer
    serve.py       the endpoint, in the form of OpenAI's
    drawn.py       a draw as the page sees it: each step, with the distribution that each token came from
    export.py      a draw as one HTML file, a GIF, an MP4, a PNG, MIDI
    play.py        the page, and the options of a sampler as its fields

Needs the extra `web`: pip install 'zellige[web]'.
"""
