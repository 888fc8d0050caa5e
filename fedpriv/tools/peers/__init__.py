"""``fedpriv bench --peers``: the same work in other libraries, side by side on the same cores.

Begin with ``command``. ``packages`` makes an environment for each library. ``process`` is the process of a
library, which is asked for one step at a time; ``programs/`` holds what runs there, with nothing of fedpriv.
``measure`` lets fedpriv and a library take turns, and ``page`` writes ``docs/speed.md``.
"""
