from .energy import MarginalEnergy as MarginalEnergy
from .law import BoltzmannMachine as BoltzmannMachine
from .learning.fit import MachineResult as MachineResult, fit_machine as fit_machine
from .learning.options import LearningOptions as LearningOptions
from .restricted import RestrictedBoltzmannMachine as RestrictedBoltzmannMachine
from .structure import MachineStructure as MachineStructure
