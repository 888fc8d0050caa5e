"""Names of the values that the keys of an attack take."""

SAMPLED, FIXED = "sampled", "fixed"
PARTICIPATIONS = (SAMPLED, FIXED)
SKIP, FOLLOW = "skip", "follow"
DP_STEPS = (SKIP, FOLLOW)
REPLACEMENT = "replacement"
UPDATE, MALICIOUS_PART = "update", "malicious_part"
BOOSTED = (UPDATE, MALICIOUS_PART)

GLOBAL_MODELS, NOISED_UPLOADS, RAW_UPLOADS, RULE = (
    "global_models",
    "noised_uploads",
    "raw_uploads",
    "rule",
)
KNOWLEDGE = (GLOBAL_MODELS, NOISED_UPLOADS, RAW_UPLOADS, RULE)
"""Values of a list ``attack.knows``. What attackers hold themselves, their records, they know in any case."""
