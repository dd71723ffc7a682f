import gc

import pytest


@pytest.fixture
def nothing_frozen():
    """The collector leaves nothing alone, as in a process that only measures."""
    gc.unfreeze()
    yield
    gc.freeze()
