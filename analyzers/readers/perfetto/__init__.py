"""Perfetto's binary traces (`.pftrace`), of two writers: torch.profiler's CUPTI backend, and rocprofv3.

`packets` brings slices and GPU ops of a file; `read` and `rocprof` hand them to the readers of these tools' JSON, which
make the Trace.
"""
