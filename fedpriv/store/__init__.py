"""Store: the run folder, and everything that is written to it or read from it.

Begin with ``folder`` (the files of a run, by name, and their writing) and ``stored_run`` (their reading).
``tables`` writes growing CSVs, ``ledger_file`` the releases, ``statement`` and ``caveats`` the privacy
statement, ``digests`` a digest of each file. What is read back may be damaged or somebody else's: ``saved``
and ``numbers`` refuse a file in a sentence, ``checked_folder`` compares it with its digest, ``run_folders``
finds the runs below a folder. ``table`` is the only table, for terminals, CSV, Markdown and LaTeX, and
``plots`` alone draws: ``run_plots`` the pictures of a run. ``display`` says on the console what a run is,
``packed`` keeps many runs in one file, ``pairs`` compares paired runs.
"""
