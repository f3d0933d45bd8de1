"""Nsight Systems: reports (exported by `export`), SQLite exports, and pasted tables of `nsys stats`.

`read` makes a Trace of one export; `file` asks SQLite, `about` says what was captured of which process, `events`
reads calls, ranges and synchronizations, `ops` GPU work, `nccl` what NCCL's ranges say of communication; `stats`
reads a pasted table.
"""
