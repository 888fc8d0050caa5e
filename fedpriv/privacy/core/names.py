"""The names that configuration and command line use, apart from what they stand for: imports nothing."""

ADD_OR_REMOVE = "add_or_remove"
ZERO_OUT = "zero_out"
"""A unit's contributions are zeros in the other data set, and it takes part when it does: the sums differ as
under add/remove, and so do the events."""
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
