from .container import FORMAT_VERSION as FORMAT_VERSION
from .options import RunOptions as RunOptions
from .sampling import ChainRun as ChainRun, sample_chains as sample_chains
from .schedule import GibbsSchedule as GibbsSchedule
