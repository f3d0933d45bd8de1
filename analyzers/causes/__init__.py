"""What stopped the overlap: each missed nanosecond's cause, and the evidence in words.

Made here: `missed` with `cause`, `ns`, `after_sync_ns` (`causes`, `missed`), `evidence` and `next_behind`
(`evidence`). A cause's own rule: `gaps` (what is missed when), `queues` (same-stream, event-dependency, stream-
busy), `occupancy` (gpu-full).
"""
