"""Store: the run folder, with everything that is written to it or read from it.

Begin with ``folder``, which names the files of a run, and ``stored_run``, which reads them. ``tables`` writes
the CSV files that grow, ``ledger_file`` the releases, ``statement`` and ``caveats`` the privacy statement. A
stored file may be somebody else's: ``saved`` refuses one that cannot be read. ``run_folders`` finds runs.
``table`` is the only table, for terminal, CSV, Markdown and LaTeX.
``plots`` makes pictures of the panels that ``panels`` describes and ``drawing`` draws; ``run_plots`` makes
those of a run, ``display`` the lines on the console. ``sweep`` tabulates a sweep, ``pairs`` compares paired
runs, ``packed`` keeps runs in one file.
"""
