"""Lets the tests of laws import :mod:`every_law`, which stands beside this file."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
