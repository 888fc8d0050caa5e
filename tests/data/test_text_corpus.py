from __future__ import annotations

from fedpriv.data.text_corpus import PUBLIC, TEST, TRAIN, deal, fraction_of

AUTHORS = [f"author{i}" for i in range(5000)]


def test_shares_of_authors_are_set_aside():
    roles = deal(AUTHORS, 0.1, 0.2)
    shares = [(roles == role).mean() for role in (PUBLIC, TEST, TRAIN)]
    assert all(abs(a - b) < 0.02 for a, b in zip(shares, (0.1, 0.2, 0.7), strict=True))
    assert (deal(AUTHORS, 0, 0) == TRAIN).all()


def test_an_author_has_one_role_whoever_else_writes():
    everybody = dict(zip(AUTHORS, deal(AUTHORS, 0.3, 0.3), strict=True))
    some = [*AUTHORS[::7], *AUTHORS[::7]]
    assert deal(some, 0.3, 0.3).tolist() == [everybody[a] for a in some]


def test_a_larger_public_share_contains_a_smaller_one():
    small, large = deal(AUTHORS, 0.1, 0.1) == PUBLIC, deal(AUTHORS, 0.2, 0.1) == PUBLIC
    assert (large | ~small).all()


def test_fractions_do_not_change_between_versions():
    assert [round(fraction_of(name), 6) for name in ("", "user00000", "ROMEO")] == [
        0.705848, 0.817978, 0.847624,
    ]  # fmt: skip
