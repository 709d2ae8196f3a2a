from .classifier import InteractionClassifier as InteractionClassifier
from .density import InteractionDensity as InteractionDensity
from .imputer import InteractionImputer as InteractionImputer
