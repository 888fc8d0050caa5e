"""``fedpriv report``: runs, sweeps and figures as one HTML page that needs nothing else."""
