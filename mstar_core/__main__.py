"""``python -m mstar_core`` is the command ``mstar-core``."""

import sys

from mstar_core.cli import main

sys.exit(main())
