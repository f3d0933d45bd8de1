"""What stopped the overlap: each missed nanosecond's cause, and the evidence in words.

Made here: `missed` with `cause`, `ns`, `after_sync_ns` (`table`, `missed`), `evidence` and `next_behind` (`evidence`).
The causes are a table in `table`. By what they go: `gaps` (what is missed when), `causes` (what the next op waited for
in each part of a gap), `queues` (what it was queued behind), `occupancy` (whether the GPU had room).
"""
