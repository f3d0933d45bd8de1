"""torch.profiler's traces (Kineto's JSON, plain or gzip).

`read` makes a Trace of one file. Its events come in pieces (`readers.json_stream`), decoded by `fast` where they are
written as torch does, else by `events`. `merged` tells ranks apart, `tables` makes columns, `vendors` mends what some
write otherwise, and `oddities` says what is odd or missing.
"""
