"""Store: the run folder, with everything that is written to it or read from it.

Begin with ``folder``, which names and writes the files of a run, and ``stored_run``, which reads them.
``tables`` writes the CSV files that grow, ``ledger_file`` the releases, ``statement`` and ``caveats`` the
privacy statement, ``digests`` the SHA-256 of each file. A stored file may be damaged or untrusted: ``saved``
and ``numbers`` refuse an unusable file with one sentence, ``checked_folder`` compares files with their
digests, ``run_folders`` finds runs. ``table`` is the only table, for terminal, CSV, Markdown and LaTeX.
``plots`` makes pictures of the panels that ``panels`` describes and ``drawing`` draws; ``run_plots`` makes
those of a run, ``display`` the lines on the console. ``sweep`` tabulates a sweep, ``pairs`` compares paired
runs, ``packed`` keeps runs in one file.
"""
