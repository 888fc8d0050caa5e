"""The names that configuration and command line use, apart from what they stand for: imports nothing."""

ADD_OR_REMOVE = "add_or_remove"
REPLACE_ONE = "replace_one"
RELATIONS = (ADD_OR_REMOVE, REPLACE_ONE)
RELATION_WORDS = {
    ADD_OR_REMOVE: "add/remove adjacency",
    REPLACE_ONE: "replace-one adjacency",
}

CLIENT, AGGREGATOR, NOBODY = "client", "aggregator", "nobody"

SOUND, PUBLISHED = "sound", "published"
BUDGET_VIEWS = (SOUND, PUBLISHED)

ACCOUNTANTS = ("pld", "prv", "rdp", "gdp", "zcdp")
CONVERSIONS = ("classical", "improved")
RELEASE_SAMPLINGS = ("poisson", "without_replacement", "none")
