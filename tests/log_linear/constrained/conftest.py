"""Lets the tests of constrained estimation import :mod:`problems`, which stands beside this file."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
