"""Training of collections that grow and shrink: exact, by weighted chains, or by pseudo-likelihood."""

from .base import Loss, Margins, Trainer, TrainingReport
from .evidence import Evidence, updated_ridge
from .exact import ExactTrainer
from .pseudo import PseudoTrainer
from .ridge import InteractionRidge
from .sampled import SampledTrainer, SampledTraining

__all__ = [
    "Evidence",
    "ExactTrainer",
    "InteractionRidge",
    "Loss",
    "Margins",
    "PseudoTrainer",
    "SampledTrainer",
    "SampledTraining",
    "Trainer",
    "TrainingReport",
    "updated_ridge",
]
