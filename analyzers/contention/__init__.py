"""What overlap costs: kernels that run beside other work run longer than like ones alone.

Made here: `contention` of check-overlap with `slowdown_beside`, `paid_ns` and `net_overlap_ns` (`cost`), by how long
like kernels ran (`timings`) alone (`alone`); the kernels that `traceviz streams --contention` lists (`neighbours`).
"""
