"""Which files are captures, and one capture read into a Trace of tables, through the cache.

`formats` is the table of what can be read; `inputs` finds files and tells their formats by it; `captures`
reads one or many.
Made here: what `traceviz info` says of `captures`: `path`, `format`, `host`, `start_utc_ns` and what a capture lacks
(`cannot`).
"""
