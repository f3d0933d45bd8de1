"""One clock for a run: offsets, drifts and bounds from collectives and host calls; who arrived last, and every wait.

Made here: `clocks.method`, `clocks.hosts_agree_ns`, `clocks.offsets` (`offset_ns`, `residual_ns`, `drift`,
`collectives`), and `wait_ns` of each op.
"""
