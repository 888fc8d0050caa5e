"""What every room may use: errors, checks of arguments, configuration, random streams, files.

Begin with ``errors`` (each a sentence and an exit status) and ``checks``. ``config`` composes the
configuration and says what identifies a run, ``groups`` lists the groups and their options.
``secret_streams`` are the streams of noise and sampling, ``random_streams`` the public ones, ``exact`` the
digests of values. ``files`` writes atomically. ``moved`` is the table of old import paths.
"""
