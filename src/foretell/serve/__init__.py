"""A page in the browser and an API for programs, on this machine alone.

    page/         what a person sees: HTML, a style, a script; all else comes from the API
    calls/        one file a call of the API: what it is given, what it answers
    question.py   what all calls are about: a model under a plan on a cluster, read without touching any file
    worker.py     a process that answers; it can be ended when an answer takes too long
    crew.py       the workers, and who is idle
    searches.py   searches that run, how far they are, and what they found
    guards.py     who may ask: this machine's own pages, with so many bytes
    app.py        requests to calls;  openapi.py describes them

The process that listens computes nothing: it checks, asks a worker, and passes the answer on.
"""
