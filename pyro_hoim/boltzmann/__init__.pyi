from .file import MachineFile as MachineFile, load_machine as load_machine, save_machine as save_machine
from .law import (
    BoltzmannMachine as BoltzmannMachine,
    RestrictedBoltzmannMachine as RestrictedBoltzmannMachine,
    effective_interactions as effective_interactions,
    impute_machine as impute_machine,
    predict_machine as predict_machine,
    row_log_scores as row_log_scores,
)
from .learning import LearningOptions as LearningOptions, MachineResult as MachineResult, fit_machine as fit_machine
from .structure import MachineStructure as MachineStructure, MarginalEnergy as MarginalEnergy
