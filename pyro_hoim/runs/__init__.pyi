from .checkpoint import RunOptions as RunOptions
from .container import FORMAT_VERSION as FORMAT_VERSION
from .sampling import ChainRun as ChainRun, sample_chains as sample_chains
from .schedule import GibbsSchedule as GibbsSchedule
