"""ResNet-18 with group normalisation, the usual network for private training on CIFAR-10.

The network is that of He et al., "Deep residual learning for image recognition", CVPR 2016, as torchvision
builds it, with these changes:

- Group normalisation (Wu and He, ECCV 2018) replaces batch normalisation, which lets the records of a batch
  change each other's gradients.
- For images of 32 × 32 the first convolution has kernel 3 and stride 1, without a pool, as usual for CIFAR.
- No layer works in place, because the outputs of layers are needed for their per-record gradients.

On 3 × 32 × 32 with 10 classes it has 11,173,962 parameters, whatever the number of groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.common.fields import declared, field, same_as
from fedpriv.models.base import ModelFactory, one_number_of, refuse_small_images
from fedpriv.models.cnn import Cnn

if TYPE_CHECKING:
    from torch import nn

BLOCKS = (2, 2, 2, 2)
CHANNELS = 64  # of the first stage; each later stage doubles them
GROUPS = (1, 2, 4, 8, 16, 32, 64)
_SMALLEST = 8  # pixels per side: three stages halve the side
# Activations, and unfolded inputs of the kernels whose per-record gradients are not formed.
_VALUES_PER_PIXEL = 4000


@declared
class ResNet18Gn(ModelFactory):
    """ResNet-18 with group normalisation for images of any channel count with sides of at least 8 pixels."""

    name = "resnet18_gn"

    groups: int = field(
        one_number_of(
            GROUPS, f"one of {', '.join(map(str, GROUPS))} (a divisor of {CHANNELS} channels)"
        ),
        default=32,
        help="groups of channels, each of which is normalised",
    )
    standardized: bool | None = same_as(Cnn, "standardized")

    def refuse_misfit(self, input_shape: tuple[int, ...], classes: int) -> None:
        refuse_small_images(self.name, input_shape, _SMALLEST)

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        self.refuse_misfit(input_shape, classes)
        module = self._seeded(lambda: _network(input_shape[0], self.groups, classes))
        values = _VALUES_PER_PIXEL * input_shape[1] * input_shape[2]
        if self.standardized:
            from fedpriv.models.layers import standardize

            standardize(module)
            # The gradients of standardized kernels are formed for every record, and copied once.
            values += 2 * sum(p.numel() for p in module.parameters())
        vars(module)["values_per_record"] = values
        return module


def _network(channels: int, groups: int, classes: int) -> nn.Module:
    from torch import nn

    from fedpriv.common.torchvision_shim import import_torchvision

    resnet = import_torchvision().models.resnet

    class Block(resnet.BasicBlock):  # type: ignore[name-defined]  # torchvision is imported late
        """Residual block of torchvision without its in-place addition of the shortcut."""

        def forward(self, x: Any) -> Any:
            shortcut = x if self.downsample is None else self.downsample(x)
            inner = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
            return self.relu(inner + shortcut)

    module = resnet.ResNet(
        Block, list(BLOCKS), num_classes=classes, norm_layer=lambda c: nn.GroupNorm(groups, c)
    )
    module.conv1 = nn.Conv2d(channels, CHANNELS, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(module.conv1.weight, mode="fan_out", nonlinearity="relu")
    module.maxpool = nn.Identity()
    for layer in module.modules():
        if isinstance(layer, nn.ReLU):
            layer.inplace = False
    return module
