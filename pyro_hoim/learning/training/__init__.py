"""Training of collections that grow and shrink: exact, by weighted chains, or by pseudo-likelihood."""

from .base import Loss, Margins, Trainer, TrainingReport

__all__ = ["Loss", "Margins", "Trainer", "TrainingReport"]
