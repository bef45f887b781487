"""``python -m gsslam``: the same as the command ``gsslam``."""

import sys

from gsslam.cli import main

sys.exit(main())
