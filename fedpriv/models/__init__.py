"""Model factories: each stores its settings and builds a torch module when asked.

Begin with ``base``. Each option of the group ``model`` is a module; ``fit`` compares a model with the data.
Importing this room does not import torch, so a plan can be checked on a machine without it.
"""

from fedpriv.models.cnn import Cnn
from fedpriv.models.cnn_emnist import CnnEmnist
from fedpriv.models.cnn_scattering import CnnScattering
from fedpriv.models.logistic import Logistic
from fedpriv.models.lstm import LstmClassifier, LstmLm
from fedpriv.models.mlp import Mlp
from fedpriv.models.resnet18_gn import ResNet18Gn
from fedpriv.models.svm import Svm

__all__ = [
    "Cnn",
    "CnnEmnist",
    "CnnScattering",
    "Logistic",
    "LstmClassifier",
    "LstmLm",
    "Mlp",
    "ResNet18Gn",
    "Svm",
]
