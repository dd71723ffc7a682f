"""All tests of this repository. The libraries that they load hold a million objects, which are not
garbage: to look through them as often as Python does by itself takes a tenth of the tests' time.
"""

import gc

gc.set_threshold(20_000, 20, 100)
