"""The clients' computation of one run, shared by processes on one machine.

Rank 0 makes the run; the other ranks answer with the clipped sums of the chunks of clients they are sent. An
answer is a pure function of what was sent and of the clients' records, and rank 0 adds up the chunks in their
order: so the number of processes changes no bit.

Begin with ``crew``: how rank 0 hands out the chunks of a step. ``link`` carries messages, which ``packing``
makes without pickle. ``processes`` starts the workers. ``shared_memory`` is a file in memory, from which all
processes read the same records.
This room knows chunks and tensors; what is computed stands in ``experiment.spread`` and ``.worker``.
"""
