"""Read by every Python process that a test starts: no connections beyond this machine, the seeds of the run."""

import offline
import seed_shift

offline.install()
seed_shift.install()
