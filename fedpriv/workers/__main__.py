"""The command of a worker, ``python -m fedpriv.workers``, which only :mod:`.processes` starts."""

from importlib import import_module

from fedpriv.workers.processes import end_with_parent, told

facts = told()
end_with_parent(facts["parent"])  # before torch is imported, which takes seconds
import_module(facts["module"]).main()
