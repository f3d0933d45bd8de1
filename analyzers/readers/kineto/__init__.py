"""torch.profiler's traces (Kineto's JSON, plain or gzip).

`read` makes a Trace of one file; `stream` brings its events in pieces, decoded by `events` or, where all events of a
kind have one layout, by `fast`; `header` reads what stands around them; `tables` makes columns of them.
"""
