from __future__ import annotations

import pytest
from hypothesis import settings

# No deadline: a slow machine is no bug. `--hypothesis-profile=thorough` searches longer.
settings.register_profile("usual", deadline=None, max_examples=60)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile("usual")


@pytest.fixture(autouse=True, scope="session")
def _cache_of_our_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test may find, or leave, anything in the cache of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACEVIZ_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
