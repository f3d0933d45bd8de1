"""One clock for a run: offsets, drifts and their bounds from matched collectives; who arrived last, and every wait.

Made here: `clocks.method`, `clocks.offsets` (`offset_ns`, `residual_ns`, `drift`, `collectives`), and `wait_ns` of
each op.
"""
