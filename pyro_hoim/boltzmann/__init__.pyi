from .energy import MarginalEnergy as MarginalEnergy
from .law import BoltzmannMachine as BoltzmannMachine
from .restricted import RestrictedBoltzmannMachine as RestrictedBoltzmannMachine
from .structure import MachineStructure as MachineStructure
