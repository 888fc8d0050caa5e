"""Commands that read finished runs or answer questions about mechanisms.

Begin with the folder of the command that you look for: ``audit``, ``verify``, ``report``, or
``accounting`` for ``fedpriv account`` and ``fedpriv calibrate``. Each folder says where to begin.

``fedpriv runs`` is in this folder itself: ``run_table`` prints its table, and ``run_choice`` reads its
filters.
"""
