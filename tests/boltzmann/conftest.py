"""Lets the tests of Boltzmann machines import :mod:`machines`, which stands beside this file."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
