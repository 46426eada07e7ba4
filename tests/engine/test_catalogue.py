from __future__ import annotations

import re

from engine.catalogue import PUBLISHED, find_published


def test_entries_are_whole() -> None:
    """Every entry has a full hash and a length, and no two share a hash or a name."""
    assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) and file.nbytes > 0 for file in PUBLISHED)
    assert (
        len({file.sha256 for file in PUBLISHED}) == len({file.name for file in PUBLISHED}) == len(PUBLISHED)
    )


def test_hash_and_length_identify() -> None:
    """Two files of one length differ by hash; a wrong length or hash finds nothing."""
    base = "3907dc1658db1f78a9826bf8d5bcb8dc65db0d466388937af57f2294fae62ec1"
    swift = "5912bb739217cf25b4283a098c7b893d9baff36bdf2e72d3dbf4cb999d5633d5"
    found = [find_published(7_206_168_928, sha256) for sha256 in (base, swift)]
    assert [file and file.name for file in found] == ["Ternary-Bonsai-2-27B-PQ2_0", "Swift-Bonsai-2-PQ2_0"]
    assert find_published(7_206_168_929, base) is None
    assert find_published(7_206_168_928, "0" * 64) is None
