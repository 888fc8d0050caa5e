"""The clients' computation of one run, shared by several processes on one machine or on many.

Rank 0 is the process of the run. It alone has the run folder, the noise, the ledger, the optimisers and the
terminal. Other ranks are workers: they keep nothing from round to round, and answer with the clipped sums of
the chunks of clients they are sent. A chunk's answer is a pure function of public values and the clients'
records, and rank 0 adds up sums in the order of the chunks. So the number of workers changes no bit.

Begin with ``crew``: how rank 0 hands out the chunks of a step. ``link`` carries messages between rank 0 and
one worker, ``packing`` turns values into bytes without pickle. ``places`` reads from the environment which
rank a process has, ``processes`` starts the workers of one machine. This room knows chunks and tensors. What
is computed, and from which state, is in :mod:`fedpriv.experiment.spread` (rank 0) and
:mod:`fedpriv.experiment.worker` (the other ranks).
"""
