"""torch.profiler's traces (Kineto's JSON, plain or gzip).

`read` makes a Trace of one file. Its events come in pieces (`readers.json_stream`), decoded by `fast` where they are
written as torch does, else by `events`, or by `mend` where they are no valid JSON; `header` reads what stands around
them. `merged` tells ranks apart, `tables` makes columns, and `oddities` says what is odd or missing. What vendors write
otherwise is mended by a file each (`vendor`).
"""
