"""What the modules of this folder need to find one another."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
