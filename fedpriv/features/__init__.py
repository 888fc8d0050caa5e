"""Fixed features of images, which a model reads in their place; importing this room does not import torch.

Begin with ``base``. ``scattering`` and ``hog`` are the options, ``dataset`` puts features in the place of a
data set's images, ``public_statistics`` has means and deviations of public images.
"""

from fedpriv.features.base import Features
from fedpriv.features.hog import Hog
from fedpriv.features.scattering import Scattering

__all__ = ["Features", "Hog", "Scattering"]
