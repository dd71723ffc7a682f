"""All tests of this repository. The libraries that they load, and the tests themselves, hold
millions of objects, which are not garbage: to look through them takes half a second each time.
"""

import atexit
import gc

gc.set_threshold(20_000, 20, 100)


def pytest_collection_finish() -> None:
    """What lives before the first test is left alone until the process ends."""
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)
