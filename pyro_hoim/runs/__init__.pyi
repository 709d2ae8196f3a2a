from .chain_run import ChainRun as ChainRun
from .container import FORMAT_VERSION as FORMAT_VERSION, add_info as add_info
from .options import RunOptions as RunOptions
from .schedule import GibbsSchedule as GibbsSchedule
