"""Strategies of correlated noise: their sensitivity, the error of the iterates, and the noise itself.

Begin with ``strategy``; ``identity``, ``tree``, ``banded_toeplitz``, ``banded`` and ``blt`` are the options
of ``algorithm.strategy``, and ``make`` makes one of a name. ``participation`` and ``cohorts`` say how often a
client takes part. Nothing here needs torch: a stream combines the vectors that it is given.
:mod:`fedpriv.privacy.mechanisms.matrix` uses the strategies.
"""

MOST_BUFFERS = 8
"""Largest number of buffers of a buffered linear Toeplitz strategy.

More buffers coincide in double precision and gain next to nothing.
"""
