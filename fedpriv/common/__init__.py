"""Tools for every room: errors, checks of arguments, configuration, random streams, files.

Begin with ``errors`` (each error is one sentence with an exit status), ``checks`` and ``fields``, which
declares constructor arguments. ``config`` composes the configuration and computes the identity of a run,
``groups`` lists groups and options, ``option_keys`` their keys, ``flags`` the flags of commands.
``saved`` is the state of a part in a checkpoint.
``secret_streams`` gives noise and sampling, ``random_streams`` all that is public. ``exact`` and
``attributes`` compute digests. ``files`` writes atomically, ``endings`` handles interruptions, ``workers``
and ``startup`` care for processes.
"""
