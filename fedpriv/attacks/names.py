"""Names of the values that the keys of an attack take."""

SAMPLED, FIXED = "sampled", "fixed"
PARTICIPATIONS = (SAMPLED, FIXED)
SKIP, FOLLOW = "skip", "follow"
DP_STEPS = (SKIP, FOLLOW)
REPLACEMENT = "replacement"
UPDATE, MALICIOUS_PART = "update", "malicious_part"
BOOSTED = (UPDATE, MALICIOUS_PART)
