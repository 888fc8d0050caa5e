"""Commands that read finished runs or answer questions about mechanisms.

Begin with the folder of the command that you look for: ``audit``, ``verify``, ``report``, or
``accounting`` for ``fedpriv account`` and ``fedpriv calibrate``. Each folder says where to begin.

Two small commands are modules of this folder. ``run_table`` prints the table of ``fedpriv runs``, and
``run_choice`` reads its filters. ``bench`` times the engines with the rows of ``bench_gradients`` and
``bench_clients``. Single times mean little on a shared machine, so ``bench_measuring`` lets the rows take
turns and compares medians. A new comparison is a new ``TimedStep``, and perhaps a new ``Bar``. ``peers``
has the same work in other libraries, and ``environments`` makes environments for packages of others.
"""
