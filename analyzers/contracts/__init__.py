"""Contracts: what must be true of the order of work, whatever the timings (`traceviz contract`).

Made here: `outcome`, `rules[]` with what breaks each (`rules`, `checks`), over what surely and what possibly comes
before what (`order`), in words (`words`).
"""
