"""Profiles of JAX and other users of XLA on GPUs: `*.trace.json.gz`, `perfetto_trace.json.gz` and `*.xplane.pb`.

`profile` brings the events of a file, `read` makes a Trace of them.
"""
