"""Vectors of int64: intervals and their unions, rows by key, exact shares. Knows no trace.

Every length in ns that is a union or an intersection (`busy_ns`, `overlap_ns`, `wait_ns`, …) is measured by
`intervals`; amounts that have to sum exactly are dealt out by `shares`.
"""
