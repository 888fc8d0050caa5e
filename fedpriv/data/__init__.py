"""Data sets, their partition over clients, and the federated data a run trains on.

Begin with ``records``, the tensors of a loaded data set, and with ``federated``. ``partitions`` and
``equal_dirichlet`` have the ways to assign records to clients. Each data set is a module; the modules of text
data begin with ``text_``.
``text_dataset`` is the base class of text data, with ``text_tokens``, ``text_vocabulary`` and
``text_windows``. ``synthetic`` draws data of any number of users. ``own_table`` reads a table of the user's
own, ``table_files`` its formats. ``catalogue`` lists all data sets; ``stored`` and ``downloads`` verify
files.

Every module of this package imports without torch, because a dry run does not need torch.
"""
