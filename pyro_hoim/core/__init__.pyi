from .family import (
    Answer as Answer,
    Asked as Asked,
    Family as Family,
    Option as Option,
    Plan as Plan,
    Question as Question,
    Request as Request,
    Source as Source,
    Stored as Stored,
    families as families,
    family_named as family_named,
    register as register,
)
from .law import Law as Law
from .laws.shared import MarginalCounts as MarginalCounts, StateSpace as StateSpace
from .model import ConditionalModel as ConditionalModel, EnergyModel as EnergyModel
from .page import Page as Page, Section as Section
from .partition import (
    Cost as Cost,
    LogPartition as LogPartition,
    PartitionBackend as PartitionBackend,
    Sandwich as Sandwich,
    Verdict as Verdict,
)
from .prediction import (
    ClampedGibbs as ClampedGibbs,
    Imputation as Imputation,
    Prediction as Prediction,
    extend_rows as extend_rows,
)
from .scores import Figures as Figures, Scores as Scores, mean_gain as mean_gain
from .studies import Content as Content, Part as Part, Study as Study
from .trainer import (
    Loss as Loss,
    Margins as Margins,
    MaskedTrainer as MaskedTrainer,
    RidgeTrainer as RidgeTrainer,
    Trainer as Trainer,
    TrainingReport as TrainingReport,
)
