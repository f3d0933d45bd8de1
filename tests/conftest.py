from __future__ import annotations

from hypothesis import settings

# No deadline: a slow machine is no bug. `--hypothesis-profile=thorough` searches longer.
settings.register_profile("usual", deadline=None, max_examples=60)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile("usual")
