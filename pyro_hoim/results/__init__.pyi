from .comparison import compare as compare
from .fitted import Fitted as Fitted, LoadedModel as LoadedModel
from .table import SummaryTable as SummaryTable
