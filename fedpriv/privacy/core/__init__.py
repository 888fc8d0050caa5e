"""The mathematics and the small parts that mechanisms, accountants and clippers stand on.

Begin with ``sampling`` (each sampler draws, and names its privacy event) and ``noise`` (normals on a public
grid). ``integer_noise``, ``modular`` and ``masks`` are for sums of whole numbers. ``events``,
``discrete_events`` and ``min_sep_events`` are the privacy events beside those of dp_accounting; ``rdp``,
``sampled_gaussian``, ``trade_off`` and ``grid`` say what they cost. ``trust`` says who sees an upload,
``columns`` what a checkpoint holds of counted events, ``names`` the words of configuration and ledger.
"""
