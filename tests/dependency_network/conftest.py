"""Lets the tests of dependency networks import :mod:`network_oracles`, which stands beside this file."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
