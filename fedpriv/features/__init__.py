"""Fixed features that replace images as the input of a model. Importing this package does not import torch.

Begin with ``base``. ``scattering`` and ``hog`` are the options. ``dataset`` replaces the images of a data set
by features, and ``public_statistics`` has means and variances of public images.
"""

from fedpriv.features.base import Features
from fedpriv.features.hog import Hog
from fedpriv.features.scattering import Scattering

__all__ = ["Features", "Hog", "Scattering"]
