"""What each collective cost (`traceviz collectives`).

Made here: `fastest_ns`, `fastest_rank`, `last_arrival_rank`, `end_skew_ns`, `transfer_ns`, `bus_gb_s` (`report`),
the rows of `summary` (`summary`), and the warnings about impossible collectives (`checks`).
"""
