from .arviz import CELL_GROUP as CELL_GROUP, ArvizNames as ArvizNames, to_arviz as to_arviz
from .backend import choose_backend as choose_backend, get_group as get_group
from .chains import diagnose_chains as diagnose_chains
from .loo import (
    compare_by_cell as compare_by_cell,
    loo_by_cell as loo_by_cell,
    loo_figures as loo_figures,
    summarise as summarise,
)
from .markov import from_mbi as from_mbi, from_pgmpy as from_pgmpy, to_mbi as to_mbi, to_pgmpy as to_pgmpy
from .uai import (
    UaiResult as UaiResult,
    read_uai as read_uai,
    read_uai_evidence as read_uai_evidence,
    read_uai_result as read_uai_result,
    write_uai_evidence as write_uai_evidence,
    write_uai_result as write_uai_result,
)
