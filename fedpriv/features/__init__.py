"""Fixed features of images, which a model reads in their place; importing this room does not import torch."""

from fedpriv.features.base import Features
from fedpriv.features.scattering import Scattering

__all__ = ["Features", "Scattering"]
