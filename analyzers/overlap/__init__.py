"""How much of two sides ran together, instance by instance and rank by rank, and what that says of the job.

Made here: `busy_ns`, `overlap_ns`, `real_overlap_ns`, `achievable_ns`, `missed_ns` and their ratios (`measure`),
`paired_by` and `instances` (`pairing`), `job` (`job`), `real_overlap_bounds_ns` and the job's ratio low and high
(`certainty`).
"""
