"""Model factories: each stores its settings and builds a torch module on demand.

Begin with ``base``. Each option of the group ``model`` is a module; ``fit`` builds a model for a data set,
``own_module`` makes one of the user's torch module.
Importing this package does not import torch, so a machine without torch can check a plan.
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
