"""Mathematics and small parts that mechanisms, accountants and clippers are built on.

Begin with ``sampling`` (each sampler draws a sample and names its privacy event) and ``noise`` (normals on a
public grid). ``integer_noise`` and ``modular`` serve sums of whole numbers. ``discrete_events`` defines the
privacy events that dp_accounting does not have; ``events`` writes events as text. ``rdp``,
``sampled_gaussian``, ``trade_off`` and ``grid`` compute what events cost. ``trust`` says who sees an upload,
``client_groups`` keeps a value for each client, ``names`` lists names of configuration and ledger.
"""
