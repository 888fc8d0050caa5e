"""Strategies of correlated noise: what they cost, how far off the iterates are, and the noise itself.

Begin with ``strategy``; ``identity``, ``tree``, ``banded_toeplitz``, ``banded`` and ``blt`` are the options.
``participation`` and ``cohorts`` say how often a client takes part. Nothing here needs torch: a stream
combines the vectors it is given. :mod:`fedpriv.privacy.mechanisms.matrix` uses them.
"""

MOST_BUFFERS = 8
"""Of a buffered linear Toeplitz strategy: more coincide in double precision and gain next to nothing."""
