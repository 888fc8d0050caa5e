"""``fedpriv account`` and ``fedpriv calibrate``: what releases cost, without running anything."""
