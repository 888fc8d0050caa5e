"""Texts that everybody has: their splits are those of their protocols, drawn from n, which is public.

The other published data sets (``StoredFiles``: MNIST, Fashion-MNIST, CIFAR-10, EMNIST, Adult) compare the
checksums of their files themselves. Where nobody published one (EMNIST, Adult, the JPEG copy of CIFAR-10,
LEAF's FEMNIST, the whole Sentiment140) the data set stands for it. No archived run used ``reddit`` or
``ipums``, so any file of these is the user's own.
"""

TEXTS = {
    "6fb458f1232090904fb40fe944165e91": "tinyshakespeare/input.txt",
    "fe3ad267d8a8b52a9030f8e4a281b04b": "sentiment140/sentiment140.subset.csv",
    "e5748448414529c4731edde6f870d539": "ubuntu_irc/messages.csv.gz",
}
"""MD5 sums of the files."""
