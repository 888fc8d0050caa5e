"""Tools: commands that read finished runs or answer questions about mechanisms.

Begin with the folder of the command you look for; each says where it begins.

A folder each for ``fedpriv audit``, ``verify``, ``report``, ``leaderboard``, and for ``account`` with
``calibrate`` (``accounting/``). The small ones are modules of this folder: ``run_table`` prints the table of
``fedpriv runs`` and ``run_choice`` reads its filters; ``bench`` times the gradient engines against each
other with the rows of ``bench_gradients`` and ``bench_clients``. Times of single rows mean little on a
shared machine: ``bench_measuring`` lets rows take turns and compares medians. A new comparison is a new
:class:`~fedpriv.tools.bench_measuring.TimedStep`, and perhaps a :class:`~fedpriv.tools.bench_measuring.Bar`.
"""
