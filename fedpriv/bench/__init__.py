"""``fedpriv bench``: how fast the engines are on this machine, as ratios within one interleaved run.

Times of single rows mean little on a shared machine; ratios of medians from runs that take turns
mean more; on a busy machine ``threads=1`` is the steadier setting.

A new comparison is a new :class:`~fedpriv.bench.measuring.Row` in ``gradients`` or ``clients``, and
perhaps a :class:`~fedpriv.bench.measuring.Bar` to hold it to.
"""

from fedpriv.bench.command import run

__all__ = ["run"]
