"""torch.profiler's traces (Kineto's JSON, plain or gzip).

`read` makes a Trace of one file. Its events come in pieces (`readers.json_stream`), decoded by `events` or, where all
events of a kind have one layout, by `fast`; `header` reads what stands around them; `tables` makes columns of them.
What vendors write otherwise is mended by a file each, listed in `vendors`.
"""
