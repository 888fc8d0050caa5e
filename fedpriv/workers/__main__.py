"""The command of a worker, ``python -m fedpriv.workers``, which only :mod:`.processes` starts."""

import os
import sys
from importlib import import_module

from fedpriv.workers.processes import VARIABLE, end_with_parent, told

if VARIABLE not in os.environ:
    sys.exit("fedpriv: a run starts its workers by itself, see the key runtime.workers")
facts = told()
end_with_parent(facts["parent"])  # before torch is imported, which takes seconds
import_module(facts["module"]).main()
