"""What the hardware did while A, B, both or neither ran: samples of GPU counters joined to overlap.

Made here: `states` weighs each sample by how long each state held during it, `limits` says by rule what the sides
contend for, and `report` puts both together into an answer.
"""
