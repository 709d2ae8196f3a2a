from .joint import (
    InteractionClassifier as InteractionClassifier,
    InteractionDensity as InteractionDensity,
    InteractionImputer as InteractionImputer,
)
