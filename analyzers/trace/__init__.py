"""The tables of a run and what is true of them by themselves: columns, ranges, steps, ranks, devices, parts.

Made here: `rank` and `device` of every answer and the `rule` by which a rank was told (`ranks`), `steps` (`steps`),
`memory` (`memory`); the warnings `lost-work` (`lost`), `launched-before` and `missing-launch` (`unlaunched`),
`profiler-overhead` (`overhead`), `graph-as-one-row` (`graphs`).
"""
