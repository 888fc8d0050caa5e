"""Names that configuration, command line and ledger use. This module imports nothing."""

ADD_OR_REMOVE = "add_or_remove"
ZERO_OUT = "zero_out"
"""The relation in which a unit's contributions are zeros in the other data set.

The unit takes part in the same rounds in both. Sums differ as under add/remove, and so events cost the same.
"""
REPLACE_ONE = "replace_one"
RELATIONS = (ADD_OR_REMOVE, REPLACE_ONE)
RELATION_WORDS = {
    ADD_OR_REMOVE: "add/remove adjacency",
    REPLACE_ONE: "replace-one adjacency",
    ZERO_OUT: "zero-out adjacency",
}

CLIENT, AGGREGATOR, NOBODY = "client", "aggregator", "nobody"

SOUND, PUBLISHED = "sound", "published"
BUDGET_VIEWS = (SOUND, PUBLISHED)

ACCOUNTANTS = ("pld", "prv", "rdp", "gdp", "zcdp")
CONVERSIONS = ("classical", "improved")
RELEASE_SAMPLINGS = ("poisson", "without_replacement", "none")
