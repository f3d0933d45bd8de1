"""Which files are captures, and one capture read into a Trace of tables, through the cache.

`inputs` tells formats by their first bytes; `captures` reads one or many; a format is a package or module below.
Made here: what `traceviz info` says of `captures`: `path`, `format`, `host`, `start_utc_ns` and what a capture lacks
(`cannot`).
"""
