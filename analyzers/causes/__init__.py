"""What stopped the overlap: each missed nanosecond's cause, and the evidence in words.

Made here: `missed` with `cause`, `ns`, `after_sync_ns` (`table`, `missed`), `evidence` and `finding` (each cause's
record, in `not_launched`, `queued` and `free_to_run`), `next_behind` (`without`), and `own_work`.
By what they go: `gaps` (what is missed when), `explain` (what the next op waited for in each part of a gap), `hosts`
(what its thread did), `queues` (what it was queued behind), `occupancy` (whether the GPU had room).
"""
