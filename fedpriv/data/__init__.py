"""Data sets, their partition over clients, and the federated data a run trains on.

Begin with ``records`` (what a loaded data set is) and ``federated``; ``partitions`` has the ways to deal
records out. Each data set is a module, those of text begin with ``text_``: ``text_dataset`` is their base,
with ``text_tokens``, ``text_vocabulary`` and ``text_windows``. ``catalogue`` knows all data sets, ``stored``
and ``downloads`` verify files. Every module here imports without torch, so that a dry run needs none.
"""
